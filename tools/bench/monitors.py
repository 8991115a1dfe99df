"""Starting monitors the same way and timing them from the outside.

A monitor is spawned with the write end of a pipe as its guest's log; the time
is from before the spawn to the first byte (or the wanted words) on the pipe.
"""

import os
import select
import subprocess
import time

import tiny

QEMU_MACHINE = [
    "-M", "microvm,acpi=off,x-option-roms=off,isa-serial=on,rtc=off,"
    "pit=off,pic=off", "-enable-kvm", "-cpu", "host,-arch-capabilities",
    "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
]


class Monitor:
    """A running monitor and the read end of its guest's log."""

    def __init__(self, argv_of):
        """argv_of(fd) gives the command line that logs to descriptor fd."""
        self.log, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            argv_of(write_end), pass_fds=[write_end],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write_end)
        self.text = b""

    def until(self, words, seconds):
        """Milliseconds from the start until `words` stood in the log."""
        end = self.start + seconds
        while words not in self.text:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.log], [], [], left)[0]:
                raise TimeoutError(f"no {words!r} within {seconds} s; log "
                                   f"ends {self.text[-200:]!r}")
            data = os.read(self.log, 65536)
            if not data:
                raise EOFError(f"the monitor ended; log {self.text[-400:]!r}")
            self.text += data
        return (time.monotonic() - self.start) * 1e3

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.log)


def hutch_tiny(build, elf):
    return lambda fd: [os.path.join(build, "hutch-vmm"), "--kernel", elf,
                       "--mem", "128", "--vcpus", "1", "--log", f"fd:{fd}"]


def qemu(build, mem, more):
    def argv(fd):
        return ["qemu-system-x86_64", *QEMU_MACHINE, "-m", str(mem),
                "-chardev", f"file,id=d,path=/proc/self/fd/{fd}",
                "-device", "isa-debugcon,iobase=0xe9,chardev=d",
                "-device", "isa-debug-exit,iobase=0x500,iosize=4", *more]
    return argv


def write_tiny(folder):
    path = os.path.join(folder, "tiny.elf")
    with open(path, "wb") as out:
        out.write(tiny.elf())
    return path


def guest_range(pid, ram_bytes):
    """(start, end) of guest RAM in the monitor: the contiguous run of
    mappings that is at least that large."""
    start = end = 0
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            span, rights = line.split()[:2]
            a, b = (int(x, 16) for x in span.split("-"))
            if "rw" not in rights:
                continue
            if a != end:
                start = a
            end = b
            if end - start >= ram_bytes:
                return start, start + ram_bytes
    raise ValueError(f"no {ram_bytes} bytes of guest memory in {pid}")


def faults(pid):
    """Page faults of the process so far, minor and major."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[7]) + int(fields[9])


def own_memory(pid, ram_bytes):
    """KiB private to the monitor, all but guest RAM."""
    low, high = guest_range(pid, ram_bytes)
    total, inside = 0, False
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                a = int(words[0].split("-")[0], 16)
                inside = low <= a < high
            elif words[0] in ("Private_Clean:", "Private_Dirty:"):
                total += 0 if inside else int(words[1])
    return total
