"""A VM that starts from a snapshot of another, by the control protocol."""

import os
import shutil
import socket
import subprocess
import tempfile
import time

import vm

PAUSE, SNAPSHOT = 1, 3


def copy_sparse(source, target):
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


def take_snapshot(machine, folder):
    """Pause `machine`, write state, mem and its disk; milliseconds."""
    started = time.monotonic()
    machine.request(PAUSE)
    fds = [os.open(os.path.join(folder, name),
                   os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
           for name in ("state", "mem")]
    machine.request(SNAPSHOT, fds)
    for fd in fds:
        os.close(fd)
    took = (time.monotonic() - started) * 1e3
    copy_sparse(os.path.join(machine.dir, "disk"),
                os.path.join(folder, "disk"))
    return took


def make_cold(path):
    """None of the file is in the page cache: as after the host's start."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class Restored(vm.VM):
    """Like vm.VM, but its guest already waits for BIND.  has_touched: with the
    pages that the template's first run touched, where they are known."""

    def __init__(self, template, snapshot, mem, vcpus=1, has_touched=True):
        self.verbose = False
        self.dir = tempfile.mkdtemp(prefix="hutch-bench-")
        self.log = self.buf = b""
        self.commands = {}
        self.ready = self.hello = {1: True}
        self.bound = self.on_progress = None
        self.progress = []
        self.opens, self.next_channel = [], None
        self.pongs = self.next_cmd = 0
        self.lane_readies = self.lane_answers = 0
        self.lane_part = b""
        self.control, control = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, channel = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM)
        self.log_fd, log_fd = os.pipe()
        disk = os.path.join(self.dir, "disk")
        copy_sparse(os.path.join(snapshot, "disk"), disk)
        build = vm.BUILD
        source = f"state={snapshot}/state,mem={snapshot}/mem"
        if has_touched and os.path.exists(f"{snapshot}/touched"):
            source += f",touched={snapshot}/touched"
        argv = [
            os.path.join(build, "hutch-vmm"),
            "--restore", source,
            "--mem", str(mem), "--vcpus", str(vcpus),
            "--disk", os.path.join(build, "guest/init.erofs") + ",ro",
            "--disk", os.path.join(build, "images", template + ".erofs")
            + ",ro", "--disk", disk + ",lazy",
            "--control", f"fd:{control.fileno()}",
            "--channel", f"fd:{channel.fileno()}", "--log", f"fd:{log_fd}",
        ]
        self.t0 = time.monotonic()
        self.proc = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[control.fileno(), channel.fileno(), log_fd])
        for end in (control, channel):
            end.close()
        os.close(log_fd)
        self.channel.setblocking(False)

    def close(self):
        self.proc.kill()
        super().close()
        shutil.rmtree(self.dir, ignore_errors=True)
