#!/usr/bin/env python3
"""Every operation of api/openapi/lbb.yaml, with requests that schemathesis
makes of it: whatever comes, no answer is a server error or another one than
the document says, and nothing that the document forbids is taken.

`make check` sends 300 to the port and 60 to the admin socket, of a fixed
seed; `make check-long` 2,000 and 400 or more, among them each of those at an
edge, of a new one, which is printed: HUTCH_SEED=N sends the same again.
HUTCH_REQUESTS=N is how many to the port.

Bounded are the costs of what is valid (live.py), and so uploads: bodies are
small (test_32_graph_files.py has the large ones).  /mcp gets any JSON as its
document says no more; test_36_mcp.py has messages that mean something.

test: timeout=900 long-timeout=3600 beside=yes seconds=150
"""
import collections
import contextlib
import os
import random
import socket
import threading

from held import SHELL
from hutchlib import Daemon, IS_LONG, STATE, case, equal, main, note
from live import CODE, Live
from properties import (Judge, REQUEST_S, operation_id, operations, packages,
                        requests, same_hashes)

SEED = int(os.environ.get("HUTCH_SEED") or (
    random.SystemRandom().randrange(1 << 32) if IS_LONG else 20261021))
TO_PORT = int(os.environ.get("HUTCH_REQUESTS") or (2000 if IS_LONG else 300))
TO_ADMIN = TO_PORT // 5
MEND_EVERY = 20
NO_KEY = .05            # of the requests to operations that need one
SHOWN_MAX = 25

d = Daemon(STATE + "-properties", pool_max=0, graph_places=10,
           environment_places=10)
made = {}


def live():
    packages()
    if not d.is_alive():
        d.start()
    if not made:
        made["live"] = Live(d.client(environment="env_own"), SEED)
        made["live"].begin()
    return made["live"]


class Relay:
    """A port of its own for the admin socket: requests speaks TCP."""

    def __init__(self, path):
        self.path = path
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.path)
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(a, b),
                                     daemon=True).start()

    @staticmethod
    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


def send(c, url, headers):
    """The answer; one that does not come is a failure, too."""
    import requests as http
    try:
        return c.call(base_url=url, headers=headers, timeout=REQUEST_S), None
    except (http.RequestException, http.exceptions.InvalidHeader) as e:
        return None, f"no answer: {type(e).__name__} {e}"


def hold_to_document(cases, url, key, mend):
    """Send them, with `mend` at times; all that was wrong is shown, and fails."""
    world, judge = live(), Judge()
    rng = random.Random(SEED)
    wrong = collections.defaultdict(list)
    for n, c in enumerate(cases):
        if n % MEND_EVERY == 0:
            mend()
        world.fill(c)
        # OPTIONS and HEAD are of no operation's own.
        is_keyless = bool(
            key and "security" not in c.operation.definition.raw and
            c.method.upper() == c.operation.method.upper() and
            rng.random() < NO_KEY)
        response, failure = send(c, url, {} if is_keyless or not key else
                                 {"Authorization": f"Bearer {key}"})
        problems = [failure] if failure else judge.problems(c, response)
        if is_keyless and response is not None and \
                response.status_code not in (400, 401, 404, 405):
            problems.append(f"{response.status_code} without a key (LBB-2)")
        for problem in problems:
            wrong[operation_id(c), problem.split("\n")[0]].append(
                f"{problem}\n{c.as_curl_command()}\n" + (
                    "" if response is None else
                    f"{response.status_code} {response.content[:500]}"))
    for line in judge.summary():
        note(line)
    print(f"# count={len(cases)}", flush=True)
    for (operation, _), shown in list(wrong.items())[:SHOWN_MAX]:
        note(f"--- {operation}, {len(shown)} times, the first:")
        for line in shown[0].splitlines():
            note(line)
    assert d.is_alive(), "the daemon ended"
    assert not wrong, (f"{sum(map(len, wrong.values()))} violations of "
                       f"{len(wrong)} kinds; HUTCH_SEED={SEED}")
    return judge


def requests_of(is_admin, n):
    note(f"HUTCH_SEED={SEED}")
    cases = requests(operations(admin=is_admin), n, SEED, IS_LONG)
    assert len(cases) >= n, len(cases)
    return cases


@case("LBB-6, LBB-8, LBB-9, LBB-10, LBB-11: every operation of the port holds to "
      "the document, whatever it is asked")
def port():
    world = live()
    cases = requests_of(False, TO_PORT)
    judge = hold_to_document(cases, f"http://{d.host}:{d.port}", world.c.key,
                             world.mend)
    good = sum(n for status, n in judge.statuses.items() if status < 300)
    assert good > len(cases) / 10, f"{good} of {len(cases)} did anything"
    if IS_LONG:
        assert not judge.without_success(), judge.without_success()


@case("LBB-9, LBB-11: every operation of the admin socket holds to the document, "
      "whatever it is asked")
def admin():
    world = live()
    cases = requests_of(True, TO_ADMIN)
    relay = Relay(os.path.join(d.state, "admin.sock"))
    try:
        judge = hold_to_document(cases, relay.url, None, world.mend_admin)
    finally:
        relay.close()
    if IS_LONG:
        assert not judge.without_success(), judge.without_success()


@case("after all that it runs a call, and ends as it should")
def ends():
    world = live()
    equal(world.c.run(CODE[0], template=SHELL).result, {"sum": 6})
    equal(d.stop(), 0, "exit status")


if __name__ == "__main__":
    same_hashes()
    main()
