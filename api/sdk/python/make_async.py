#!/usr/bin/env python3
"""Makes lbb/_async.py, the awaiting client, from lbb/_sync.py.

  make_async.py            write it
  make_async.py --check    exit status 1 if it is not what would be written

A method that makes a request (it calls self._do, or one that does) becomes a
coroutine; classes get the prefix Async.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = ("Workspace", "Commands", "Sandbox", "Scope", "Templates",
           "Sandboxes", "Files", "GraphScope", "LbbClient")
HEAD = '''"""The awaiting client: AsyncLbbClient, its resources and handles.

Made from _sync.py by make_async.py: edit that one.
"""
'''
# What makes a method a coroutine, and how it reads there.
CALLS = ((r"\bself\._do\(", "await self._do("),
         (r"(?<![\w.])do\(", "await do("),
         (r"\bself\._destroy\(", "await self._destroy("),
         (r"\bself\._sandbox\.delete\(",
          "await asyncio.shield(self._sandbox.delete("),
         (r"\bself\.close\(\)", "await self.aclose()"),
         (r"\bself\._http\.close\(", "await self._http.aclose("))
WORDS = ((r"\b__enter__\b", "__aenter__"), (r"\b__exit__\b", "__aexit__"),
         (r"\bdef close\b", "def aclose"), (r"\bSyncDriver\b", "AsyncDriver"),
         (r"\bhttpx\.Client\b", "httpx.AsyncClient"),
         (r"\bhttpx\.BaseTransport\b", "httpx.AsyncBaseTransport"),
         (r"`with ", "`async with "),
         (r"Safe to share by threads", "Of one event loop"),
         (r"\b(" + "|".join(CLASSES) + r")\b", r"Async\1"))


def method(text):
    changed = text
    for pattern, new in CALLS:
        changed = re.sub(pattern, new, changed)
    is_coroutine = changed != text or re.search(r"def __(enter|exit)__", text)
    changed = changed.replace("self._sandbox.delete()",
                              "self._sandbox.delete())")
    if is_coroutine:
        changed = re.sub(r"^    def ", "    async def ", changed)
    return changed


def convert(text):
    body = text[text.index('"""\n', 3) + 4:]
    body = body.replace("import os\n", "import asyncio\nimport os\n", 1)
    parts = re.split(r"^(?=    (?:@property\n    )?def )", body, flags=re.M)
    body = "".join(map(method, parts))
    for pattern, new in WORDS:
        body = re.sub(pattern, new, body)
    return HEAD + body


def main(argv):
    with open(f"{HERE}/lbb/_sync.py", encoding="utf-8") as f:
        want = convert(f.read())
    path = f"{HERE}/lbb/_async.py"
    if argv == ["--check"]:
        with open(path, encoding="utf-8") as f:
            is_same = f.read() == want
        if not is_same:
            print("lbb/_async.py is not what make_async.py makes: run it")
        return 0 if is_same else 1
    with open(path, "w", encoding="utf-8") as f:
        f.write(want)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
