#!/usr/bin/env python3
"""Samples of the guest protocol are current and obey api/guest.cddl.

  test_samples.py --write   writes api/samples/guest

The shapes below repeat guest.cddl in python; a key that only one of the two
knows is an error.
"""

import os
import re
import sys

import cbor

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
FOLDER = os.path.join(ROOT, "api", "samples", "guest")

HELLO, READY, BOUND, STARTED, OUTPUT, ENDED, PONG, PROGRESS = range(1, 9)
WELCOME, PREPARE, BIND, RUN, EXEC, KILL, ACK, PING, POWEROFF = range(65, 74)
ARM, ADOPT, HOLD, GO, FILE, FILE_PIECE = range(74, 80)
FILE_ENTRY, FILE_DATA, FILE_MORE, FILE_DONE = range(9, 13)

ENTROPY = bytes(range(64))
MACHINE_ID = "0123456789abcdef0123456789abcdef"
WALL = 1767225600123456789

# name: (comment, type, command, payload); a bytes payload is raw
GOOD = {
    "hello": ("", HELLO, 0, {1: 1, 2: "6.12.118", 3: "1"}),
    "ready": ("", READY, 0, {1: True}),
    "ready-lane": ("a runner with an express lane", READY, 0, {1: True, 3: 1}),
    "ready-error": ("", READY, 0, {1: False, 2: "mount /disk: I/O error"}),
    "bound": ("", BOUND, 0, {1: True}),
    "bound-error": ("", BOUND, 0, {1: False, 2: "hostname: Invalid argument"}),
    "started": ("", STARTED, 7, {}),
    "output": ("stdout, bytes 10..15 of 15", OUTPUT, 7,
               cbor.OUTPUT.pack(10, 15, 1) + b"hello"),
    "output-tail": ("stderr after a gap", OUTPUT, 7,
                    cbor.OUTPUT.pack(1 << 30, (1 << 30) + 3, 2) + b"end"),
    "ended-result": ("run() gave 6", ENDED, 7,
                     {1: 1, 2: 0, 3: 0, 4: b"6", 6: 0, 7: 0, 8: 1200, 9: 800,
                      10: 4096}),
    "ended-exit": ("", ENDED, 7, {1: 1, 2: 3, 3: 0, 6: 5, 7: 12, 8: 1, 9: 2,
                                  10: 262144}),
    "ended-signal": ("", ENDED, 7, {1: 2, 2: 0, 3: 11}),
    "ended-timeout": ("", ENDED, 7, {1: 3}),
    "ended-oom": ("", ENDED, 7, {1: 5, 2: 0, 3: 9}),
    "ended-not-started": ("", ENDED, 7, {
        1: 6, 5: "exec: ENOENT (No such file or directory)"}),
    "ended-too-large": ("", ENDED, 7, {
        1: 7, 2: 1, 5: "the result is 49153 bytes of JSON, the limit is "
                       "49152: write a file in place of it"}),
    "pong": ("", PONG, 0, {}),
    "progress": ("text, no map", PROGRESS, 0, b"python: pandas"),
    "welcome": ("", WELCOME, 0, {1: 1}),
    "prepare": ("", PREPARE, 0, {1: "python", 2: True, 3: True,
                                4: ENTROPY}),
    "prepare-none": ("", PREPARE, 0, {1: "none"}),
    "bind": ("", BIND, 0, {1: ENTROPY, 2: WALL, 3: "sbx-1", 4: MACHINE_ID,
                           5: 1 << 30, 6: 256, 7: 0}),
    "run": ("", RUN, 1, {
        1: b"def run(input, config):\n    return sum(input)",
        2: b"[1, 2, 3]", 3: b'{"unit": "cm"}', 4: 60000, 5: [b"A=b", b"C="],
        6: 49152, 7: 49152}),
    "run-plain": ("code alone", RUN, 2, {1: b"def run(i, c): return 0.1"}),
    "exec": ("", EXEC, 3, {4: 1000, 5: [b"PATH=/bin"], 8: [b"cat", b"-"],
                           9: "/tmp", 10: b"\x00\xff"}),
    "exec-plain": ("", EXEC, 4, {8: [b"true"]}),
    "kill": ("", KILL, 3, {1: 2000}),
    "kill-now": ("", KILL, 3, {}),
    "arm": ("", ARM, 0, {}),
    "adopt": ("what is left of 60 s", ADOPT, 5, {4: 59750, 6: 49152, 7: 0}),
    "adopt-plain": ("", ADOPT, 5, {}),
    "ack": ("", ACK, 3, {}),
    "ping": ("", PING, 0, {}),
    "poweroff": ("", POWEROFF, 0, {}),
    "hold": ("", HOLD, 0, {}),
    "go": ("", GO, 0, {}),
    "file-list": ("behind a name that is no UTF-8", FILE, 1, {
        1: 1, 2: b"", 4: 1000, 8: b"caf\xe9", 9: 60000}),
    "file-read": ("", FILE, 2, {1: 2, 2: b"data.csv", 3: 0, 4: 4 << 20,
                                5: True}),
    "file-write": ("the first piece of two", FILE, 3, {
        1: 3, 2: b"out/a", 6: 8, 7: b"hello"}),
    "file-delete": ("", FILE, 4, {1: 4, 2: b"out"}),
    "file-piece": ("raw bytes", FILE_PIECE, 3, b"you"),
    "file-entry": ("", FILE_ENTRY, 1, {1: b"caf\xe9", 2: 1, 3: 12,
                                       4: 1767225600123, 5: 0o644}),
    "file-entry-itself": ("of a path that is a file", FILE_ENTRY, 1, {
        2: 3, 3: 6, 4: 0, 5: 0o777}),
    "file-data": ("bytes 10..12", FILE_DATA, 2,
                  (10).to_bytes(8, "little") + b"abc"),
    "file-more": ("", FILE_MORE, 3, {}),
    "file-done": ("", FILE_DONE, 3, {1: 1, 3: 8}),
    "file-done-more": ("names follow", FILE_DONE, 1, {1: 1, 3: 0, 4: True}),
    "file-done-stamp": ("of a file that did not change", FILE_DONE, 3,
                        {1: 1, 3: 8, 5: bytes(range(32))}),
    "file-done-full": ("", FILE_DONE, 3, {
        1: 7, 2: "the sandbox's disk is full"}),
}

BIND_MAP = GOOD["bind"][3]
BAD = {
    "bind-no-entropy": ("a required key is missing", BIND, 0,
                        {k: v for k, v in BIND_MAP.items() if k != 1}),
    "bind-kind": ("mem_bytes is text", BIND, 0, {**BIND_MAP, 5: "1"}),
    "bind-unknown": ("key 14", BIND, 0, {**BIND_MAP, 14: 1}),
    "run-text": ("code is text, not bytes", RUN, 1, {1: "x"}),
    "run-list": ("the payload is a list", RUN, 1, [b"x"]),
    "run-after": ("a byte after the map", RUN, 1,
                  cbor.encode({1: b"x"}) + b"\x00"),
    "run-cut": ("the code is cut short", RUN, 1, cbor.encode({1: b"xyz"})[:-1]),
    "run-twice": ("key 1 twice", RUN, 1,
                  b"\xa2" + cbor.encode(1) + cbor.encode(b"a") +
                  cbor.encode(1) + cbor.encode(b"b")),
    "run-indefinite": ("a map without a length", RUN, 1,
                       b"\xbf" + cbor.encode(1) + cbor.encode(b"a") + b"\xff"),
    "run-huge": ("a byte string of 2^62 bytes", RUN, 1,
                 b"\xa1\x01\x5b" + (1 << 62).to_bytes(8, "big")),
    "run-nested": ("env holds a list", RUN, 1, {1: b"x", 5: [[b"a"]]}),
    "run-key": ("a key that is text", RUN, 1, {"1": b"x"}),
    "run-negative": ("a time-out of -1", RUN, 1, {1: b"x", 4: -1}),
    "exec-env-count": ("env says 2^32 items", EXEC, 1,
                       b"\xa2" + cbor.encode(8) + cbor.encode([b"x"]) +
                       cbor.encode(5) + b"\x9a\xff\xff\xff\xff"),
    "kill-float": ("a float", KILL, 1, b"\xa1\x01\xfa\x3f\x80\x00\x00"),
    "arm-full": ("ARM has no keys", ARM, 0, {4: 1}),
    "adopt-code": ("the code came by the lane", ADOPT, 5, {1: b"x"}),
    "ack-full": ("ACK has no keys", ACK, 1, {1: 1}),
    "file-no-path": ("a required key is missing", FILE, 1, {1: 1}),
    "file-text": ("the path is text, not bytes", FILE, 1, {1: 1, 2: "a"}),
}

# type: (name in guest.cddl, {key: is it required})
SHAPES = {
    HELLO: ("hello", {1: 1, 2: 1, 3: 1}),
    ENDED: ("ended", {1: 1, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0,
                      10: 0}),
    WELCOME: ("welcome", {1: 1}),
    PREPARE: ("prepare", {1: 1, 2: 0, 3: 0, 4: 0}),
    BIND: ("bind", {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 0}),
    RUN: ("run", {1: 1, 2: 0, 3: 0}),
    EXEC: ("exec", {8: 1, 9: 0, 10: 0}),
    KILL: ("kill", {1: 0}),
    ARM: ("arm", {}),
    ADOPT: ("adopt", {4: 0, 6: 0, 7: 0}),
    FILE: ("file", {1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0}),
    FILE_ENTRY: ("file_entry", {1: 0, 2: 1, 3: 1, 4: 1, 5: 1}),
    FILE_DONE: ("file_done", {1: 1, 2: 0, 3: 0, 4: 0, 5: 0}),
}
LIMITS = {4: 0, 5: 0, 6: 0, 7: 0}


def frame(kind, cmd, payload):
    body = payload if isinstance(payload, bytes) else cbor.encode(payload)
    return cbor.FRAME.pack(len(body), kind, 0, cmd) + body


def text_of(comment, kind, cmd, payload):
    raw = frame(kind, cmd, payload).hex()
    lines = [raw[i:i + 64] for i in range(0, len(raw), 64)]
    return "".join(f"# {c}\n" for c in ([comment] if comment else [])) + \
        "\n".join(lines) + "\n"


def cddl_keys(text, name):
    """{key: is it required} of a map rule, without its groups."""
    at = re.search(rf"^{name} = [{{(]", text, re.M).end()
    body, depth = "", 1
    for line in text[at:].split("\n"):
        for c in line.split(";")[0]:
            depth += (c in "{(") - (c in "})")
            if not depth:
                break
            body += c
        if not depth:
            break
    return {int(k): not optional for optional, k in
            re.findall(r"(\?\s*)?\b(\d+) =>", body)}


def main():
    files = {}
    for folder, samples in (("good", GOOD), ("bad", BAD)):
        for name, sample in samples.items():
            files[f"{folder}/{name}.hex"] = text_of(*sample)
    if "--write" in sys.argv:
        for name, text in files.items():
            path = os.path.join(FOLDER, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
        return 0
    failures = []
    for name, text in files.items():
        try:
            with open(os.path.join(FOLDER, name)) as f:
                if f.read() != text:
                    failures.append(f"{name} is not current")
        except OSError as e:
            failures.append(str(e))
    for folder in ("good", "bad"):
        for name in os.listdir(os.path.join(FOLDER, folder)):
            if f"{folder}/{name}" not in files:
                failures.append(f"{folder}/{name} is not made here")
    with open(os.path.join(ROOT, "api", "guest.cddl")) as f:
        cddl = f.read()
    for name, keys in list(SHAPES.values()) + [("limits", LIMITS)]:
        found = cddl_keys(cddl, name)
        if found != {k: bool(v) for k, v in keys.items()}:
            failures.append(f"guest.cddl {name}: {found}, here {keys}")
    for name, (_, kind, _, payload) in GOOD.items():
        if kind not in SHAPES:
            continue
        keys = dict(SHAPES[kind][1])
        keys.update(LIMITS if kind in (RUN, EXEC) else {})
        if set(payload) - set(keys) or any(
                v and k not in payload for k, v in keys.items()):
            failures.append(f"good/{name} does not obey its shape")
    for text in failures:
        print("# " + text)
    print(f"{'not ok' if failures else 'ok'} 1 - {len(files)} samples")
    print("1..1")
    return bool(failures)


sys.exit(main())
