#!/bin/bash
# test: timeout=600 beside=yes
# Boots the guest kernel with vectest as its first process, by hutch-vmm, and
# wants no register wrong.   images/test-vectest.sh [SECONDS [VCPUS]]
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"

seconds=${1:-20} vcpus=${2:-1}
vmm=$ROOT/build/hutch-vmm
for f in /dev/kvm "$vmm" "$OUT/vmlinux"; do
	[ -e "$f" ] || { echo "skipped: there is no $f"; exit 77; }
done
scratch vectest
mkdir -p "$REPLY"/root/{sbin,dev,proc,sys,tmp}
gcc -O2 -Wall -Wextra -static -I"$ROOT/api" -o "$REPLY/root/sbin/hutch-init" \
	"$HERE/kernel/vectest.c"
mkfs.erofs --quiet "$REPLY/disk" "$REPLY/root"
timeout $((seconds + 300)) "$vmm" --no-confine --kernel "$OUT/vmlinux" --mem 256 \
	--vcpus "$vcpus" --disk "$REPLY/disk,ro" --log fd:1 \
	--cmdline "-- $seconds" >"$REPLY/log" 2>&1 || :
if grep -q 'vectest checks=[1-9][0-9]* wrong=0$' "$REPLY/log"; then
	grep -o 'vectest checks=.*' "$REPLY/log"
	echo '1 passed, 0 failed'
else
	tail -n 40 "$REPLY/log"
	echo '0 passed, 1 failed'
	exit 1
fi
