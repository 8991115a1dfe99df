#!/bin/bash
# check-stock.sh: the same programs on an emulated stock KVM host.
#
# Inside one L1 boot: kind of KVM, a tiny guest, the vector test on one and two
# vCPUs, cold boot of each template, its snapshot, restored runs, and that the
# kernel's paravirtual XSAVE is inert (no exit of that kind in any VM); and a
# sandbox under load that is stopped and resumed again and again.  One TAP line a
# check.
# Usage: check-stock.sh [TEMPLATE...], default lbb/shell lbb/python lbb/node.
# test: timeout=2000 beside=yes seconds=240
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$here/../..
build=${HUTCH_BUILD:-$top/build}
templates=("$@")
[ ${#templates[@]} -gt 0 ] || templates=(lbb/shell lbb/python lbb/node)
payload=$(mktemp -d)
trap 'rm -rf "$payload"' EXIT

for need in qemu-system-x86_64 cpio mke2fs e2fsck debugfs mkfs.erofs busybox; do
	command -v "$need" >/dev/null || {
		echo "1..0 # SKIP $need is not installed (make deps)"
		exit 77
	}
done

need_mib=3000 # L1 keeps its snapshots in memory: QEMU was seen with 2,000
have_mib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))
[ "$have_mib" -ge "$need_mib" ] || {
	echo "1..0 # SKIP $have_mib MiB of memory are free, $need_mib are needed"
	exit 77
}

add_program() {
	local lib
	cp "$1" "$payload/usr/bin/"
	for lib in $(ldd "$1" | awk '/=>/{print $3} /ld-linux/{print $1}'); do
		mkdir -p "$payload$(dirname "$lib")"
		cp -Lu "$lib" "$payload$lib"
	done
}

echo "# making the disk of the emulated host"
mkdir -p "$payload"/usr/{bin,lib} "$payload"/images "$payload"/guest
for program in hutch-vmm hutchd hutch; do
	add_program "$build/$program"
done
for program in mke2fs e2fsck debugfs cp; do
	add_program "$(command -v "$program")"
done
mkdir -p "$payload/usr/sbin" "$payload/sbin"
cp "$payload/usr/bin/mke2fs" "$payload/usr/sbin/"
cp "$payload/usr/bin/mke2fs" "$payload/sbin/"
mkdir -p "$payload/etc"
cp /etc/mke2fs.conf "$payload/etc/"
echo 'root:x:0:0::/tmp:/bin/sh' >"$payload/etc/passwd"
cp -L "$build/guest/init.erofs" "$payload/guest/"
cp -L "$build/images/vmlinux" "$payload/images/"
cp -L "$build/guests/tiny.elf" "$payload/guest/"
vectest=$payload/vectest # its folder; becomes the root of that guest
mkdir -p "$vectest"/{sbin,dev,proc,sys,tmp}
gcc -O2 -Wall -Wextra -static -I"$top/api" -o "$vectest/sbin/hutch-init" \
	"$top/images/kernel/vectest.c"
mkfs.erofs --quiet "$payload/guest/vectest.erofs" "$vectest"
rm -rf "$vectest"
gcc -O2 -Wall -Wextra -D_GNU_SOURCE -fPIC -shared -o "$payload/usr/lib/l1-xcr0.so" \
	"$here/l1-xcr0.c" -ldl
cp "$here/l1-vmm" "$payload/usr/bin/"
for t in "${templates[@]}"; do
	cp -L "$build/images/${t#lbb/}.erofs" "$payload/images/"
done
python3 - "$build/images/images.json" "$payload/images" <<'PY'
import json, os, sys
have = json.load(open(sys.argv[1]))
out = {}
for name, entry in have.items():
    base = os.path.basename(entry["path"])
    if os.path.exists(os.path.join(sys.argv[2], base)):
        out[name] = dict(entry, path="/images/" + base)
json.dump(out, open(os.path.join(sys.argv[2], "images.json"), "w"))
PY
cp "$here/payload.sh" "$payload/payload.sh"
cp "$here/code/"* "$here/../system/fixtures/load.sh" "$payload/guest/"
printf '%s\n' "${templates[@]}" >"$payload/templates"
vectest_seconds=10
[ "${HUTCH_LONG-}" != 1 ] || vectest_seconds=60
echo "$vectest_seconds" >"$payload/vectest-seconds"
load_rounds=4
[ "${HUTCH_LONG-}" != 1 ] || load_rounds=20
echo "$load_rounds" >"$payload/load-rounds"

echo "# booting it"
"$here/l1.sh" "$payload" "${HUTCH_STOCK_SECONDS:-1800}"
