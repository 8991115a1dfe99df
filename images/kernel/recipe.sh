# shellcheck shell=bash
# The guest kernel: Debian's source package of Linux 6.12, our patch and our
# configuration; no modules, one uncompressed vmlinux. Read by build.sh.

recipe_inputs() {
	inputs_of "$IMAGES"/kernel/{recipe.sh,debs.lock,config,soft-kvm.patch}
	gcc --version | head -1
	ld --version | head -1
	echo "date $SOURCE_DATE_EPOCH"
}

recipe_build() {
	local out=$1 work=$2 src=$2/src hash
	for hash in gcc make flex bison bc xz; do
		need "$hash" "$hash (xz: xz-utils)"
	done
	fetch_debs "$IMAGES/kernel/debs.lock"
	read -r _ _ _ _ hash _ < <(grep -v '^#' "$IMAGES/kernel/debs.lock")
	mkdir "$src"
	long "kernel: unpacking" "$work/log" kernel_unpack "$(dl "$hash")" "$src"
	patch -s -p1 -d "$src" <"$IMAGES/kernel/soft-kvm.patch" >&2 ||
		die "kernel: the patch does not fit this source"
	kernel_configure "$src" "$work/log"
	long "kernel: compiling" "$work/log" \
		kernel_make "$src" -j"$(nproc)" vmlinux
	strip -s -o "$out/vmlinux" "$src/vmlinux"
	cp "$src/System.map" "$out/System.map"
	cp "$src/.config" "$out/config"
}

kernel_unpack() {
	dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
		xz -dc -T0 | tar -x --strip-components=1 -C "$2" \
		--exclude='linux-source-*/Documentation/*/*' --exclude='linux-source-*/sound/*/*.[ch]' \
		--exclude='linux-source-*/drivers/gpu/drm/*/*.[ch]'
}

# The builder's name, host, date and folder do not get into the kernel. With
# ccache an interrupted build, or one after a small change, is quick.
kernel_make() {
	local src=$1 cc=gcc
	shift
	if command -v ccache >/dev/null; then
		cc="ccache gcc"
		export CCACHE_DIR=$CACHE/ccache CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=1G
	fi
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL nice -n 5 make -s -C "$src" CC="$cc" HOSTCC="$cc" \
		KBUILD_BUILD_TIMESTAMP="$(date -d "@$SOURCE_DATE_EPOCH")" KBUILD_BUILD_USER=hutch \
		KBUILD_BUILD_HOST=hutch KBUILD_BUILD_VERSION=1 "$@"
}

# tinyconfig with ours over it; a line that the kernel changed is an error
kernel_configure() {
	local src=$1 log=$2 line name bad=0
	kernel_make "$src" tinyconfig >"$log" 2>&1 || { tail "$log" >&2; die "kernel: tinyconfig"; }
	(cd "$src" && scripts/kconfig/merge_config.sh -m .config "$IMAGES/kernel/config") >>"$log" 2>&1
	kernel_make "$src" olddefconfig >>"$log" 2>&1
	while read -r line; do
		name=${line%%=*}
		case $line in
		*=n) ! grep -q "^$name=" "$src/.config" ;;
		*) grep -qxF "$line" "$src/.config" ;;
		esac || { say "kernel: not taken: $line"; bad=1; }
	done < <(grep '^CONFIG_' "$IMAGES/kernel/config")
	[ "$bad" = 0 ] || die "kernel: the configuration does not hold with this source"
}
