#!/bin/bash
# l1.sh PAYLOAD_DIR [SECONDS]: run PAYLOAD_DIR/payload.sh on a stock KVM host
# that QEMU's TCG emulates (AMD SVM with nested paging).
#
# For correctness, never for time.  PAYLOAD_DIR becomes the root of an ext4
# image; dynamic programs need their libraries in it (add_program below is
# sourced by check-stock.sh).  The L1 kernel is Debian's own cloud kernel of
# the machine's release, downloaded once into the cache and unpacked, never
# installed.  Prints the console; the status is the payload's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HUTCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hutch}/stock-host
payload=$1
limit=${2:-300}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The kernel's package into $work; 0 only if it is there.
download() {
	local package
	package=$(apt-cache depends linux-image-cloud-amd64 |
		awk '/Depends:/{print $2; exit}')
	[ -n "$package" ] &&
		(cd "$work" && apt-get download -qq "$package" >download.log 2>&1)
}

fetch_kernel() {
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	(cd "$cache" && sha256sum --status -c ok 2>/dev/null) && return
	echo "# fetching the kernel of the emulated host, once"
	download || {
		apt-get -qq update >"$work/update.log" 2>&1 || :
		download || {
			tail -n 3 "$work"/*.log >&2
			echo "stock: apt has no linux-image-cloud-amd64" >&2
			exit 1
		}
	}
	rm -rf "$cache/x" "$cache/ok"
	dpkg-deb -x "$work"/linux-image-*.deb "$cache/x"
	python3 "$here/extract-vmlinux.py" "$cache"/x/boot/vmlinuz-* \
		"$cache/vmlinux"
	(cd "$cache" && sha256sum vmlinux >"$work/ok" &&
		find x -name '*.ko*' -exec sha256sum {} + >>"$work/ok")
	mv "$work/ok" "$cache/ok"
}

module() { # file of a module, with its dependencies first
	local file name dep
	file=$(find "$cache/x/lib/modules" -name "$1.ko*" | head -n 1)
	[ -n "$file" ] || return 0 # built in
	name=$(basename "$file")
	grep -qx "$name" "$work/l1/modules.list" && return 0
	for dep in $(tr '\0' '\n' <"$file" | sed -n 's/^depends=//p' |
		tr , ' '); do
		module "$dep"
	done
	cp "$file" "$work/l1/lib/m/$name"
	echo "$name" >>"$work/l1/modules.list"
}

make_l1() {
	mkdir -p "$work"/l1/{bin,lib/m,proc,sys,dev}
	cp /bin/busybox "$work/l1/bin/busybox"
	cp "$here/l1-init" "$work/l1/init"
	chmod 755 "$work/l1/init"
	: >"$work/l1/modules.list"
	local m
	for m in kvm-amd virtio_pci virtio_blk; do module "$m"; done
	(cd "$work/l1" && find . | cpio -o -H newc -R 0:0 --quiet) \
		>"$work/l1.cpio"
}

make_payload() {
	mkdir -p "$payload"/{proc,sys,dev,tmp,bin,etc,sys/fs/cgroup}
	cp /bin/busybox "$payload/bin/busybox"
	ln -sf busybox "$payload/bin/sh"
	local kib
	kib=$(du -sk "$payload" | cut -f1)
	truncate -s $((kib + kib / 8 + 32768))K "$work/payload.ext4"
	mke2fs -q -t ext4 -d "$payload" -O ^has_journal -m 0 \
		"$work/payload.ext4"
}

fetch_kernel
exec 9>&- # the lock
make_l1
make_payload
timeout $((limit + 60)) nice -n 5 qemu-system-x86_64 -nodefaults \
	-no-user-config -display none -serial stdio -no-reboot -machine q35 \
	-accel tcg,thread=multi,tb-size=512 -cpu EPYC -smp 1 \
	-m "${HUTCH_L1_MEM:-7G}" -kernel "$cache/vmlinux" -initrd "$work/l1.cpio" \
	-append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr \
random.trust_cpu=on tsc=reliable no_timer_check l1limit=$limit" \
	-drive "if=none,id=d,file=$work/payload.ext4,format=raw,readonly=on" \
	-device virtio-blk-pci,drive=d </dev/null 2>&1 |
	stdbuf -oL tr -d '\r' | grep -av --line-buffered "TCG doesn't" |
	tee "$work/console"
status=$(sed -n 's/^l1: payload status //p' "$work/console" | tail -n 1)
exit "${status:-125}"
