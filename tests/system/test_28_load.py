#!/usr/bin/env python3
"""Snapshots of a guest that works: eight streams, writes to the disk with
checksums, a process that computes; paused, saved, restored and resumed again and
again.  Nothing may be lost, doubled, reordered or stuck, and the file system is
clean at every one of these points (e2fsck on a copy, its journal replayed).

The first case has the VMM alone, so that commands run and their output is on
its way when the snapshot is taken: init's own connection goes on over a new
channel, in the middle of a frame.  The second is a sandbox that is stopped and
resumed over HTTP; its commands end then, and what they left behind goes on.

test: timeout=1200 beside=yes seconds=150
"""
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time

from held import (SHELL, command, destroyed, ended, hold, resumed, sh, start,
                  stopped)
from hutchlib import (IS_LONG, TOP, case, client, equal, main, note,
                      read_fixture, snapshot_folder, wait_until)

sys.path.insert(0, os.path.join(TOP, "tests/guest"))
import vm  # noqa: E402

ROUNDS = 20 if IS_LONG else 8
ROUNDS_HTTP = 20 if IS_LONG else 1
STREAMS = 8
LINES = 2           # of each stream between two snapshots, at least
PAD = 500
WAIT_S = 120
HEAD_BYTES = 4 << 20
CHANNEL_BYTES = 4608    # the kernel's least: the VMM has to hold bytes back
BLOCK = 4096
LOAD = read_fixture("load.sh")


# ---- what has to be so ----------------------------------------------------

def stream_lines(name, data):
    """How many whole lines; they are numbered from 0, each once."""
    lines = data.split(b".\n")[:-1]
    words = [line.split() for line in lines]
    last = words[-1] if words else []
    if last[1:2] == [b"end"]:
        equal(last, [b"%d" % name, b"end", b"%d" % (len(words) - 1)])
        words.pop()
    equal(words, [[b"%d" % name, b"%d" % i] for i in range(len(words))],
          f"stream {name}")
    return len(words)


def block(i):
    x, words = i + 1, []
    for _ in range(16):
        x = x * 16807 % 2147483647
        words.append(x)
    text = "%010d %010d %-4073s\n" % (
        i, sum(words) % 2147483647, "".join("%010d" % w for w in words) * 25)
    return text.encode()


def blocks_whole(data, n=None):
    """All there, each once; returns how many."""
    equal(len(data) % BLOCK, 0, "bytes of the last block")
    have = len(data) // BLOCK
    for i in range(have):
        if data[i * BLOCK:(i + 1) * BLOCK] != block(i):
            raise AssertionError(
                f"block {i}: {data[i * BLOCK:(i + 1) * BLOCK][:60]!r}")
    if n is not None:
        equal(have, n, "blocks")
    return have


def run(*argv, ok=(0,)):
    p = subprocess.run(argv, capture_output=True, text=True,
                       errors="replace")
    assert p.returncode in ok, (argv, p.returncode, p.stdout, p.stderr)
    return p.stdout


def clean_copy(disk, name):
    """A copy whose journal is replayed, and whose file system is clean."""
    copy = os.path.join(os.environ["TMPDIR"], name)
    run("cp", "--sparse=always", disk, copy)
    run("e2fsck", "-E", "journal_only", "-y", copy, ok=(0, 1))
    run("e2fsck", "-fn", copy)
    return copy


def file_of(copy, path):
    """A file of the file system in `copy`, past the guest."""
    out = copy + ".file"
    run("debugfs", "-R", f"dump {path} {out}", copy)
    with open(out, "rb") as f:
        data = f.read()
    os.unlink(out)
    return data


# ---- the VMM alone --------------------------------------------------------

def load_start(guest, *argv):
    return guest.start_exec(["bash", "-c", LOAD, "load", *argv],
                            timeout_ms=0, head=HEAD_BYTES, tail=0)


def counts(guest, streams):
    return [stream_lines(k, guest.commands[n].stdout)
            for k, n in enumerate(streams)]


def grown(guest, streams, since):
    """Every stream goes on."""
    guest.wait(lambda: all(now >= was + LINES for now, was in
                           zip(counts(guest, streams), since)), WAIT_S)
    return counts(guest, streams)


def one_round(guest, folder, streams):
    """Paused in the middle of it all, and gone on elsewhere."""
    time.sleep(0.2)     # nobody reads: output waits at every place
    guest.save(folder)
    copy = clean_copy(folder + "/disk", "fsck")
    guest.go_on(folder)
    # Both ways, and again without a new process.
    guest.ping(WAIT_S)
    shutil.rmtree(folder)   # what is mapped stays
    guest.request(vm.PAUSE)
    time.sleep(0.05)
    guest.request(vm.RESUME)
    os.unlink(copy)
    was = counts(guest, streams)
    now = grown(guest, streams, was)
    guest.wait(lambda: guest.stats()["blk_writes"], WAIT_S)
    return sum(now) - sum(was)


@case(f"{STREAMS} streams, a disk that is written and a busy process: "
      f"{ROUNDS} times paused, saved, restored in another process, resumed")
def in_flight():
    template = snapshot_folder(SHELL)
    with vm.VM("shell", mem=1024, restore=template,
               channel_bytes=CHANNEL_BYTES) as guest:
        guest.bind(WAIT_S)
        streams = [load_start(guest, "stream", str(k), str(PAD))
                   for k in range(STREAMS)]
        blocks = load_start(guest, "blocks", "/workspace/blocks")
        grown(guest, streams, [0] * STREAMS)
        busy = load_start(guest, "busy", "/workspace/busy")
        guest.wait(lambda: guest.commands[busy].started, WAIT_S)
        began, held = time.monotonic(), 0
        for i in range(ROUNDS):
            folder = os.path.join(os.environ["TMPDIR"], f"round-{i}")
            n = one_round(guest, folder, streams)
            held += bool(guest.buf)
            note(f"round {i}: {time.monotonic() - began:.1f} s, {n} lines")
        note(f"{ROUNDS} rounds in {time.monotonic() - began:.1f} s; lines: "
             f"{counts(guest, streams)}")
        equal([n for n in (*streams, blocks, busy) if guest.commands[n].end],
              [], "none has ended")
        guest.exec(["touch", "/tmp/end"], WAIT_S)
        lines = []
        for k, n in enumerate(streams):
            c = guest.finish(n, WAIT_S)
            equal((c.end["how"], c.end["code"], c.stderr),
                  ("exited", 0, b""), c.end)
            equal(c.end["stdout_bytes"], len(c.stdout))
            equal(c.out[1].gaps(), [])
            lines.append(stream_lines(k, c.stdout))
            assert b" end " in c.stdout[-2 * PAD:], c.stdout[-2 * PAD:]
        n_blocks = int(guest.finish(blocks, WAIT_S).stdout)
        equal(guest.finish(busy, WAIT_S).end["code"], 0)
        c = guest.exec(["cat", "/workspace/blocks"], WAIT_S,
                       head=64 << 20, tail=0)
        blocks_whole(c.stdout, n_blocks)
        c = guest.exec(["cat", "/workspace/busy"], WAIT_S)
        assert int(c.stdout) > 0, c.stdout
        guest.exec(["sync"], WAIT_S)
        folder = os.path.join(os.environ["TMPDIR"], "last")
        guest.save(folder)
        copy = clean_copy(folder + "/disk", "fsck")
        blocks_whole(file_of(copy, "/workspace/blocks"), n_blocks)
        note(f"{n_blocks} blocks; lines {lines}; busy {c.stdout.decode()}")
        print(f"# count={ROUNDS}")


# ---- over HTTP ------------------------------------------------------------

def follow(c, cmd, into):
    """All of a command's output, by offset, until its end."""
    data, offset = b"", 0
    while True:
        j = c.log_slice(cmd, "stdout", offset).json
        data += j["data"].encode()
        if j["eof"]:
            break
        if offset == j["next_offset"]:
            time.sleep(0.1)
        offset = j["next_offset"]
    into[cmd] = data


def eight_commands(c, box):
    """Running ones, each followed by a client; the stop ends them."""
    ids = [start(c, box, "bash", "-c", LOAD, "load", "stream", str(k),
                 timeout_ms=3600000).json["id"] for k in range(STREAMS)]
    wait_until(lambda: all(c.command(i).json["stdout"]["tail"] for i in ids),
               WAIT_S, "all of them say something")
    got = {}
    readers = [threading.Thread(target=follow, args=(c, i, got)) for i in ids]
    for r in readers:
        r.start()
    stopped(c, box)
    for r in readers:
        r.join(WAIT_S)
    for k, i in enumerate(ids):
        equal(ended(c, i)["status"], "cancelled")
        assert stream_lines(k, got[i]) > 0
        equal(c.logs(i), got[i], "the record's output")
    return sum(len(x) for x in got.values())


def sizes(c, box):
    """Of the streams' files, and the blocks."""
    j = sh(c, box, "wc -c s? blocks")
    return [int(line.split()[0]) for line in
            j["stdout"]["tail"].splitlines()[:STREAMS + 1]]


def all_files(c, box, copy):
    """Through the guest, and from the disk itself."""
    names = [f"s{k}" for k in range(STREAMS)] + ["blocks"]
    found = {}
    for name in names:
        found[name] = file_of(copy, f"/workspace/{name}")
        j = command(c, box, "sha256sum", name)
        equal(j["stdout"]["tail"].split()[0],
              hashlib.sha256(found[name]).hexdigest(), name)
    return found


@case(f"a sandbox with the same load is stopped and resumed {ROUNDS_HTTP} "
      "times; eight clients follow eight commands by offset")
def over_http():
    c = client()
    box = hold(c)
    disk = f"{c.daemon.state}/stopped/{box}/disk"
    equal(command(c, box, "bash", "-c", LOAD, "load", "all")["status"],
          "succeeded")
    was = sizes(c, box)
    n_bytes = eight_commands(c, box)
    note(f"{n_bytes} bytes of {STREAMS} commands by offset")
    for i in range(ROUNDS_HTTP):
        if i:
            stopped(c, box)
        os.unlink(clean_copy(disk, "fsck"))
        resumed(c, box)

        def went_on():
            now = sizes(c, box)
            return all(a > b for a, b in zip(now, was)) and now
        was = wait_until(went_on, WAIT_S, f"all go on, from {was}")
    equal(sh(c, box, "touch /tmp/end")["status"], "succeeded")
    wait_until(lambda: sh(c, box, "tail -qn 1 s? && cat busy n_blocks")
               ["stdout"]["tail"].count(" end ") == STREAMS, WAIT_S,
               "all have ended")
    # On a busy soft host the guest is long at it.
    j = sh(c, box, "cat n_blocks; sync", seconds=600, timeout_ms=600000)
    equal(j["status"], "succeeded", j)
    stopped(c, box)
    copy = clean_copy(disk, "fsck")
    resumed(c, box)
    found = all_files(c, box, copy)
    n_blocks = blocks_whole(found.pop("blocks"),
                            int(j["stdout"]["tail"].split()[0]))
    lines = [stream_lines(int(name[1:]), data)
             for name, data in found.items()]
    note(f"{n_blocks} blocks; lines {lines}")
    destroyed(c, box)
    print(f"# count={ROUNDS_HTTP}")


main()
