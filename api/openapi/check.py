#!/usr/bin/env python3
"""Compare the daemon's route table with its OpenAPI document.

usage: check.py HUTCHD

`HUTCHD --routes` prints the table; every row must be an operation of
lbb.yaml with the same operation id, access, query names, body size,
key and idempotency rule, and the document may have no other operation.  Every
answer has the headers that all have, every operation the answer of errors, and
every $ref must resolve.  Exit status 0 = equal, 1 = not.
"""
import os
import subprocess
import sys

import yaml

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "lbb.yaml")


ALWAYS = {"X-Request-Id", "Lbb-Version"}
ERROR = {"$ref": "#/components/responses/Error"}


def resolve(doc, node):
    """Follow a local $ref."""
    while "$ref" in node:
        at = doc
        for part in node["$ref"].removeprefix("#/").split("/"):
            at = at[part]
        node = at
    return node


def refs(node):
    """Every $ref below a node."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from refs(value)


def from_document(doc):
    """(method, path) -> what the row must say."""
    rows = {}
    for path, item in doc["paths"].items():
        for method, op in item.items():
            params = [resolve(doc, p) for p in op.get("parameters", [])]
            # One that is not required is the handler's to ask for.
            headers = {p["name"] for p in params
                       if p["in"] == "header" and p.get("required")}
            auth = "admin" if op.get("x-admin") else (
                "none" if op.get("security") == [] else "key")
            rows[method.upper(), path] = {
                "operation": op["operationId"],
                "auth": auth,
                "access": op.get("x-access", "open"),
                "key": "yes" if "Idempotency-Key" in headers else "no",
                "body": str(op.get("x-body-bytes-max", 0)),
                "params": {p["name"] for p in params if p["in"] == "query"},
            }
    return rows


def incomplete(doc):
    """What answers lack."""
    for path, item in doc["paths"].items():
        for method, op in item.items():
            name = f"{method.upper()} {path}"
            if op["responses"].get("default") != ERROR:
                yield f"{name}: no default answer for errors"
            for status, answer in op["responses"].items():
                for header in sorted(
                        ALWAYS - resolve(doc, answer).get("headers", {}).keys()):
                    yield f"{name}: answer {status} has no header {header}"


def from_daemon(program):
    """The same from `hutchd --routes`."""
    out = subprocess.run([program, "--routes"], check=True, text=True,
                         stdout=subprocess.PIPE, timeout=30).stdout
    rows = {}
    for line in out.splitlines():
        _, method, path, operation, *rest = line.split()
        row = dict(word.split("=", 1) for word in rest)
        row["operation"] = operation
        row["params"] = {p for p in row["params"].split(",") if p}
        rows[method, path] = row
    return rows


def main():
    with open(DOCUMENT, encoding="utf-8") as f:
        doc = yaml.safe_load(f)
    problems = []
    for ref in set(refs(doc)):
        try:
            resolve(doc, {"$ref": ref})
        except (KeyError, TypeError):
            problems.append(f"{ref}: does not resolve")
    problems += incomplete(doc)
    want, have = from_document(doc), from_daemon(sys.argv[1])
    for route in sorted(want.keys() | have.keys()):
        name = " ".join(route)
        if route not in have:
            problems.append(f"{name}: in lbb.yaml, not in the daemon")
        elif route not in want:
            problems.append(f"{name}: in the daemon, not in lbb.yaml")
        elif want[route] != have[route]:
            problems.append(f"{name}: lbb.yaml {want[route]}, "
                            f"daemon {have[route]}")
    for problem in problems:
        print(problem)
    print(f"openapi: {len(want)} operations, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
