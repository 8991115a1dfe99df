#!/usr/bin/env python3
"""A durable workflow whose steps run code in sandboxes.

    worker.py --run ID [--db FILE]       HUTCH_URL and HUTCH_API_KEY are read

DBOS keeps the workflow in an SQLite file: which steps are over, and what they
gave.  A worker that is killed and started again with the same FILE goes on at
the step that was under way.  That step may have begun its code; the key that it
sends finds the record of it, and the code runs once.

Prints the result as a line of JSON.
"""
import argparse
import json
import os

from dbos import DBOS, SetWorkflowID

from sandboxes import Step

WORKFLOW = "nightly"
# Both take some seconds, so that there is a middle to be killed in.
APPEND = "echo once >> log; sleep 4; cat log"
TOTAL = """
sleep 4
jq add > "$RUN_RESULT"
"""


def step_of(name):
    """This attempt of the step: its number grows with each recovery."""
    status = DBOS.get_workflow_status(DBOS.workflow_id)
    return Step(os.environ["HUTCH_URL"], os.environ["HUTCH_API_KEY"],
                workflow=WORKFLOW, run=DBOS.workflow_id, step=name,
                attempt=max(1, status.recovery_attempts))


@DBOS.step()
def open_sandbox():
    return step_of("open").create(template="lbb/shell")


@DBOS.step()
def append(sandbox):
    c = step_of("append").command(sandbox, "bash", "-c", APPEND)
    return {"command": c["id"], "status": c["status"],
            "log": c["stdout"]["tail"]}


@DBOS.step()
def total(numbers):
    r = step_of("total").run(TOTAL, numbers, "lbb/shell")
    return {"command": r["command"], "status": r["status"],
            "result": r["result"], "attempt": r["origin"]["attempt"]}


@DBOS.step()
def close_sandbox(sandbox):
    step_of("close").delete(sandbox)


@DBOS.workflow()
def nightly(numbers):
    sandbox = open_sandbox()
    appended = append(sandbox)
    summed = total(numbers)
    close_sandbox(sandbox)
    return {"sandbox": sandbox, "append": appended, "total": summed}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--run", required=True, help="id of the run")
    args.add_argument("--db", default="workflow.sqlite",
                      help="where the workflow is kept")
    given = args.parse_args()
    DBOS(config={
        "name": "hutch-example",
        "system_database_url": f"sqlite:///{os.path.abspath(given.db)}",
        "application_version": "1",     # a changed file still recovers
        "run_admin_server": False,
        "log_level": "WARNING",
    })
    DBOS.launch()
    with SetWorkflowID(given.run):      # begins it, or finds it
        handle = DBOS.start_workflow(nightly, [1, 2, 3])
    print(json.dumps(handle.get_result()), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
