#!/usr/bin/env python3
"""`hutch records export`: every record, whole and as it is stored, with where
it came from; a CBOR sequence that api/records.cddl describes, or JSON lines.

test: timeout=900 beside=yes seconds=25
"""
import hashlib
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../guest"))
import cbor
import cddl
from held import SHELL, command, create, destroyed, hold, running
from hutchlib import (BUILD, Daemon, STATE, TOP, case, equal, hutch, main,
                      new_key, note, wait_until)

d = Daemon(STATE + "-records", pool_shell=1, pool_max=1)
OUT = STATE + ".out"
CODE = 'echo said; echo "$HUTCH_T" | wc -c >&2; jq -c . <"$RUN_INPUT" ' \
       '>"$RUN_RESULT"'
INPUT, CONFIG = {"a": [1.0, "\u00e4"]}, {"b": None}
SECRET = "rec-" + os.urandom(12).hex()
# The rule of a record in records.cddl, by how its id begins; a key has its
# environment there.
RULES = {"sbx_": "sandbox", "cmd_": "command", "snp_": "snapshot",
         "env_": "key"}
made = {}


def text(value):
    """JSON as this client sends it."""
    return json.dumps(value)


def sha(data):
    return hashlib.sha256(data.encode()).hexdigest()


def everything():
    """A daemon with a record of each kind: what it has and what it ran."""
    if not d.is_alive():
        d.start()
    if made:
        return made
    c = d.client(environment="env_rec")
    r = c.run(CODE, template=SHELL, input=INPUT, config=CONFIG,
              env={"HUTCH_T": SECRET, "B": ""})
    equal(r.status, "succeeded", r)
    box = hold(c, idle_seconds=3600)
    e = command(c, box, "bash", "-c", "cat >/dev/null; exit 3",
                stdin=SECRET + "\n", env={"Z": SECRET})
    equal((e["status"], e["exit_code"]), ("failed", 3), e)
    snap = c.call("POST", "/v1/sandboxes/snapshots", {"name": "kept"},
                  new_key(), {"sandbox": box})
    equal(snap.status, 201, snap)
    second = running(c, c.call("POST", "/v1/sandboxes", {
        "snapshot": snap.json["id"], "wait_ms": 30000}, new_key()))
    other = d.client(environment="env_two")
    other.graph = "side"
    lost = other.run("exit 1", template=SHELL)
    made.update(c=c, run=r, box=box, exec=e["id"], snap=snap.json["id"],
                second=second, other=lost, other_c=other)
    wait_until(at_rest, 60, "only records that nothing changes by itself")
    return made


def at_rest():
    """A run answers before its sandbox has ended."""
    return all(x["record"]["status"] in ("running", "destroyed", "lost")
               for x in lines() if x["record"]["object"] == "sandbox")


def export(*argv, want=0, state=None, **more):
    p = subprocess.run([f"{BUILD}/hutch", "--state", state or d.state,
                        "records", "export", *argv], capture_output=True,
                       timeout=300, **more)
    equal(p.returncode, want, p.stderr.decode())
    return p


def lines(*argv):
    out = export("--format", "jsonl", *argv).stdout.decode()
    return [json.loads(x) for x in out.splitlines()]


def sequence(data):
    """The items of a CBOR sequence: their bytes and values."""
    at, items = 0, []
    while at < len(data):
        value, end = cbor.decode_at(data, at)
        items.append((data[at:end], value))
        at = end
    return items


def stored(state):
    """All records of a stopped daemon's database, by a connection of ours."""
    db = sqlite3.connect(f"file:{state}/hutch.db?mode=ro", uri=True)
    rows = []
    for table in ("sandbox", "command", "snapshot", "key"):
        rows += [r[0] for r in db.execute(f'SELECT rec FROM "{table}"')]
    db.close()
    return rows


def is_valid(schema, raw):
    try:
        schema.validate_cbor(raw)
    except Exception as error:
        equal(type(error).__name__, "ValidationError", error)
        return False
    return True


def after_of(p):
    return p.stderr.decode().rpartition("--after ")[2].split()[0]


@case("records: JSON lines have the API's record and where it came from")
def provenance():
    m = everything()
    by_id = {x["record"].get("id", x["record"].get("name")): x
             for x in lines()}
    run = by_id[m["run"].command]["record"]
    equal(run["code"], {"bytes": len(CODE), "sha256": sha(CODE)})
    equal(run["input"], {"bytes": len(text(INPUT)), "sha256":
                         sha(text(INPUT))})
    equal(run["config"], {"bytes": len(text(CONFIG)), "sha256":
                          sha(text(CONFIG))})
    equal(run["env_names"], ["HUTCH_T", "B"])
    equal(run["result"], INPUT)
    equal(by_id[m["run"].command]["stdout_bytes"], 5)
    e = by_id[m["exec"]]["record"]
    equal(e["argv"], ["bash", "-c", "cat >/dev/null; exit 3"])
    equal((e["stdin_bytes"], e["env_names"]), (len(SECRET) + 1, ["Z"]))
    box = by_id[m["run"].sandbox]["record"]
    with open(f"{BUILD}/images/images.json", encoding="utf-8") as f:
        images = json.load(f)
    equal((box["template"], box["template_base"], box["snapshot"]),
          (SHELL, SHELL, None))
    equal(box["image_sha256"], images["shell"]["sha256"])
    equal(box["kernel_sha256"], images["kernel"]["sha256"])
    equal(by_id[m["second"]]["record"]["snapshot"], m["snap"])
    snap = by_id[m["snap"]]["record"]
    equal((snap["sandbox"], snap["image_sha256"]),
          (m["box"], images["shell"]["sha256"]))
    # The record is the API's own, to the last member.
    api = m["c"].call("GET", "/v1/sandboxes/get",
                      query={"sandbox": m["run"].sandbox}).json
    equal(box, api)
    api = m["c"].command(m["exec"]).json
    del api["stdout"], api["stderr"]
    equal(e, api)
    keys = [x for x in by_id.values() if x["record"]["object"] == "key"]
    assert {x["environment"] for x in keys} >= {"env_rec", "env_two"}, keys
    seqs = [x["seq"] for x in lines()]
    equal(seqs, sorted(set(seqs)))


@case("records: the CBOR sequence is what is stored, valid by records.cddl")
def stored_bytes():
    m = everything()
    schemas = cddl.schemas(f"{TOP}/api/records.cddl", *RULES.values())
    out = f"{OUT}.cbor"
    old = os.umask(0)
    p = export("--output", out, "--json")
    os.umask(old)
    told = json.loads(p.stdout)
    equal(stat.S_IMODE(os.stat(out).st_mode), 0o600)
    with open(out, "rb") as f:
        data = f.read()
    items = sequence(data)
    equal((told["records"], told["bytes"], told["set_aside"]),
          (len(items), len(data), []))
    for raw, value in items:
        schema = schemas[RULES[value[1][:4]]]
        schema.validate_cbor(raw)
        # What it says counts: a key less, one more, another version, a value
        # of another type.
        for bad in ([{**value, 0: 9}, {**value, 60: 1}] +
                    [{k: v for k, v in value.items() if k != less}
                     for less in value] +
                    [{**value, k: [1]} for k in value]):
            assert not is_valid(schema, cbor.encode(bad)), bad
    kinds = {v[1][:4] for _, v in items}
    equal(kinds, set(RULES))
    # As bytes: the same set as in the database.
    equal(export().stdout, data)
    d.stop()
    # What ran is ended in another way by the stop: those differ, no others.
    kept, gone = set(stored(d.state)), {m["box"], m["second"]}
    equal([v[1] for raw, v in items
           if raw not in kept and v[1] not in gone], [])
    equal(len(items), len(kept))
    d.start()
    made.clear()


@case("records: --after goes on with what is new or has changed, and no more")
def goes_on():
    m = everything()
    p = export("--format", "jsonl")
    first = p.stdout.decode().splitlines()
    at = after_of(p)
    equal(export("--after", at).stdout, b"")
    r = m["c"].run("true", template=SHELL)
    destroyed(m["c"], m["second"])

    def ended():
        new = lines("--after", at)
        by = {x["record"]["id"]: x["record"]["status"] for x in new}
        return by == {r.command: "succeeded", r.sandbox: "destroyed",
                      m["second"]: "destroyed"} and new

    new = wait_until(ended, 60, "the three that are new or have changed")
    # Both files together: the last one of an id is what the API says.
    last = {x["record"].get("id"): x for x in
            map(json.loads, first)} | {x["record"]["id"]: x for x in new}
    equal(last[m["second"]]["record"],
          m["c"].sandbox(m["second"]))
    p = export("--after", str(int(at) + 10 ** 6), want=64)
    assert b"after" in p.stderr, p.stderr


@case("records: filters by environment, graph and time")
def filters():
    m = everything()
    other = lines("--environment", "env_two")
    equal({x["environment"] for x in other}, {"env_two"})
    equal({x["record"]["object"] for x in other},
          {"sandbox", "command", "key"})
    side = lines("--graph", "side")
    assert {m["other"].command, m["other"].sandbox} <= \
        {x["record"]["id"] for x in side}, side
    equal({x["record"]["graph"] for x in side}, {"side"})
    equal(lines("--graph", "none"), [])
    today = time.strftime("%Y-%m-%d", time.gmtime())
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ",
                          time.gmtime(time.time() + 60))
    equal(len(lines("--until", later)), len(lines()))
    equal(lines("--since", later), [])
    assert lines("--since", today, "--graph", "side") or \
        time.strftime("%Y-%m-%d", time.gmtime()) != today
    for argv in (("--since", "yesterday"), ("--since", "2026-02-31"),
                 ("--until", "2026-11-30T25:00:00Z"), ("--format", "xml"),
                 ("--after", "-1"), ("--json",), ("more",)):
        p = export(*argv, want=64)
        assert p.stderr, argv
    p = hutch("records", "import", env={"HUTCH_STATE": d.state})
    equal(p.returncode, 64)


@case("records: a file is whole or not there; an old one stays until then")
def whole_file():
    everything()
    folder = OUT + ".dir"
    os.makedirs(folder, exist_ok=True)
    file = f"{folder}/r.jsonl"
    with open(file, "w", encoding="utf-8") as f:
        f.write("old")
    # The daemon stands still: Ctrl-C ends the export, nothing is left of it.
    d.process.send_signal(signal.SIGSTOP)
    try:
        p = subprocess.Popen([f"{BUILD}/hutch", "--state", d.state, "records",
                              "export", "--output", file],
                             stderr=subprocess.PIPE)
        wait_until(lambda: len(os.listdir(folder)) == 2 or
                   p.poll() is not None, 20, "it has begun")
        p.send_signal(signal.SIGINT)
        time.sleep(.3)
    finally:
        d.process.send_signal(signal.SIGCONT)
    err = p.communicate(timeout=60)[1]
    equal(p.returncode, 130, err)
    equal(os.listdir(folder), ["r.jsonl"])
    with open(file, encoding="utf-8") as f:
        equal(f.read(), "old")
    export("--output", file, "--format", "jsonl")
    equal(os.listdir(folder), ["r.jsonl"])
    with open(file, encoding="utf-8") as f:
        assert len(f.read().splitlines()) >= 8
    export("--output", f"{folder}/none/r", want=66)
    with open("/dev/full", "wb") as full:
        p = subprocess.run([f"{BUILD}/hutch", "--state", d.state, "records",
                            "export"], stdout=full, stderr=subprocess.PIPE,
                           timeout=60)
    assert p.returncode not in (0, 130), p
    assert b"No space left" in p.stderr, p.stderr


@case("records: what cannot be read is named and counted, and the rest comes")
def damaged():
    state = STATE + "-damaged"
    own = Daemon(state, pool_max=0)
    own.start()
    c = own.client()
    boxes = [create(c).json["id"] for _ in range(3)]
    for box in boxes:
        destroyed(c, box)
    own.stop()
    db = sqlite3.connect(f"{state}/hutch.db")
    db.execute("UPDATE sandbox SET rec = x'a10001' WHERE id = ?", (boxes[1],))
    db.commit()
    db.close()
    own.start()
    for _ in range(2):
        p = export("--format", "jsonl", state=state)
        got = [json.loads(x)["record"].get("id")
               for x in p.stdout.decode().splitlines()]
        assert boxes[0] in got and boxes[2] in got and boxes[1] not in got
        assert f"sandbox {boxes[1]} cannot be read".encode() in p.stderr
        assert b"1 set aside" in p.stderr, p.stderr
    p = export("--output", OUT + ".d", "--json", state=state)
    equal([x["id"] for x in json.loads(p.stdout)["set_aside"]], [boxes[1]])
    own.stop()


@case("records: an export of many does not hold up who asks meanwhile")
def beside():
    state = STATE + "-many"
    own = Daemon(state, pool_max=0)
    own.start()
    c = own.client()
    box = create(c).json["id"]
    destroyed(c, box)
    own.stop()
    n = 50000
    db = sqlite3.connect(f"{state}/hutch.db")
    db.executescript(f"""
        PRAGMA synchronous = OFF; BEGIN;
        CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL
            SELECT i + 1 FROM c WHERE i < {n}) SELECT i,
            'sbx_' || printf('%026d', i) AS id FROM c;
        INSERT INTO sandbox(id, environment, graph, status, kind,
            template_name, incarnation, created_ms, ended_ms, expires_ms, rec)
            SELECT n.id, environment, graph, status, kind, template_name,
            incarnation, created_ms, ended_ms, expires_ms, rec
            FROM sandbox, n WHERE sandbox.id = '{box}';
        INSERT INTO event(at_ms, environment, graph, sandbox, command, kind,
            rec) SELECT at_ms, environment, graph, n.id, command, kind, rec
            FROM event, n WHERE sandbox = '{box}';
        COMMIT;""")
    db.close()
    own.start()
    times, is_done = [], threading.Event()

    def ask():
        while not is_done.is_set():
            began = time.monotonic()
            equal(c.call("GET", "/v1/sandboxes/get",
                         query={"sandbox": box}).status, 200)
            times.append(time.monotonic() - began)

    t = threading.Thread(target=ask)
    t.start()
    rss = own.rss_kib()
    began = time.monotonic()
    p = export("--output", OUT + ".many", state=state)
    spent = time.monotonic() - began
    is_done.set()
    t.join()
    items = sequence(open(OUT + ".many", "rb").read())
    assert len(items) >= n + 1, len(items)
    times.sort()
    grown = own.rss_kib() - rss
    note(f"{len(items)} records in {spent:.1f} s; meanwhile {len(times)} "
         f"calls, p50 {times[len(times) // 2] * 1e3:.1f} ms, longest "
         f"{times[-1] * 1e3:.1f} ms; the daemon grew by {grown} KiB")
    assert grown < 32 << 10, grown
    # A call waits for a page at most, not for the export.
    assert times[len(times) // 2] < max(.25, spent / 20), times[-5:]
    own.stop()


main()
