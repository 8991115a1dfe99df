#!/usr/bin/env python3
"""Runs every test and ends with one line: N passed, N failed, N skipped.

Groups, in order.  Those marked * hold light programs and run two at a time;
all others use /dev/kvm and run one after another, except those whose head says
`beside=yes`: they judge nothing by the clock and keep one processor busy, so
they run two at a time, before the others, the longest first.  Those that say
`idle=yes` take no more than the processor time that the ones after those leave
(SCHED_IDLE), one after another.

  source*  tools/check-source, and api/openapi/table.py
  unit*    cmocka programs: UNIT_TESTS of the part.mk files (build/)
  san*     the same under ASan and UBSan (build/san/)
  fuzz*    fuzz targets over the committed corpus, plain and sanitized
  others   executable files named test_* (or test-*, check-*) in images/ and in tests/<group>/

A test is a program.  It prints TAP (each line counts as one case) or nothing
(its exit status counts: 0 passed, 77 skipped, anything else failed; the last
line printed is the reason).  It runs in its own session with a private TMPDIR
and HUTCH_STATE, and must leave no process behind.  A comment in its first 30
lines may say `test: timeout=900 long-timeout=7200 beside=yes seconds=60`:
limits, and about how long it takes (all in seconds).  A line `# count=N` says
how many operations it did (for the ledger).

A run of all ends with one more case: the tests that the table in
api/openapi/README.md names have run, and passed.

  tests/run.py [--long] [--only PATTERN[::CASE]] [--group GROUP] [--list]
               [--lane-off]

--lane-off runs the system tests with daemons that do not use the express lane,
but those whose head says `lane=only`; a long run does both.
"""
import argparse
import concurrent.futures
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(TOP, "build", "test-logs")
LIGHT = ("source", "unit", "san", "fuzz")
ORDER = LIGHT + ("image", "sdk", "vmm", "guest", "system", "stock")
TIMEOUT_S = {"source": 300, "unit": 400, "san": 600, "fuzz": 400}
TIMEOUT_DEFAULT_S = 600
EXPECTED_DEFAULT_S = 30
LONG_FACTOR = 9  # of the limit, for tests that do not say their own
LEFTOVER_GRACE_S = 5
PREPARE = "test_00_prepare.py"
# Tests of seconds whose plain build shows nothing that the sanitized one does
# not: that one alone, but in a long run.
SAN_ONLY = ("c_kill_test", "engine_nomem_test", "maker_test",
            "store_crash_test", "vm_lane_test", "vm_test")
TABLE = os.path.join(TOP, "api", "openapi", "table.py")
PR_SET_CHILD_SUBREAPER = 36

print_lock = threading.Lock()


def say(text=""):
    with print_lock:
        print(text, flush=True)


class Test:
    def __init__(self, group, name, argv):
        self.group, self.name, self.argv = group, name, argv
        self.timeout_s = TIMEOUT_S.get(group, TIMEOUT_DEFAULT_S)
        self.is_beside = group in LIGHT
        self.is_idle = False
        self.expected_s = EXPECTED_DEFAULT_S
        self.env = {}
        self.cases = []  # (outcome, name, reason)
        self.count = 0
        self.seconds = 0.0

    @property
    def id(self):
        return f"{self.group}/{self.name}"

    def n(self, outcome):
        return sum(1 for c in self.cases if c[0] == outcome)


# ---- finding tests -------------------------------------------------------

def read_list(path):
    try:
        with open(os.path.join(TOP, path)) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def test_options(path):
    with open(path, errors="replace") as f:
        head = "".join(f.readline() for _ in range(30))
    m = re.search(r"\btest:((?: [a-z-]+=\S+)+)", head)
    return dict(kv.split("=", 1) for kv in m.group(1).split()) if m else {}


def find_scripts(is_long):
    for folder in ["images"] + sorted(
            "tests/" + d for d in os.listdir(os.path.join(TOP, "tests"))):
        path = os.path.join(TOP, folder)
        if not os.path.isdir(path):
            continue
        group = "image" if folder == "images" else os.path.basename(folder)
        for name in sorted(os.listdir(path)):
            full = os.path.join(path, name)
            if not re.match(r"(test|check)[_-]", name) or not os.access(
                    full, os.X_OK):
                continue
            t = Test(group, name, [full])
            o = test_options(full)
            t.timeout_s = int(o.get("timeout", t.timeout_s))
            t.is_beside |= o.get("beside") == "yes"
            t.is_idle = o.get("idle") == "yes"
            t.is_beside &= not t.is_idle
            t.expected_s = int(o.get("seconds", EXPECTED_DEFAULT_S))
            if is_long:
                t.timeout_s = int(
                    o.get("long-timeout", LONG_FACTOR * t.timeout_s))
            yield t


def find_programs(is_long):
    yield Test("source", "check-source", [f"{TOP}/tools/check-source"])
    yield Test("source", "api-table", [TABLE])
    for group, build in (("unit", "build"), ("san", "build/san")):
        for name in read_list(build + "/unit-tests.list"):
            if (group == "unit" and not is_long and
                    os.path.basename(name) in SAN_ONLY):
                continue
            yield Test(group, name.removeprefix("tests/"),
                       [f"{TOP}/{build}/{name}"])
    for tag, build in (("", "build"), ("-san", "build/san")):
        for name in read_list(build + "/fuzz-targets.list"):
            yield Test("fuzz", name + tag, [f"{TOP}/{build}/fuzz/{name}",
                                            f"{TOP}/tests/fuzz/corpus/{name}"])


def without_lane(t):
    """The same system test once more, or None."""
    if t.group != "system" or t.name == PREPARE or test_options(
            t.argv[0]).get("lane") == "only":
        return None
    off = Test(t.group, t.name + "+lane=off", t.argv)
    off.timeout_s, off.is_beside = t.timeout_s, t.is_beside
    off.expected_s = t.expected_s
    off.env = {"HUTCH_TEST_SETTINGS": "lane=off"}
    return off


def find_tests(is_long, is_lane_off=False):
    if not is_lane_off:
        for t in find_programs(is_long):
            if is_long:
                t.timeout_s *= LONG_FACTOR
            yield t
    scripts = list(find_scripts(is_long))
    for t in scripts:
        if not is_lane_off or t.name == PREPARE:
            yield t
    if is_long or is_lane_off:
        yield from filter(None, map(without_lane, scripts))


def select(tests, args):
    only, _, _ = (args.only or "").partition("::")
    for t in tests:
        if args.group and t.group != args.group:
            continue
        if only in t.id:
            yield t


# ---- running one ---------------------------------------------------------

def parse_tap(t, text, status):
    """TAP lines of a program's output become cases of `t`."""
    planned, said = None, ""
    for line in text.splitlines():
        line = line.strip()
        m = re.match(r"1\.\.(\d+)\s*$", line)
        if m:
            planned = (planned or 0) + int(m.group(1))
            continue
        m = re.match(r"# count=(\d+)$", line)
        if m:
            t.count += int(m.group(1))
        m = re.match(r"(not )?ok \d+\s*-?\s*(.*)$", line)
        if not m:
            said = line or said
            continue
        name, skip, reason = re.match(
            r"(.*?)(?:\s*#\s*(SKIP)\S*\s*(.*))?$", m.group(2), re.I).groups()
        if skip and m.group(1) and not name:
            # cmocka: "not ok N # SKIP name", the reason was printed before
            name, reason = reason, said
        elif m.group(1):
            t.cases.append(("failed", name, ""))
            continue
        if skip:
            t.cases.append(("skipped", name, reason or "no reason given"))
        else:
            t.cases.append(("passed", name, ""))
    if not t.cases:
        lines = [x for x in text.splitlines() if x.strip()]
        last = lines[-1].strip() if lines else "it printed nothing"
        outcome = {0: "passed", 77: "skipped"}.get(status, "failed")
        t.cases.append((outcome, "", "" if outcome == "passed" else last))
    elif planned is not None and planned != len(t.cases):
        t.cases.append(("failed", "plan",
                        f"{planned} cases planned, {len(t.cases)} seen"))
    if status not in (0, 77) and not t.n("failed"):
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        t.cases.append(("failed", "end", how))


def environment(t, tmp, args, case):
    env = dict(os.environ, TMPDIR=tmp, HUTCH_STATE=tmp + "/state",
               HUTCH_TOP=TOP, HUTCH_BUILD=os.environ.get(
                   "HUTCH_BUILD", TOP + "/build"),
               CMOCKA_MESSAGE_OUTPUT="TAP", PYTHONDONTWRITEBYTECODE="1",
               UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
               ASAN_OPTIONS="detect_leaks=1:abort_on_error=0")
    env.update(t.env)
    env.pop("MAKEFLAGS", None)
    env.pop("MAKELEVEL", None)
    if args.long:
        env["HUTCH_LONG"] = "1"
    if case:
        env["HUTCH_CASE"] = case
    return env


def kill_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def path_of_log(t):
    return os.path.join(LOGS, t.id.replace("/", ".") + ".log")


def show_end_of_log(t):
    path = path_of_log(t)
    with open(path, errors="replace") as f:
        for line in f.read().splitlines()[-25:]:
            say("          | " + line)
    say(f"          log: {os.path.relpath(path, TOP)}")


def show_new_lines(log, is_live):
    """Prints what the program added to its log since the last call."""
    for raw in log:
        line = raw.decode(errors="replace").rstrip()
        if is_live and re.match(r"#|ok|not ok", line):
            say("        " + line)


own_pids = set()  # of tests that run: their status is Popen's
idle_sessions = set()
pids_lock = threading.Lock()


def reap_orphans():
    """Those that a test left to us: zombies count as processes of their user,
    and VMMs of all daemons share a few users."""
    with pids_lock, contextlib.suppress(ChildProcessError):
        while True:
            dead = os.waitid(os.P_ALL, 0,
                             os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None or dead.si_pid in own_pids:
                return
            os.waitpid(dead.si_pid, os.WNOHANG)


def run(t, args, is_live):
    """Runs `t` to its end.  Its output goes straight to the log file: with a
    pipe, a process that it left behind would keep us waiting."""
    log_path = path_of_log(t)
    tmp = tempfile.mkdtemp(prefix="hutch-t.")
    case = (args.only or "").partition("::")[2]
    start = time.monotonic()
    is_late, status = False, None
    with open(log_path, "wb") as out, open(log_path, "rb") as log:
        with pids_lock:
            p = subprocess.Popen(t.argv, cwd=TOP, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=subprocess.STDOUT,
                                 env=environment(t, tmp, args, case),
                                 start_new_session=True)
            own_pids.add(p.pid)
            if t.is_idle:
                idle_sessions.add(p.pid)
                os.sched_setscheduler(p.pid, os.SCHED_IDLE,
                                      os.sched_param(0))
        while status is None:
            reap_orphans()
            try:
                status = p.wait(0.2 if is_live else 1)
            except subprocess.TimeoutExpired:
                pass
            show_new_lines(log, is_live)
            if not is_late and time.monotonic() - start > t.timeout_s:
                is_late = True
                kill_group(p.pid)
    own_pids.discard(p.pid)
    kill_group(p.pid)
    idle_sessions.discard(p.pid)
    t.seconds = time.monotonic() - start
    with open(log_path, errors="replace") as f:
        parse_tap(t, f.read(), status)
    if is_late:
        t.cases = [c for c in t.cases if c[1] not in ("", "plan", "end")]
        t.cases.append(("failed", "time-out", f"over {t.timeout_s} s"))
    shutil.rmtree(tmp, ignore_errors=True)
    if os.path.exists(tmp):
        t.cases.append(("failed", "clean-up", f"{tmp} cannot be removed"))
    return t


# ---- processes that a test left behind -----------------------------------

def descendants():
    kids = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                text = f.read()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:].rsplit(")", 1)
        fields = rest.split()
        kids.setdefault(int(fields[1]), []).append(
            (int(pid), name, fields[0], int(fields[3])))
    found, todo = [], [os.getpid()]
    while todo:
        for process in kids.get(todo.pop(), []):
            todo.append(process[0])
            found.append(process)
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_leftovers():
    """Names of processes that outlived their test; they are killed."""
    deadline = time.monotonic() + LEFTOVER_GRACE_S
    while True:
        reap()
        left = [d for d in descendants()
                if d[2] != "Z" and d[3] not in idle_sessions]
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for pid, *_ in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    time.sleep(0.1 if left else 0)
    reap()
    return [f"{name}[{pid}]" for pid, name, *_ in left]


def give_up(sig, frame):
    """The run was interrupted: nothing of it may stay."""
    for pid, *_ in descendants():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    print(f"interrupted by {signal.Signals(sig).name}", flush=True)
    os._exit(128 + sig)


# ---- the whole run -------------------------------------------------------

class Progress:
    def __init__(self, total):
        self.total, self.done = total, 0

    def show(self, t):
        self.done += 1
        failed, skipped = t.n("failed"), t.n("skipped")
        word = "FAILED" if failed else "skipped" if skipped == len(
            t.cases) else "ok"
        say(f"[{self.done:3}/{self.total}] {t.id:40} {word:8}"
            f"{len(t.cases):4} cases {t.seconds:7.1f} s")
        for outcome, name, reason in t.cases:
            if outcome != "passed":
                say(f"          {outcome}: {name} {reason}".rstrip())
        if failed:
            show_end_of_log(t)


def uses_snapshots(t):
    """Those that the first of the system tests makes."""
    return t.group == "system" and t.name != PREPARE


def run_after(first, t, args):
    if first:
        concurrent.futures.wait([first])
    return run(t, args, False)


def run_beside(tests, args, progress):
    """Two at a time; what they leave running is found when all have ended."""
    if not tests:
        return
    first, jobs = None, []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for t in tests:
            jobs.append(pool.submit(run_after, uses_snapshots(t) and first, t,
                                    args))
            if t.name == PREPARE:
                first = jobs[-1]
        for job in concurrent.futures.as_completed(jobs):
            progress.show(job.result())
    for name in end_leftovers():
        tests[0].cases.append(("failed", "leftover", name))
        say(f"          failed: one of these tests left {name} running")


def in_order(tests):
    """The longest first; those without snapshots fill the time until there
    are some."""
    return sorted((t for t in tests if t.is_beside and t.group not in LIGHT),
                  key=lambda t: (t.name != PREPARE, uses_snapshots(t),
                                 -t.expected_s))


def run_all(tests, args):
    progress = Progress(len(tests))
    run_beside([t for t in tests if t.group in LIGHT and not t.is_idle], args,
               progress)
    beside = in_order(tests)
    if beside:
        say("        two at a time: " + ", ".join(t.id for t in beside))
    run_beside(beside, args, progress)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        idle = [pool.submit(run, t, args, False) for t in tests if t.is_idle]
        for t in (t for t in tests if not t.is_beside and not t.is_idle):
            say(f"        {t.id} starts (limit {t.timeout_s} s)")
            run(t, args, True)
            for name in end_leftovers():
                t.cases.append(("failed", "leftover", f"{name} still ran"))
            progress.show(t)
        for job in concurrent.futures.as_completed(idle):
            progress.show(job.result())


def is_whole(args):
    return not (args.only or args.group or args.lane_off)


def check_table(tests, args):
    """Did the tests run that the API's table names?  A test of its own, which
    is given all that ran."""
    cases = os.path.join(LOGS, "cases.tsv")
    with open(cases, "w", encoding="utf-8") as f:
        for t in tests:
            program = os.path.relpath(t.argv[0], TOP)
            for outcome, name, reason in t.cases:
                f.write("\t".join(re.sub(r"[\t\n\r]", " ", x) for x in (
                    outcome, t.id, program, name, reason)) + "\n")
    t = Test("source", "api-table-ran", [TABLE, "--ran", cases])
    Progress(1).show(run(t, args, False))
    return t


def git_commit():
    r = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=TOP,
                       capture_output=True, text=True)
    return r.stdout.strip() or "unknown"


LEDGER_HEAD = ("date", "commit", "test", "count", "outcome")


def write_ledger(tests):
    """Appends to tests/ledger.tsv; tests/README.md shows each test's newest
    line, since a long run may be one of some tests only."""
    date, commit = time.strftime("%Y-%m-%d", time.gmtime()), git_commit()
    path = os.path.join(TOP, "tests", "ledger.tsv")
    rows = [LEDGER_HEAD]
    if os.path.exists(path):
        with open(path) as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
    rows += [(date, commit, t.id, str(t.count or len(t.cases)),
              f"{t.n('passed')} passed {t.n('failed')} failed "
              f"{t.n('skipped')} skipped") for t in tests]
    with open(path, "w") as f:
        f.writelines("\t".join(r) + "\n" for r in rows)
    newest = {r[2]: r for r in rows[1:]}
    table = "".join("| " + " | ".join(r) + " |\n" for r in (
        LEDGER_HEAD, ("---",) * len(LEDGER_HEAD), *newest.values()))
    path = os.path.join(TOP, "tests", "README.md")
    with open(path) as f:
        text = f.read()
    text = re.sub(r"(<!-- ledger -->\n).*(<!-- /ledger -->)",
                  lambda m: m[1] + table + m[2], text, flags=re.S)
    with open(path, "w") as f:
        f.write(text)


def report(tests, seconds):
    total = {o: sum(t.n(o) for t in tests)
             for o in ("passed", "failed", "skipped")}
    say()
    say("slowest: " + ", ".join(
        f"{t.id} {t.seconds:.0f} s" for t in sorted(
            tests, key=lambda t: -t.seconds)[:8]))
    for outcome in ("skipped", "failed"):
        for t in tests:
            if outcome == "failed" and t.n("failed"):
                show_end_of_log(t)  # again: often only the end is kept
            for o, name, reason in t.cases:
                if o == outcome:
                    say(f"{o}: {t.id} {name} {reason}".rstrip())
    say(f"time: {int(seconds) // 60} min {int(seconds) % 60} s; "
        f"logs: build/test-logs")
    say(f"{total['passed']} passed, {total['failed']} failed, "
        f"{total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=(
        argparse.RawDescriptionHelpFormatter))
    ap.add_argument("--long", action="store_true")
    ap.add_argument("--only", metavar="PATTERN[::CASE]")
    ap.add_argument("--group")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--lane-off", action="store_true")
    args = ap.parse_args()

    tests = sorted(select(
        find_tests(args.long, args.lane_off), args), key=lambda t: (
        ORDER.index(t.group) if t.group in ORDER else len(ORDER)))
    if args.list:
        print("\n".join(t.id for t in tests))
        return 0
    # Also because a shell starts what is in the background with some of these
    # ignored, which the tests would inherit.
    for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(sig, give_up)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    start = time.monotonic()
    run_all(tests, args)
    if is_whole(args):
        tests.append(check_table(tests, args))
    if args.long:
        write_ledger(tests)
    return report(tests, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
