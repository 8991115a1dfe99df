#!/bin/bash
# test: timeout=600 beside=yes
# Runs what each image is for, in a chroot of the image's own contents as uid
# 1000. Needs root; takes half a minute. The images must have been built.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"

passed=0 failed=0
check() {
	local what=$1 out
	shift
	if out=$("$@" 2>&1); then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'not ok: %s\n%s\n' "$what" "$out"
	fi
}

# in_image TREE COMMAND...: as user sandbox, with /proc, /dev and /tmp
in_image() {
	local tree=$1
	shift
	unshare --mount --pid --fork bash -c '
		t=$0
		mount -t proc proc "$t/proc" && mount --rbind /dev "$t/dev" &&
		mount -t tmpfs tmpfs "$t/tmp" && mount -t tmpfs tmpfs "$t/run" &&
		exec chroot --userspec=1000:1000 "$t" /usr/bin/env -i HOME=/workspace \
			PATH=/usr/local/bin:/usr/bin "$@"' "$tree" "$@"
}

# extract NAME: TREE = what the erofs image holds
extract() {
	TREE=$work/$1
	fsck.erofs --extract="$TREE" "$(readlink -f "$OUT/$1.erofs")" >/dev/null
	chmod 755 "$TREE"
}

common() {
	check "$1: user" in_image "$TREE" bash -c '[ "$(id -un)" = sandbox ] && [ "$(id -gn)" = sandbox ]'
	check "$1: home" in_image "$TREE" bash -c 'cd && [ "$PWD" = /workspace ] && [ -z "$(ls -A)" ] && touch x && rm x'
	check "$1: folders" in_image "$TREE" bash -c 'for d in proc sys dev tmp run workspace; do [ -d /$d ] || exit 1; done'
	check "$1: sh" in_image "$TREE" sh -c 'printf "b\na\n" | sort | sed s/a/c/ | grep c | awk "{ print \$1 }" | tr c d | grep -x d'
	check "$1: tar" in_image "$TREE" bash -c 'cd /tmp && echo 1 >a && tar czf a.tgz a && tar tzf a.tgz | grep -x a && find . -name "*.tgz" | xargs ls -l'
	check "$1: time zones" in_image "$TREE" bash -c '[ "$(TZ=Asia/Tokyo date -d @0 +%H)" = 09 ]'
	check "$1: no set-uid file" bash -c '[ -z "$(find "$0" -xdev -type f -perm /6000)" ]' "$TREE"
	check "$1: no path of the builder" bash -c '! grep -rlF "$0" "$1/etc" "$1/usr/bin"' "$CACHE" "$TREE"
}

[ "$(id -u)" = 0 ] || die "test-smoke.sh needs root"
scratch smoke
work=$REPLY

extract shell
common shell
check "shell: jq" in_image "$TREE" bash -c 'echo "{\"a\":[1,2]}" | jq -e ".a|add == 3"'

extract node
common node
check "node: version" in_image "$TREE" bash -c 'node --version | grep "^v24\."'
check "node: runs" in_image "$TREE" node -e '
	const a = require("crypto").createHash("sha256").update("x").digest("hex");
	new Promise(r => setTimeout(r, 5)).then(() => { if (a.slice(0, 4) !== "2d71") process.exit(1); });'

extract python
common python
check "python and python3" in_image "$TREE" bash -c 'python -V | grep "^Python 3\.13" && python3 -V'
check "python: standard library" in_image "$TREE" python -c '
import asyncio, bz2, ctypes, curses, dbm.ndbm, decimal, hashlib, lzma, multiprocessing
import readline, sqlite3, ssl, uuid, venv, zlib, zoneinfo, xml.etree.ElementTree
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
assert hashlib.sha256(b"x").hexdigest()[:4] == "2d71"
zoneinfo.ZoneInfo("Europe/Paris")'
check "python: eight libraries" in_image "$TREE" python -c "$(cat "$HERE/python/smoke.py")"
check "python: every .pyc is unchecked-hash" python3 - "$TREE" <<'EOF'
import os, sys
n = 0
for folder, _, names in os.walk(sys.argv[1] + "/usr"):
    for name in names:
        if name.endswith(".pyc"):
            with open(os.path.join(folder, name), "rb") as f:
                n += 1
                assert f.read(8)[4:] == b"\1\0\0\0", (folder, name)
assert n > 1000, n
EOF
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
