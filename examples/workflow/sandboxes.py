"""Calls of a workflow's step to hutchd, over plain HTTP.

Each call belongs to a step and carries the step's stable id as its
Idempotency-Key: `<effect prefix>/<step key>`, the same in every attempt.  So
the code of a step runs once, whatever becomes of the worker: a later attempt
sends the same request and is answered by the same record.

Each attempt asks for a grant of its own: a token for one kind of call, for a
minute at most.  The grant of a later attempt fences those of earlier ones, so
a worker that was only slow, and thought dead, can begin nothing more.
"""
import time

import httpx

WAIT_MS = 30000     # of one call, server side
RETRIED = (429, 500, 502, 503, 504)
LOST_RETRIES = 2


class StepError(Exception):
    """The daemon refused, and will refuse again."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error.get('code')}: "
                         f"{error.get('message')}")
        self.status, self.code = status, error.get("code")


class Step:
    """One attempt of one step."""

    def __init__(self, url, key, *, workflow, run, step, attempt,
                 graph="main"):
        self.key = f"{run}/{step}"      # the effect's id
        self.graph = graph
        self.origin = {"workflow": workflow, "run": run, "step": step,
                       "attempt": attempt}
        self.control = httpx.Client(base_url=url, timeout=60, headers={
            "Authorization": f"Bearer {key}"})
        self.granted = httpx.Client(base_url=url, timeout=60)

    def grant(self, operation):
        """A token for one kind of call of this attempt."""
        r = self.control.post("/v1/sandboxes/grants",
                              params={"graph": self.graph},
                              json={**self.origin, "operation": operation})
        if r.status_code != 201:
            raise StepError(r.status_code, r.json()["error"])
        return r.json()["token"]

    def call(self, operation, method, path, *, key=None, body=None, **query):
        """Send it until it is answered; the same key finds the same record.

        A grant lives a minute and a call waits half of one, so every try has
        a grant of its own.
        """
        while True:
            headers = {"Authorization": f"Bearer {self.grant(operation)}"}
            if key:
                headers["Idempotency-Key"] = key
            try:
                r = self.granted.request(
                    method, path, params={"graph": self.graph, **query},
                    json=body, headers=headers)
            except httpx.TransportError:
                time.sleep(1)           # the daemon is being restarted
                continue
            if r.status_code == 202:    # it goes on: wait on, by the same key
                continue
            if r.status_code in RETRIED:
                time.sleep(float(r.headers.get("Retry-After", 1)))
                continue
            if r.status_code >= 400:
                raise StepError(r.status_code, r.json()["error"])
            return r.json()

    def run(self, code, input=None, template="lbb/python"):
        """Code in a fresh sandbox.  A run that the host lost had no effect,
        and is a new one under the next key."""
        for n in range(LOST_RETRIES + 1):
            key = self.key + (f".{n + 1}" if n else "")
            run = self.call("sandbox_run", "POST", "/v1/sandboxes", key=key,
                            body={"run": {"code": code, "input": input,
                                          "template": template},
                                  "wait_ms": WAIT_MS})
            if run["status"] != "lost":
                break
        return run

    def create(self, **spec):
        """A sandbox that is held; its id."""
        return self.call("sandbox_create", "POST", "/v1/sandboxes",
                         key=self.key,
                         body={**spec, "wait_ms": WAIT_MS})["id"]

    def command(self, sandbox, *argv):
        """A program in it.  What was lost is not repeated: nobody knows what
        it did."""
        return self.call("sandbox_command", "POST", "/v1/sandboxes/commands",
                         key=self.key, sandbox=sandbox,
                         body={"argv": argv, "wait_ms": WAIT_MS})

    def delete(self, sandbox):
        return self.call("sandbox_manage", "DELETE", "/v1/sandboxes",
                         sandbox=sandbox)
