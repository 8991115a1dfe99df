# shellcheck shell=bash
# What all image scripts share: where things are, messages, long commands.
# Sourced. Nothing here writes to stdout: that is for the resulting paths.

IMAGES=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ROOT=$(dirname "$IMAGES")
CACHE=${HUTCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hutch}
OUT=${HUTCH_IMAGES_OUT:-$ROOT/build/images}
# One date in every image: builds do not depend on when they ran.
SOURCE_DATE_EPOCH=1785542400
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

say() { printf 'images: %s\n' "$*" >&2; }
die() {
	printf 'images: error: %s\n' "$1" >&2
	shift
	[ $# -eq 0 ] || printf '  %s\n' "$@" >&2
	exit 1
}

# need PROGRAM PACKAGE: a clear word before a build stops half way
need() {
	command -v "$1" >/dev/null ||
		die "$1 is not installed" "It comes with $2: make deps (or apt-get install)."
}

elapsed() { printf '%dm%02ds' $((($(date +%s) - $1) / 60)) $((($(date +%s) - $1) % 60)); }

# long WHAT LOG COMMAND...: run, output to LOG; say every 15 s that it still
# runs; on failure show the end of LOG. It gets a process group of its own, so
# that it can be ended as a whole when this script is.
LONG_PID=
long() {
	local what=$1 log=$2 start said
	shift 2
	start=$(date +%s)
	said=$SECONDS
	say "$what ..."
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	set +m
	LONG_PID=$!
	while kill -0 "$LONG_PID" 2>/dev/null; do
		sleep 0.2
		[ $((SECONDS - said)) -ge 15 ] || continue
		said=$SECONDS
		say "$what ... $(elapsed "$start")"
	done
	if ! wait "$LONG_PID"; then
		LONG_PID=
		tail -n 30 "$log" >&2
		die "$what failed after $(elapsed "$start")"
	fi
	LONG_PID=
	say "$what: done in $(elapsed "$start")"
}

sha256() { sha256sum <"$1" | cut -d' ' -f1; }

# scratch: a new empty folder in the cache's file system, removed at exit
SCRATCH=()
scratch() {
	local dir
	mkdir -p "$CACHE/tmp"
	dir=$(mktemp -d "$CACHE/tmp/${1:-work}.XXXXXX")
	chmod 755 "$dir"
	SCRATCH+=("$dir")
	REPLY=$dir
}
scratch_clean() {
	if [ -n "$LONG_PID" ]; then
		kill -TERM -- "-$LONG_PID" 2>/dev/null || :
		wait "$LONG_PID" 2>/dev/null || :
	fi
	[ ${#SCRATCH[@]} -eq 0 ] || rm -rf "${SCRATCH[@]}"
}
trap scratch_clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
