#!/usr/bin/env python3
"""The table of hostile cases in README.md holds: every case has a test.

Seconds; no build is needed.  A row is `| id | tests | remark |`.  For every
case of A to D: one row, at least one test whose name carries the number
(a17_..., c18_c19_...), and every test named is registered in a cmocka program.
The other way round, a registered test that carries a number is in its row.

test: timeout=60
"""
import glob
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
CASES = {"A": 23, "B": 27, "C": 22, "D": 28}
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*?) \| ?(.*?) ?\|$", re.M)
CASE = re.compile(r"\bCASE\w*\((\w+)")
LIST = re.compile(r"struct CMUnitTest \w+\[\] = \{(.*?)\};", re.S)


def registered():
    """Test name -> file, of all cmocka programs beside or about the VMM."""
    names = {}
    for pattern in ("tests/hostile/*_test.c", "vmm/**/*_test.c"):
        for path in glob.glob(os.path.join(TOP, pattern), recursive=True):
            with open(path) as f:
                text = f.read()
            listed = re.findall(r"\w+", " ".join(LIST.findall(text)))
            for name in listed + CASE.findall(text):
                if re.search(rf"^static void {name}\(void \*\*", text, re.M):
                    names[name] = os.path.relpath(path, TOP)
    return names


def carries(name):
    """Numbers at the head of a name: c18_c19_x carries C18 and C19."""
    ids = []
    for part in name.split("_"):
        if not re.fullmatch(r"[a-z]\d+", part):
            break
        ids.append(part.upper())
    return ids


def problems_of(case, rows, names):
    if len(rows.get(case, [])) != 1:
        yield f"{len(rows.get(case, []))} rows"
        return
    tests, remark = rows[case][0]
    if not tests:
        if "does not apply" not in remark:
            yield "no test, and the remark does not say why it does not apply"
        return
    if not any(case in carries(t) for t in tests):
        yield f"none of its tests carries the number: {', '.join(tests)}"
    for t in tests:
        if t not in names:
            yield f"{t} is not a registered test"
    for t in names:
        if case in carries(t) and t not in tests:
            yield f"{t} ({names[t]}) is missing in the row"


def main():
    with open(os.path.join(TOP, "tests/hostile/README.md")) as f:
        text = f.read()
    rows = {}
    for case, tests, remark in ROW.findall(text):
        rows.setdefault(case, []).append(
            (re.findall(r"`(\w+)`", tests), remark))
    names = registered()
    cases = [f"{letter}{n}" for letter, count in CASES.items()
             for n in range(1, count + 1)]
    others = [c for c in rows if c not in cases]
    failed = 0
    print(f"1..{len(cases) + 1}")
    for i, case in enumerate(cases, 1):
        found = list(problems_of(case, rows, names))
        failed += bool(found)
        for p in found:
            print(f"# {case}: {p}")
        print(f"{'not ok' if found else 'ok'} {i} - {case}")
    bad = [f"{c}: {t}" for c in others for t in rows[c][0][0]
           if t not in names]
    failed += bool(bad)
    for b in bad:
        print(f"# {b} is not a registered test")
    print(f"{'not ok' if bad else 'ok'} {len(cases) + 1} - other letters")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
