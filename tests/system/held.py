"""Held sandboxes over HTTP: what tests of them share."""
import time

from hutchlib import FINAL, equal, new_key, note, wait_until

WAIT_S = 120
SHELL = "lbb/shell"


def create(c, key=None, **body):
    return c.call("POST", "/v1/sandboxes", dict({"template": SHELL}, **body),
                  key or new_key())


def running(c, r):
    """The answer of a create, when the sandbox runs: its id."""
    equal(r.status, 201, r)

    def runs():
        s = c.sandbox(r.json["id"])
        return s["status"] != "starting" and s

    s = wait_until(runs, WAIT_S, "it runs")
    equal(s["status"], "running", s)
    return s["id"]


def hold(c, **body):
    """A sandbox that runs."""
    return running(c, create(c, wait_ms=30000, **body))


def start(c, sandbox, *argv, key=None, **more):
    """POST a command; argv, or run=."""
    body = dict(more)
    if argv:
        body["argv"] = argv
    return c.call("POST", "/v1/sandboxes/commands", body, key or new_key(),
                  {"sandbox": sandbox})


def command(c, sandbox, *argv, seconds=WAIT_S, **more):
    """A command and its end: the record."""
    r = start(c, sandbox, *argv, wait_ms=30000, **more)
    assert r.status in (200, 202), r
    return ended(c, r.json["id"], seconds)


def ended(c, cmd, seconds=WAIT_S):
    def final():
        j = c.command(cmd, wait_ms=10000).json
        return j["status"] in FINAL and j
    return wait_until(final, seconds, f"{cmd} ends")


def sh(c, sandbox, script, **more):
    return command(c, sandbox, "bash", "-c", script, **more)


def delete(c, sandbox):
    return c.call("DELETE", "/v1/sandboxes", query={"sandbox": sandbox})


def destroyed(c, sandbox):
    equal(delete(c, sandbox).status, 200)
    wait_until(lambda: c.sandbox(sandbox)["status"] == "destroyed", WAIT_S,
               "it is destroyed")


def stop(c, sandbox):
    return c.call("POST", "/v1/sandboxes/stop", query={"sandbox": sandbox})


def resume(c, sandbox):
    return c.call("POST", "/v1/sandboxes/resume", query={"sandbox": sandbox})


def stopped(c, sandbox):
    began = time.monotonic()
    r = stop(c, sandbox)
    equal(r.status, 200, r)
    wait_until(lambda: c.sandbox(sandbox)["status"] == "stopped", WAIT_S,
               "it is stopped")
    note(f"stopped after {time.monotonic() - began:.2f} s")


def resumed(c, sandbox):
    began = time.monotonic()
    r = resume(c, sandbox)
    equal(r.status, 200, r)
    wait_until(lambda: c.sandbox(sandbox)["status"] == "running", WAIT_S,
               "it runs again")
    note(f"resumed after {time.monotonic() - began:.2f} s")
