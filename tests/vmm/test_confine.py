#!/usr/bin/env python3
"""Every task of a running VMM is confined; what the kernel says about it.

test: timeout=120
"""
import os
import socket
import tempfile

import vmmlib
from vmmlib import VMM, case, guest, note, restore, wait_until

UID = 54321
ALLOWED_FDS = ("/dev/null", "anon_inode:[eventfd]", "anon_inode:kvm-vm",
               "anon_inode:kvm-vcpu", "anon_inode:kvm-vcpu-stats",
               "anon_inode:[io_uring]", "socket:", "pipe:")
FDS_MAX = 24


def status(task):
    with open(os.path.join(task, "status")) as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f
                    if ":\t" in line)


def check(vm, own_files):
    proc = f"/proc/{vm.proc.pid}"
    tasks = [os.path.join(proc, "task", t) for t in
             os.listdir(os.path.join(proc, "task"))]
    kinds = 0
    for task in tasks:
        s = status(task)
        name = s["Name"]
        if "Seccomp" not in s or name.startswith(("iou-", "kvm-nx")):
            continue  # the kernel's own workers: no user code runs there
        kinds += 1
        for cap in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(s[cap], 16) == 0, (name, cap, s[cap])
        assert s["NoNewPrivs"] == "1", name
        assert s["Seccomp"] == "2", (name, s["Seccomp"])
        assert s["Uid"].split() == [str(UID)] * 4, s["Uid"]
        assert s["Gid"].split() == [str(UID)] * 4, s["Gid"]
        assert s["Groups"].split() == [], s["Groups"]
    for ns in ("mnt", "net", "ipc", "uts"):
        assert os.readlink(f"{proc}/ns/{ns}") != \
            os.readlink(f"/proc/self/ns/{ns}"), ns
    assert os.listdir(f"{proc}/root") == [], "the root is empty"
    fds = os.listdir(f"{proc}/fd")
    assert len(fds) <= FDS_MAX, len(fds)
    for fd in fds:
        name = os.readlink(f"{proc}/fd/{fd}")
        ok = name.startswith(ALLOWED_FDS) or name in own_files or \
            name.endswith("/pagemap") or int(fd) <= 2
        assert ok, (fd, name)
        assert name != "/dev/kvm"
    with open(f"{proc}/maps") as f:
        for line in f:
            assert " rwxp " not in line, line
    # not dumpable: the kernel gives its files to root
    assert os.stat(f"{proc}/maps").st_uid == 0
    return kinds


@case("G8 G10 all threads of a VM: no capability, own uid, seccomp, no file")
def _():
    log = tempfile.TemporaryFile()
    trace = tempfile.NamedTemporaryFile()
    disk = tempfile.NamedTemporaryFile()
    disk.truncate(1 << 20)
    stray = os.open(guest("loop"), os.O_RDONLY)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with VMM("--kernel", guest("count"), "--disk", disk.name,
             "--disk", guest("tiny") + ",ro", "--trace", trace.name,
             "--log", f"fd:{log.fileno()}", vcpus=4, uid=UID, channel=theirs,
             pass_fds=[log.fileno(), stray]) as vm:
        vm.wait_started()
        n = check(vm, {disk.name, guest("tiny"), trace.name,
                       os.readlink(f"/proc/self/fd/{log.fileno()}")})
        assert n == 7, n  # main, trace, I/O, four vCPUs
        note(f"{len(os.listdir(f'/proc/{vm.proc.pid}/fd'))} descriptors")
    os.close(stray)
    mine.close()


@case("a restored VM likewise; its files are closed")
def _():
    with tempfile.TemporaryDirectory() as d:
        with VMM("--kernel", guest("count")) as vm:
            vm.wait_started()
            vm.pause()
            vm.snapshot(d)
        with restore(d, uid=UID) as vm:
            vm.wait_started()
            assert check(vm, set()) == 3


@case("--sync-io under seccomp: start, pause, snapshot")
def _():
    with tempfile.TemporaryDirectory() as d:
        with VMM("--kernel", guest("count"), "--sync-io", uid=UID) as vm:
            vm.wait_started()
            vm.pause()
            vm.snapshot(d)
            vm.resume()
            wait_until(lambda: vm.stats()["exits"], 20, "it runs")


@case("without root all but the namespaces and ids")
def _():
    pid = os.fork()
    if pid == 0:
        try:
            kvm = os.open("/dev/kvm", os.O_RDWR)
            st = os.fstat(kvm)
            os.setgroups([])
            os.setgid(st.st_gid or UID)
            os.setuid(UID)
            if not os.access("/dev/kvm", os.R_OK | os.W_OK):
                os._exit(77)
            with VMM("--kernel", guest("tiny")) as vm:
                os._exit(vm.wait_end().why)
        except BaseException as e:  # the child must not go on as a test
            print(f"# {e!r}", flush=True)
            os._exit(9)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 77:
        note("only root may open /dev/kvm here: not run")
    else:
        assert code == 0, code


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root")
        raise SystemExit(77)
    os.chdir("/")
    vmmlib.main()
