#!/usr/bin/env bash
# test: timeout=1800 long-timeout=40000 idle=yes
#
# Each fuzz target for HUTCH_FUZZ_SECONDS (60, those in `brief` 10), one at a
# time; 3,600 in a long run, two at a time; one TAP line a target.  A target
# fails on a crash, a time-out of one input, or when too few inputs get past the
# first check (fuzz.h).  The seed is fixed, so that a change is judged by the
# same inputs as the one before; a long run takes a new seed and prints it.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=60 seed=1
# Small parsers, and what the others run through as well.
brief=" mcp mmio device_state blk_host kernel_loader snapshot_state lane "
brief_seconds=10 jobs=1
if [ "${HUTCH_LONG:-}" = 1 ]; then
	seconds=3600 seed=$RANDOM brief_seconds=3600 jobs=2
fi
seconds=${HUTCH_FUZZ_SECONDS:-$seconds}
brief_seconds=${HUTCH_FUZZ_SECONDS:-$brief_seconds}

command -v clang >/dev/null || {
	echo "1..0 # SKIP clang is not installed (make deps)"
	exit 77
}
make --no-print-directory -s -j2 FUZZ=1 fuzz-targets >&2
mapfile -t names <build/fuzz/fuzz-targets.list
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p build/fuzz/crashes

one() { # one NAME: status in $work/NAME.status
	local name=$1 more=() status=0 time=$seconds
	case $brief in *" $1 "*) time=$brief_seconds ;; esac
	[ -f "tests/fuzz/$name.dict" ] &&
		more=("-dict=tests/fuzz/$name.dict")
	mkdir -p "$work/$name" "tests/fuzz/corpus/$name"
	"build/fuzz/fuzz/$name" -max_total_time="$time" -seed="$seed" \
		-timeout=30 -rss_limit_mb=2048 -max_len=16384 \
		-artifact_prefix="build/fuzz/crashes/$name-" "${more[@]}" \
		"$work/$name" "tests/fuzz/corpus/$name" \
		>"$work/$name.log" 2>&1 || status=$?
	echo "$status" >"$work/$name.status"
}

for name in "${names[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge $jobs ]; do wait -n; done
	one "$name" &
done
wait
n=0 bad=0 inputs=0
echo "# seed=$seed, $seconds s a target, or $brief_seconds"
for name in "${names[@]}"; do
	n=$((n + 1))
	said=$(grep -aE '^fuzz: ' "$work/$name.log" | tail -n 1 || true)
	if [ "$(cat "$work/$name.status")" = 0 ] && [ -n "$said" ]; then
		echo "ok $n - $name # ${said#fuzz: }"
		inputs=$((inputs + $(echo "$said" | grep -oE '[0-9]+' |
			head -n 1)))
	else
		bad=$((bad + 1))
		tail -n 30 "$work/$name.log" | sed 's/^/# /'
		echo "not ok $n - $name # $said"
	fi
done
echo "# count=$inputs"
echo "1..$n"
[ "$bad" = 0 ] && [ "$n" -gt 0 ]
