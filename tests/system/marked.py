"""Looks for values that must be nowhere, in every spelling that a program might
have given them."""
import base64
import os

EDGE = 3     # bytes that base64 spells with what stands beside the value
CHUNK = 8 << 20


def spellings(value):
    """name -> bytes of a value of ASCII letters and digits."""
    raw = value.encode()
    found = {"plain": raw, "hex": raw.hex().encode(),
             "HEX": raw.hex().upper().encode(),
             "utf-16": value.encode("utf-16-le"),
             "utf-16-be": value.encode("utf-16-be"),
             "json": "".join(f"\\u{c:04x}" for c in raw).encode(),
             "octal": "".join(f"\\{c:03o}" for c in raw).encode(),
             "percent": "".join(f"%{c:02X}" for c in raw).encode(),
             "backwards": raw[::-1]}
    for shift in range(3):
        # Without the characters that also hold bits of a neighbour.
        text = base64.b64encode(b"\0" * shift + raw)
        body = text[4 if shift else 0:len(text) - 4]
        found[f"base64+{shift}"] = body
    return found


class Values:
    """The values to look for; each is random, so that a hit is no chance."""

    def __init__(self):
        self.names = {}
        self.needles = []

    def new(self, name):
        value = "Zq" + os.urandom(15).hex()
        self.names[name] = value
        self.needles += [(f"{name} as {how}", needle)
                         for how, needle in spellings(value).items()]
        self.longest = max(len(n) for _, n in self.needles)
        return value

    def inside(self, data):
        return [name for name, needle in self.needles if needle in data]

    def in_file(self, path):
        """Names of what the file holds; holes are not read."""
        found, size = set(), os.path.getsize(path)
        with open(path, "rb", 0) as f:
            at = 0
            while at < size:
                try:
                    at = os.lseek(f.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
                tail = b""
                while at < end:
                    data = tail + os.pread(f.fileno(),
                                           min(CHUNK, end - at), at)
                    if len(data) == len(tail):
                        return sorted(found)
                    at += len(data) - len(tail)
                    found.update(self.inside(data))
                    tail = data[-self.longest:]
        return sorted(found)

    def in_folder(self, folder):
        """path below it -> names, of regular files that hold one."""
        found = {}
        for at, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(at, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                try:
                    got = self.in_file(path)
                except FileNotFoundError:
                    continue
                if got:
                    found[os.path.relpath(path, folder)] = got
        return found
