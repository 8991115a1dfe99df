"""The samples of the two documents that the product implements, found in them.

fixtures/mission/guide.txt has its samples in fences. fixtures/mission/product.txt
is the text of a page without any: a sample is a row of PAGE, its first and last
line; every line that looks like code must lie in one of them.
"""
import re

from hutchlib import read_fixture

GUIDE, PRODUCT = "mission/guide.txt", "mission/product.txt"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)

# name, language, first line, last line; in the order of the page.
PAGE = (
    ("one call", "ts", "// In your product, a model writes this code.",
     "// result is 6"),
    ("one call", "python", "# In your product, a model writes this code.",
     "# result is 6"),
    ("run", "ts", "const code = `",
     'run.command;  // "cmd_…", the record of this run'),
    ("run", "python", 'code = """',
     'run.command   # "cmd_…", the record of this run'),
    ("template", "ts", "await lbb.sandboxes.templates.create({",
     'await lbb.sandboxes.run({ template: "normalize", input: [1, 2, 3] });'),
    ("template", "python", "lbb.sandboxes.templates.create(",
     'lbb.sandboxes.run(template="normalize", input=[1, 2, 3])'),
    ("scoped", "ts", 'const csv = "1,2\\n3,4\\n";', "});"),
    ("scoped", "python", 'csv = "1,2\\n3,4\\n"',
     '    out = {"lines": rows["result"], "upper": upper["stdout"]["tail"]}'),
    ("create", "ts",
     "const sb = await lbb.sandboxes.create({ expiresInSeconds: 600 });",
     "await sb.delete();"),
    ("create", "python",
     'sb = lbb.sandboxes.create({"expires_in_seconds": 600})', "sb.delete()"),
    ("import", "http", "PUT /v1/sandboxes/files/content",
     "Idempotency-Key: 4c1e…"),
    ("keep", "http", "POST /v1/files", "Idempotency-Key: 4c1e…"),
    ("one call", "http", "POST /v1/sandboxes?graph=main",
     ' "wait_ms": 30000}'),
    ("client", "ts", 'import { LbbClient } from "@littlebigbrain/client";',
     "const { result } = await lbb.sandboxes.run({ code, input: [1, 2, 3] });"),
    ("client", "python", "import os",
     "result = lbb.sandboxes.run(code=code, input=[1, 2, 3]).result"),
    ("agent", "text", "lbb_sandboxes_manage", "  input=[1,2,3]"),
)
# No prose of the page begins or ends so.
CODE_LINE = re.compile(
    r'^\s*(const |let |import |from |def |print\(|with .*:$|async |await |return '
    r'|//|#|lbb\.|sb\.|run\.|result\b.*=|code = |out = |csv = |\w+ = '
    r"|(GET|PUT|POST|DELETE|PATCH) |[?&]\w+=|[\w-]+: \S+$|lbb_sandboxes_manage$"
    r'|["{}\])`])|[;({,`]$')
# Lines of prose that look like code all the same.
PROSE = (re.compile(r"^(keep · )?POST /v1/files$"),)


def guide():
    """(heading, language, number there) -> text."""
    found, heading, at = {}, "", 0
    text = read_fixture(GUIDE)
    assert text.count("```") == 2 * len(FENCE.findall(text)), "an odd fence"
    for m in FENCE.finditer(text):
        for h in re.finditer(r"^## (.*)$", text[at:m.start()], re.M):
            heading = h[1]
        at = m.end()
        n = sum(1 for k in found if k[:2] == (heading, m[1]))
        found[heading, m[1], n] = m[2]
    return found


def product(rows=PAGE):
    """(name, language) -> text; AssertionError for code outside of all."""
    lines = read_fixture(PRODUCT).split("\n")
    found, covered, at = {}, set(), 0
    for name, language, first, last in rows:
        start = lines.index(first, at)
        end = lines.index(last, start) + 1
        found[name, language] = "\n".join(lines[start:end]) + "\n"
        covered |= set(range(start, end))
        at = end
    stray = [f"{n + 1}: {x}" for n, x in enumerate(lines)
             if n not in covered and CODE_LINE.search(x) and
             not any(p.search(x) for p in PROSE)]
    assert not stray, f"code that no sample of PAGE covers: {stray}"
    return found


def until(text, last):
    """The beginning of a sample, up to this line and with it."""
    lines = text.split("\n")
    return "\n".join(lines[:lines.index(last) + 1]) + "\n"


def between(text, first, last):
    lines = text.split("\n")
    start = lines.index(first)
    return "\n".join(lines[start:lines.index(last, start) + 1]) + "\n"


def request(text):
    """An HTTP sample: method, target, headers, body.  Lines that begin with a
    space go on with the target."""
    head, _, body = text.partition("\n\n")
    lines = re.sub(r"\n +", "", head).strip().split("\n")
    method, _, target = lines[0].partition(" ")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return method, target, headers, body.rstrip("\n")
