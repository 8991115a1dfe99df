#!/usr/bin/env python3
"""The table of LBB ids in README.md holds: each id has a row, and each row the
tests that show it, or the reason why none does.

usage: table.py               the table against the tests' sources; seconds
       table.py --ran FILE    and against a whole run of tests/run.py

A row is `| id | what | shown by |`.  Shown by is one or more of `FILE: CASE`
in backticks, or "not shown: REASON".  FILE is a test in Python, and CASE a part
of the title of exactly one of its cases; or FILE is a cmocka program's source,
and CASE the name of one of its functions.  The case, or the comment above it,
must cite the id: LBB-86; LBB-20 to LBB-24; LBB-191, 192.

FILE of --ran has a line for each case that ran: outcome, test, program, name,
reason, between tabs.  Every test of a row must have passed; one that was
skipped makes the whole skipped, with the ids and reasons.

Exit status: 0 it holds, 1 it does not, 77 some of its tests were skipped.
"""
import ast
import functools
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
TABLE = "api/openapi/README.md"
# All ids that there are.
RANGES = ((1, 15), (20, 30), (40, 55), (60, 71), (80, 93), (100, 110),
          (120, 139), (150, 160), (170, 181), (190, 202), (210, 214),
          (220, 224), (230, 241), (245, 252), (255, 266))
# Tests whose cases are rows of another file.
CASES_OF = {"tests/sdk/test_habits.py": "tests/sdk/cases.py"}
NOT_SHOWN = "not shown: "
REASON_MIN = 20     # characters
SKIPPED = 77
ROW = re.compile(r"^\| LBB-(\d+) \| (.*?) \| (.*?) \|$")
CITED = re.compile(r"LBB[-_](\d+)((?: to (?:LBB-)?\d+)|(?:, \d+\b)*)")


class Case:
    """One case of a test: its title or name, and the ids that it cites."""

    def __init__(self, title, text):
        self.title, self.cites = title, cited(text)


def cited(text):
    """The ids that a text cites."""
    ids = set()
    for first, more in CITED.findall(text):
        numbers = [int(first)] + [int(n) for n in re.findall(r"\d+", more)]
        if " to " in more:
            numbers = range(numbers[0], numbers[1] + 1)
        ids.update(numbers)
    return ids


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


# ---- the table --------------------------------------------------------------

def rows_of(text):
    """Between the markers: (id, what, shown by)."""
    m = re.search(r"<!-- lbb -->\n(.*)<!-- /lbb -->", text, re.S)
    if not m:
        return
    for line in m.group(1).splitlines()[2:]:
        row = ROW.match(line)
        yield (int(row[1]), row[2], row[3]) if row else (None, line, "")


def refs_of(shown):
    """The (file, case) pairs of a row."""
    return [tuple(x.split(": ", 1)) for x in re.findall(r"`([^`]*: [^`]*)`",
                                                        shown)]


def check_ids(rows):
    ids = [n for n, _, _ in rows if n is not None]
    want = [n for low, high in RANGES for n in range(low, high + 1)]
    for n in want:
        if ids.count(n) != 1:
            yield f"LBB-{n}: {ids.count(n)} rows"
    for n in sorted(set(ids) - set(want)):
        yield f"LBB-{n}: there is no such id"
    if ids != sorted(ids):
        yield "the rows are not in the order of their ids"


# ---- cases in the sources ---------------------------------------------------

def title_of(node):
    """A string, or an f-string with … for what is filled in; or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(x.value if isinstance(x, ast.Constant) else "…"
                       for x in node.values)
    return None


def is_case(node):
    return isinstance(node, ast.Call) and isinstance(
        node.func, ast.Name) and node.func.id == "case" and node.args


def with_comment(lines, first, last):
    """Lines first to last, and the comment above them, but no head of a
    section."""
    while first > 1 and re.match(r"\s*#(?! ----)", lines[first - 2]):
        first -= 1
    return "\n".join(lines[first - 1:last])


def python_cases(text):
    """Of @case("…"), case("…", …), rows ("LBB-…", …) and of @case alone, where
    the function's name is the title."""
    tree, lines = ast.parse(text), text.splitlines()
    decorators = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for d in node.decorator_list:
            title = title_of(d.args[0]) if is_case(d) else None
            if isinstance(d, ast.Name) and d.id == "case":
                title = node.name.replace("_", " ")
            if title:
                decorators.add(d)
                block = with_comment(lines, d.lineno, node.end_lineno)
                yield Case(title, title + "\n" + block)
    for node in ast.walk(tree):
        title = None
        if is_case(node) and node not in decorators:
            title = title_of(node.args[0])
        elif isinstance(node, ast.Tuple) and node.elts:
            title = title_of(node.elts[0])
            title = title if title and title.startswith("LBB-") else None
        if title:
            block = with_comment(lines, node.lineno, node.end_lineno)
            yield Case(title, title + "\n" + block)


C_FUNCTION = re.compile(r"^static void (\w+)\(void \*\*\w+\)\n\{.*?^\}", re.M |
                        re.S)
C_COMMENT = re.compile(r"/\*(?:[^*]|\*(?!/))*\*/\n\Z")


def c_cases(text):
    """Functions that are in the list of a cmocka program."""
    listed = set(re.findall(r"\w+", " ".join(re.findall(
        r"struct CMUnitTest \w+\[\] = \{(.*?)\};", text, re.S))))
    for m in C_FUNCTION.finditer(text):
        if m[1] in listed:
            comment = C_COMMENT.search(text[:m.start()])
            yield Case(m[1], (comment[0] if comment else "") + m[0])


@functools.cache
def cases_of(path):
    text = read(CASES_OF.get(path, path))
    return list(c_cases(text) if path.endswith(".c") else python_cases(text))


def is_named(path, case, title):
    return case == title if path.endswith(".c") else case in title


def check_ref(number, path, case):
    if not os.path.isfile(os.path.join(TOP, path)):
        return f"there is no {path}"
    found = [c for c in cases_of(path) if is_named(path, case, c.title)]
    if "…" in case:
        return f"{case!r} is more than what stands in {path}"
    if len(found) != 1:
        return f"{path} has {len(found)} cases named {case!r}"
    if number not in found[0].cites:
        return f"{path}: the case {found[0].title!r} does not cite it"
    return None


def check_row(number, what, shown):
    if not what.strip():
        yield "it does not say what it is"
    if shown.startswith(NOT_SHOWN):
        if len(shown) < len(NOT_SHOWN) + REASON_MIN:
            yield f"{shown!r} gives no reason"
        return
    refs = refs_of(shown)
    if not refs or shown.count("`") != 2 * len(refs):
        yield f"{shown!r} is not `FILE: CASE`, or not shown: REASON"
    for path, case in refs:
        problem = check_ref(number, path, case)
        if problem:
            yield problem


def check_sources(rows):
    for number, what, shown in rows:
        if number is None:
            yield f"{what!r} is not `| LBB-n | what | shown by |`"
            continue
        for problem in check_row(number, what, shown):
            yield f"LBB-{number}: {problem}"


# ---- a whole run ------------------------------------------------------------

def ran_from(path):
    """(outcome, program, name, reason) of each case that ran."""
    with open(path, encoding="utf-8") as f:
        for line in f:
            outcome, _, program, name, reason = line.rstrip("\n").split("\t")
            yield outcome, program, name, reason


def is_program(path, program):
    """Is this the program of that source?  hostd/http/server_test.c may be
    build/tests/hostd/http_server_test, and build/san/tests/hostd/...; others
    have no folder in their name."""
    if not path.endswith(".c"):
        return program == path
    parts = path.removesuffix(".c").split("/")
    program = program.removeprefix("build/").removeprefix("san/")
    return program in (f"tests/{parts[0]}/{parts[-1]}",
                       f"tests/{parts[0]}/{parts[-2]}_{parts[-1]}")


def outcome_of(path, case, ran):
    """What became of a row's test, as often as it ran: the worst outcome and
    its reason."""
    found = [(o, r) for o, program, name, r in ran
             if is_program(path, program) and is_named(path, case, name)]
    for outcome in ("failed", "skipped"):
        for o, reason in found:
            if o == outcome:
                return outcome, reason or outcome
    return ("passed", "") if found else ("failed", "it did not run")


def check_ran(rows, ran):
    """Problems; and tests that were skipped with their ids."""
    problems, skipped, seen = [], {}, {}
    for number, _, shown in rows:
        if shown.startswith(NOT_SHOWN):
            continue
        for path, case in refs_of(shown):
            if (path, case) not in seen:
                seen[path, case] = outcome_of(path, case, ran)
            outcome, reason = seen[path, case]
            if outcome == "failed":
                problems.append(f"LBB-{number}: {path}: {case}: {reason}")
            elif outcome == "skipped":
                skipped.setdefault(f"{path}: {case}: {reason}", []).append(
                    f"LBB-{number}")
    return problems, [f"skipped: {', '.join(ids)}: {test}"
                      for test, ids in skipped.items()]


def main(argv):
    if argv and (len(argv) != 2 or argv[0] != "--ran"):
        sys.exit(__doc__)
    rows = list(rows_of(read(TABLE)))
    problems = list(check_ids(rows)) + list(check_sources(rows))
    skipped = []
    if argv and not problems:
        problems, skipped = check_ran(rows, list(ran_from(argv[1])))
    for line in problems:
        print(f"{TABLE}: {line}")
    unshown = [n for n, _, shown in rows if shown.startswith(NOT_SHOWN)]
    print(f"{len(rows)} ids, {len(rows) - len(unshown)} shown by tests, "
          f"{len(unshown)} not; {len(problems)} problems")
    if skipped and not problems:
        print("; ".join(skipped))    # the last line is the reason
    return 1 if problems else SKIPPED if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
