#!/usr/bin/env bash
# test: timeout=900 long-timeout=3600 beside=yes
#
# The device tests under ThreadSanitizer, one TAP line a program: threads write
# registers, close sockets, hold and reset devices while the I/O thread serves,
# over io_uring and over ppoll.  Any report fails.  Built by clang into
# build/san/threads (gcc refuses the fence of queue.c in such a build).
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang >/dev/null || {
	echo "1..0 # SKIP clang is not installed (make deps)"
	exit 77
}
build=build/san/threads
names=(hostile/e_race hostile/d_load hostile/c_fault hostile/c_host
	hostile/d_stream hostile/n_snapshot vmm/io)
targets=("${names[@]/%/_test}")
make --no-print-directory -s -j2 CC=clang "B=$build" \
	SANFLAGS='-fsanitize=thread -fno-omit-frame-pointer' \
	"${targets[@]/#/$build/tests/}" >&2

export TSAN_OPTIONS='exitcode=66 halt_on_error=0'
unset CMOCKA_MESSAGE_OUTPUT
n=0 bad=0
for name in "${names[@]}"; do
	n=$((n + 1))
	status=0
	"$build/tests/${name}_test" >"$TMPDIR/log" 2>&1 || status=$?
	if [ "$status" = 0 ]; then
		echo "ok $n - $name"
	else
		bad=$((bad + 1))
		sed 's/^/# /' "$TMPDIR/log" | head -n 100
		echo "not ok $n - $name # status $status"
	fi
done
echo "1..$n"
[ "$bad" = 0 ]
