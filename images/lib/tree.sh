# shellcheck shell=bash
# A root file system from locked Debian packages: unpacked, no maintainer
# script run, and what those would have done done here. Then one erofs image.

# What no sandbox reads. Copyright files stay (usr/share/doc/*/copyright).
TREE_DROP=(
	--exclude='./usr/share/doc/*/[!c]*' --exclude='./usr/share/doc/*/changelog*'
	--exclude='./usr/share/man/*' --exclude='./usr/share/info/*'
	--exclude='./usr/share/locale/*' --exclude='./usr/share/lintian/*'
	--exclude='./usr/share/bug/*' --exclude='./usr/share/gdb/*'
	--exclude='./usr/share/perl5/*' --exclude='./usr/share/debconf/*'
	--exclude='./usr/share/bash-completion/*' --exclude='./usr/share/pixmaps/*'
	--exclude='./usr/share/applications/*' --exclude='./usr/share/menu/*'
	--exclude='./usr/share/zoneinfo/right/*' --exclude='./usr/include/*'
	--exclude='./usr/lib/x86_64-linux-gnu/gconv/*'
	--exclude='./etc/cron.daily/*' --exclude='./usr/lib/systemd/*'
)

need_root() {
	[ "$(id -u)" = 0 ] || die "images are built as root" \
		"Unpacking keeps owners, and ldconfig and Python's compiler run in a chroot."
}

# tree_unpack LOCK ROOT: base-files first, it owns the links of merged /usr
tree_unpack() {
	local lock=$1 root=$2 name version arch size hash path
	mkdir -p "$root"
	{ grep '^base-files ' "$lock"; grep -v -e '^#' -e '^base-files ' "$lock"; } |
		while read -r name version arch size hash path; do
			dpkg-deb --fsys-tarfile "$(dl "$hash")" |
				tar -x -p --numeric-owner --keep-directory-symlink \
					"${TREE_DROP[@]}" -C "$root" -f -
		done
}

# tree_finish ROOT: users, a few files of /etc, links, the linker's cache
tree_finish() {
	local r=$1 etc=$1/etc
	cp "$r/usr/share/base-passwd/passwd.master" "$etc/passwd"
	cp "$r/usr/share/base-passwd/group.master" "$etc/group"
	echo 'sandbox:x:1000:1000:sandbox:/workspace:/bin/bash' >>"$etc/passwd"
	echo 'sandbox:x:1000:' >>"$etc/group"
	: >"$etc/fstab"
	echo sandbox >"$etc/hostname"
	printf '127.0.0.1 localhost\n127.0.1.1 sandbox\n' >"$etc/hosts"
	printf 'passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n' \
		>"$etc/nsswitch.conf"
	ln -sf mawk "$r/usr/bin/awk"
	ln -sf which.debianutils "$r/usr/bin/which"
	ln -sf /usr/share/zoneinfo/Etc/UTC "$etc/localtime"
	echo Etc/UTC >"$etc/timezone"
	mkdir -p "$r"/{proc,sys,dev,tmp,run,workspace,mnt,var/tmp}
	chmod 1777 "$r/tmp" "$r/var/tmp"
	chown 1000:1000 "$r/workspace"
	rm -rf "$r/var/lib/dpkg" "$r/var/cache" "$r/var/lib/apt" \
		"$r/usr/share/base-passwd" "$r/usr/sbin/update-passwd"
	find "$r" -xdev -type f -perm /6000 -exec chmod a-s {} +
	in_root "$r" /usr/sbin/ldconfig
	rm -rf "$r/var/cache"
	mkdir -p "$r/var/cache"
}

# in_root ROOT COMMAND...: in a chroot, with an environment of its own
in_root() {
	local root=$1
	shift
	env -i PATH=/usr/sbin:/usr/bin LC_ALL=C.UTF-8 PYTHONHASHSEED=0 \
		SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" chroot "$root" "$@"
}

# tree_links ROOT: a program or library that lacks a library stops the build
tree_links() {
	local r=$1 missing
	missing=$(cd "$r" && find . -xdev -type f \( -perm /111 -o -name '*.so*' \) |
		sed 's/^\.//' | in_root "$r" /bin/bash -c '
			while read -r f; do
				read -r -n 4 magic <"$f" 2>/dev/null || continue
				[ "$magic" = $'"'"'\x7fELF'"'"' ] || continue
				ldd "$f" 2>/dev/null | grep -q "not found" && echo "$f" || :
			done' | sort)
	[ -z "$missing" ] || die "libraries are missing in the image for:" "$missing"
}

# tree_erofs ROOT OUT NAME: uncompressed, one date, an id that follows the name
tree_erofs() {
	local root=$1 out=$2 uuid
	uuid=$(printf 'hutch image %s' "$3" | sha256sum |
		sed 's/^\(.\{8\}\)\(.\{4\}\).\(.\{3\}\).\(.\{3\}\)\(.\{12\}\).*/\1-\2-4\3-8\4-\5/')
	find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	mkfs.erofs --quiet -x-1 -T "$SOURCE_DATE_EPOCH" -U "$uuid" "$out" "$root" >&2
}

# What the bytes of every image depend on beside its own folder
tree_inputs() {
	inputs_of "$IMAGES"/lib/tree.sh
	need mkfs.erofs erofs-utils
	{ mkfs.erofs -V 2>&1 || :; } | sed -n 's/^mkfs.erofs [0-9].*/&/p'
	echo "date $SOURCE_DATE_EPOCH"
}
