#!/usr/bin/env bash
# What the committed corpus reaches: tests/fuzz/coverage.sh [PATTERN].
# Replays every target that matches, built by clang with coverage into
# build/fuzz/coverage, and prints regions, lines and branches of each file
# that a target is for.  The figures in README.md are from this.
set -euo pipefail
cd "$(dirname "$0")/../.."
pattern=${1:-}
build=build/fuzz/coverage
make() {
	command make --no-print-directory -s CC=clang "B=$build" \
		SANFLAGS='-fprofile-instr-generate -fcoverage-mapping' "$@"
}
make fuzz-targets >&2
objects=() profiles=()
while read -r name; do
	case $name in *"$pattern"*) ;; *) continue ;; esac
	objects+=(-object "$build/fuzz/$name")
	profiles+=("$build/$name.profraw")
	LLVM_PROFILE_FILE="$build/$name.profraw" "$build/fuzz/$name" \
		"tests/fuzz/corpus/$name" >&2
done <"$build/fuzz-targets.list"
llvm-profdata-14 merge -o "$build/all.profdata" "${profiles[@]}"
llvm-cov-14 report "${objects[@]}" "-instr-profile=$build/all.profdata" |
	awk '/\.c / { print $1, "regions", $4, "lines", $10, "branches", $13 }' |
	column -t
