#!/bin/bash
# test: timeout=600 idle=yes
# Builds each image twice, in two caches and from two copies of the recipes
# in folders of different names, and compares them byte for byte.
#
#   images/test-reproducible.sh [NAME...]     default: shell node python libcbor jstools
#
# Downloads come from the cache. The kernel takes 6 minutes a build: name it.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"

[ $# -gt 0 ] || set -- shell node python libcbor jstools
scratch repro
work=$REPLY
failed=0

# once FOLDER NAME: builds NAME in FOLDER
once() {
	mkdir -p "$work/$1/cache" "$work/$1/tree"
	[ -e "$work/$1/cache/dl" ] || ln -s "$CACHE/dl" "$work/$1/cache/dl"
	cp -r "$HERE" "$work/$1/tree/"
	HUTCH_CACHE=$work/$1/cache "$work/$1/tree/$(basename "$HERE")/build.sh" "$2" >/dev/null
	rm -rf "$work/$1/cache/tmp"
}

mkdir -p "$CACHE/dl"
for name; do
	once a "$name"
	once another-place-with-a-longer-name "$name"
	if ! (cd "$work/a/cache/out" && sha256sum "$name"-*/manifest) >"$work/sums" ||
		! (cd "$work/another-place-with-a-longer-name/cache/out" &&
			sha256sum --quiet -c "$work/sums"); then
		failed=$((failed + 1))
		diff "$work"/*/cache/out/"$name"-*/manifest || :
		say "NOT reproducible: $name"
	else
		say "reproducible: $name ($(grep -v ' inputs$' "$work"/a/cache/out/"$name"-*/manifest |
			head -1 | cut -c1-16)...)"
	fi
	rm -rf "$work"/*/cache/out
done
printf '%d passed, %d failed\n' $(($# - failed)) "$failed"
[ "$failed" = 0 ]
