#!/bin/bash
# Builds what a sandbox runs on, or finds it in the cache.
#
#   images/build.sh all | kernel | python | node | shell | libcbor | jstools ...
#   images/build.sh mcp-client | workflow | schemathesis    for tests/system, not
#                                                           a part of all
#
# Prints the resulting paths, one a line; progress goes to stderr. Links them
# in build/images (HUTCH_IMAGES_OUT) and lists them in images.json there. The
# cache is $HUTCH_CACHE, $XDG_CACHE_HOME/hutch or ~/.cache/hutch.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"
. "$HERE/lib/cache.sh"
. "$HERE/lib/fetch.sh"
. "$HERE/lib/apt.sh"
. "$HERE/lib/tree.sh"

ALL=(shell python node libcbor jstools kernel)

# What each target gives: the name of its link, and the file that stands for it
link_of() {
	case $1 in
	kernel) echo vmlinux vmlinux ;;
	libcbor) echo libcbor lib/libcbor.a ;;
	jstools) echo jstools bin/node ;;
	mcp-client) echo mcp-client node ;;
	# no images, and not of ALL
	workflow) echo workflow site ;;
	schemathesis) echo schemathesis site ;;
	*) echo "$1.erofs" "$1.erofs" ;;
	esac
}

# One target: build or find, link, list, print
target() {
	local name=$1 inputs entry link file
	. "$IMAGES/$name/recipe.sh"
	inputs=$(recipe_inputs)
	cache_make "$name" "$inputs" recipe_build
	entry=$REPLY
	read -r link file < <(link_of "$name")
	mkdir -p "$OUT"
	[ -L "$OUT/$link" ] || rm -rf "${OUT:?}/$link"
	if [ "$link" = "$name" ]; then
		ln -sfnT "$entry" "$OUT/$link" # a folder is the result
	else
		ln -sfnT "$entry/$file" "$OUT/$link"
	fi
	list
	echo "$OUT/$link"
}

# images.json: everything that is linked now
list() {
	local name link file entry sep='' fd
	exec {fd}>"$OUT/.lock"
	flock "$fd"
	{
		printf '{'
		for name in "${ALL[@]}"; do
			read -r link file < <(link_of "$name")
			[ -e "$OUT/$link" ] || continue
			entry=$(readlink -f "$OUT/$link")
			[ -d "$entry" ] || entry=$(dirname "$entry")
			[ -f "$entry/manifest" ] || continue
			awk -v n="$name" -v f="$file" -v e="$entry" -v s="$sep" '$3 == f {
				k = e; sub(/.*-/, "", k)
				printf "%s\n  \"%s\": {\"path\": \"%s/%s\", \"sha256\": \"%s\", \"bytes\": %s, \"key\": \"%s\"}", s, n, e, f, $1, $2, k
			}' "$entry/manifest"
			sep=,
		done
		printf '\n}\n'
	} >"$OUT/images.json.new"
	mv "$OUT/images.json.new" "$OUT/images.json"
	exec {fd}>&-
}

[ $# -gt 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$1" != all ] || set -- "${ALL[@]}"
for name; do
	[ -f "$HERE/$name/recipe.sh" ] || die "no such image: $name" "There are: all ${ALL[*]}"
done
if [ $# -gt 1 ]; then
	for name; do "$HERE/build.sh" "$name"; done
else
	target "$1"
fi
