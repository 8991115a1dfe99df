#!/bin/bash
# check-stock.sh: the same programs on an emulated stock KVM host.
#
# Inside one L1 boot: kind of KVM, a tiny guest, cold boot of the template,
# its snapshot, restored runs, the vector test, and that the kernel's
# paravirtual XSAVE is inert (no exit of that kind).  One TAP line a check.
# Usage: check-stock.sh [TEMPLATE...], default lbb/shell lbb/python.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${HUTCH_BUILD:-$here/../../build}
templates=("$@")
[ ${#templates[@]} -gt 0 ] || templates=(lbb/shell lbb/python)
payload=$(mktemp -d)
trap 'rm -rf "$payload"' EXIT

for need in qemu-system-x86_64 cpio mke2fs busybox; do
	command -v "$need" >/dev/null || {
		echo "1..0 # SKIP $need is not installed (make deps)"
		exit 77
	}
done

add_program() {
	local lib
	cp "$1" "$payload/usr/bin/"
	for lib in $(ldd "$1" | awk '/=>/{print $3} /ld-linux/{print $1}'); do
		mkdir -p "$payload$(dirname "$lib")"
		cp -Lu "$lib" "$payload$lib"
	done
}

mkdir -p "$payload"/usr/bin "$payload"/images "$payload"/guest
for program in hutch-vmm hutchd hutch; do
	add_program "$build/$program"
done
add_program "$(command -v mke2fs)"
mkdir -p "$payload/usr/sbin" "$payload/sbin"
cp "$payload/usr/bin/mke2fs" "$payload/usr/sbin/"
cp "$payload/usr/bin/mke2fs" "$payload/sbin/"
mkdir -p "$payload/etc"
cp /etc/mke2fs.conf "$payload/etc/"
echo 'root:x:0:0::/tmp:/bin/sh' >"$payload/etc/passwd"
cp -L "$build/guest/init.erofs" "$payload/guest/"
cp -L "$build/images/vmlinux" "$payload/images/"
cp -L "$build/guests/tiny.elf" "$payload/guest/"
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
cp "$here/code/"* "$payload/guest/"
printf '%s\n' "${templates[@]}" >"$payload/templates"

"$here/l1.sh" "$payload" "${HUTCH_STOCK_SECONDS:-540}"
