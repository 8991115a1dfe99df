#!/usr/bin/env python3
"""A real guest, spoken to without hutchd: the shell template, cold boot.

Quick: what user code is and how commands end. With --long (HUTCH_LONG=1)
all cases of scenario.py, hostile ones included.

test: timeout=1200 long-timeout=7200 beside=yes seconds=130
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenario
import vm

QUICK = ("version", "status_and_streams", "not_started", "timeout_kills",
         "identity", "network", "root_is_not", "init_cannot", "run_shell",
         "files_there", "files_of_4", "files_hostile", "files_full",
         "files_given")


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("no access to /dev/kvm")
        return 77
    for name in ("hutch-vmm", "guest/init.erofs", "images/vmlinux",
                 "images/shell.erofs"):
        if not os.path.exists(os.path.join(vm.BUILD, name)):
            print(f"build/{name} is missing: make; make images")
            return 77
    is_long = os.environ.get("HUTCH_LONG") == "1"
    with vm.VM("shell", mem=256) as guest:
        guest.boot(3600)
        guest.prepare("shell")
        guest.flood_bytes = 100 << 20
        guest.pong_limit = 2.0
        guest.has_preload = False
        guest.bind(300, mem=160 << 20)
        _, failed = scenario.run_all(guest, "shell",
                                     None if is_long else QUICK)
        status = guest.poweroff(300)
        if status != 0:
            print(f"# power off ended with {status}")
            failed.append("power off")
    return bool(failed)


sys.exit(main())
