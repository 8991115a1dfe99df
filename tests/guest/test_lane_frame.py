#!/usr/bin/env python3
"""The shared page of the express lane stays where it is, over fork, exec and
compaction: a guest whose process 1 is lane_frame.c.

test: timeout=600 beside=yes seconds=50
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import vm

IMAGE = os.path.join(vm.BUILD, "guest", "test", "frame.erofs")
WANT = ("an ordinary page after fork: moved", "frame after fork: stays",
        "frame after compaction: stays", "frame after exec: stays")


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("no access to /dev/kvm")
        return 77
    for name in ("hutch-vmm", "guest/test/frame.erofs", "images/vmlinux",
                 "images/shell.erofs"):
        if not os.path.exists(os.path.join(vm.BUILD, name)):
            print(f"build/{name} is missing: make; make images")
            return 77
    os.environ["HUTCH_INIT"] = IMAGE
    with vm.VM("shell", mem=128, disk=False,
               verbose="--verbose" in sys.argv) as guest:
        try:
            guest.wait(lambda: False, 500)
        except vm.GuestError as e:
            ended = str(e)
        log = guest.log.decode("utf-8", "replace")
    failed = 0
    for i, text in enumerate(WANT, 1):
        ok = text in log
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {i} - {text}")
    if failed:
        print("# " + ended.replace("\n", "\n# "))
    print(f"1..{len(WANT)}")
    return bool(failed)


sys.exit(main())
