#!/bin/bash
# test: timeout=600 beside=yes
# The cache: hits, damage, refusal, two builds at once, an interrupted build.
# Uses libcbor, which builds in two seconds, in a cache of its own.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"

scratch cachetest
work=$REPLY
home=$CACHE
mkdir -p "$home/dl" "$work/cache"
export HUTCH_CACHE=$work/cache HUTCH_IMAGES_OUT=$work/out
passed=0 failed=0

ok() {
	if [ "$1" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not ok: $2"
		sed 's/^/  /' "$work/err"
	fi
}
# t WHAT COMMAND...: the command must succeed
t() {
	local what=$1
	shift
	if "$@"; then ok 0; else ok 1 "$what"; fi
}
build() { "${TREE:-$HERE}/build.sh" libcbor >"$work/path" 2>"$work/err"; }
said() { grep -q -- "$1" "$work/err"; }
silent() { ! grep -q building "$work/err"; }
lib() { readlink -f "$work/out/libcbor/lib/libcbor.a"; }
same() { [ "$(sha256 "$(lib)")" = "$good" ]; }
entries() { find "$HUTCH_CACHE/out" -mindepth 1 -maxdepth 1 | wc -l; }
flip() { # one byte in the middle of FILE, its size unchanged
	local at byte
	at=$(($(stat -c %s "$1") / 2))
	byte=$(od -An -tu1 -j "$at" -N 1 "$1")
	printf '%b' "\\x$(printf %02x $((byte ^ 1)))" |
		dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

# ---- build, then find
t "builds into an empty cache" build
t "prints only the path" test "$(cat "$work/path")" = "$work/out/libcbor"
good=$(sha256 "$(lib)")
inode=$(stat -c %i "$(lib)")
t "finds it again" build
t "without building" silent
t "without reading it" bash -c '! grep -q verifying "$0"' "$work/err"
t "images.json names it" grep -q "\"libcbor\": {.*\"sha256\": \"$good\"" "$work/out/images.json"
t "images.json is JSON" python3 -m json.tool "$work/out/images.json" "$work/json"

# ---- damage
flip "$(lib)"
t "a flipped byte: builds again" build
t "and says so" said "damaged.*libcbor.a has sha256"
t "the result is whole" same
flip "$(lib)"
touch -r "$work/out/libcbor/manifest" "$(lib)"
t "a flipped byte under an old date: builds again" build
t "says so" said damaged
t "whole" same
truncate -s -10 "$(lib)"
t "a truncated file: builds again" build
t "says so" said "damaged.*bytes, not"
t "whole" same
rm "$(lib)"
t "a missing file: builds again" build
t "whole" same
: >"$work/out/libcbor/manifest"
t "an emptied manifest: builds again" build
t "whole" same
inode=$(stat -c %i "$(lib)")
echo x >"$work/out/libcbor/stamp"
t "a damaged stamp" build
t "means reading, not building" silent
t "the same file" test "$(stat -c %i "$(lib)")" = "$inode"
cp -a "$work/cache" "$work/cache2"
HUTCH_CACHE=$work/cache2 t "a copied cache" build
t "is verified, not built" silent

# ---- downloads
dl=$(echo "$work"/cache/dl/*)
flip "$dl"
rm -rf "$work/cache/out"
t "a damaged download" build
t "is dropped and fetched again" said "damaged download dropped"
t "whole" same
cp -r "$HERE" "$work/images"
mkdir -p "$work/mirror/$(dirname "$(tail -1 "$HERE/libcbor/debs.lock" | cut -d' ' -f6)")"
fake=$work/mirror/$(tail -1 "$HERE/libcbor/debs.lock" | cut -d' ' -f6)
cp "$dl" "$fake"
flip "$fake"
rm -rf "$work/cache/out" "$work/cache/dl"
export HUTCH_MIRROR=copy:$work/mirror
t "another file under the same name is refused" bash -c '! "$0/build.sh" libcbor 2>"$1" >"$2"' \
	"$work/images" "$work/err" "$work/path"
t "with its name" said "libcbor 0.* is not what libcbor/debs.lock says"
t "the hash expected" said "expected sha256 $(tail -1 "$HERE/libcbor/debs.lock" | cut -d' ' -f5)"
t "the hash it has" said "got      sha256 $(sha256 "$fake")"
t "what to do" said "images/relock.sh"
t "and nothing is kept" test "$(find "$work/cache/out" "$work/cache/dl" -type f | wc -l)" = 0
rm "$fake"
t "a file that the mirror lacks is refused" bash -c '! "$0/build.sh" libcbor 2>"$1" >"$2"' \
	"$work/images" "$work/err" "$work/path"
t "with what to do" said "images/relock.sh makes a new lock"
unset HUTCH_MIRROR

# ---- keys, two at once, an end in the middle
t "builds" build
echo "# a comment" >>"$work/images/libcbor/recipe.sh"
TREE=$work/images t "a changed recipe" build
t "is another entry" test "$(entries)" = 2
rm -rf "$work/cache/out"
"$HERE/build.sh" libcbor >"$work/p1" 2>"$work/e1" &
one=$!
"$HERE/build.sh" libcbor >"$work/p2" 2>"$work/e2" &
t "two builds at once" wait $!
t "both succeed" wait "$one"
t "one builds" test "$(cat "$work/e1" "$work/e2" | grep -c 'libcbor: building')" = 1
t "one entry" test "$(entries)" = 1
rm -rf "$work/cache/out"
"$HERE/build.sh" libcbor >"$work/p1" 2>"$work/e1" &
one=$!
for _ in $(seq 100); do
	[ -z "$(find "$work/cache/tmp" -name '*.o' 2>/dev/null)" ] || break
	sleep 0.05
done
kill -TERM "$one"
status=0
wait "$one" || status=$?
t "a build that is ended fails" test "$status" = 143
t "leaves no entry" test "$(entries)" = 0
ls -R "$work/cache/tmp" >"$work/err"
t "and no temporary folder" test -z "$(ls "$work/cache/tmp")"
t "the next one builds" build
t "whole" same

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
