# shellcheck shell=bash
# The cache of finished artefacts, outside the checkout.
#
#   $CACHE/out/NAME-KEY/       one artefact: its files, and
#       manifest               sha256, size and path of each file
#       inputs                 what KEY is the hash of, to read
#       stamp                  inode, size and times when last verified
#   $CACHE/dl/SHA256           downloads (fetch.sh)
#   $CACHE/lock/NAME-KEY       held while that one is built or verified
#   $CACHE/tmp/                builds under way
#
# An entry appears by one rename and is never changed after. It is used when
# its stamp still fits; else when its hashes do; else it is built again.

# inputs_of FILE...: one line a file, its hash and its name in the checkout;
# the file that the caller is sourced from counts by being named here too
inputs_of() {
	local f
	for f; do
		printf '%s %s\n' "$(sha256 "$f")" "${f#"$IMAGES"/}"
	done
}

# The lines of STAMP: what changes when somebody writes to a file of ENTRY
cache_stat() {
	(cd "$1" && find . -type f ! -name stamp -printf '%p %i %s %T@ %C@\n' | sort)
}

# cache_good ENTRY: 0 if every byte is as it was built
cache_good() {
	local entry=$1 bad
	[ -f "$entry/manifest" ] || return 1
	if [ -f "$entry/stamp" ] && cache_stat "$entry" | cmp -s - "$entry/stamp"; then
		return 0
	fi
	say "verifying $(basename "$entry")"
	if ! bad=$(cache_check "$entry"); then
		say "damaged: $entry/$bad"
		return 1
	fi
	cache_stat "$entry" >"$entry/stamp"
}

# cache_check ENTRY: names the first file that is not what the manifest says
cache_check() {
	local hash size path got n=0
	while read -r hash size path; do
		got=$(stat -c %s "$1/$path" 2>/dev/null) || { echo "$path is missing"; return 1; }
		[ "$got" = "$size" ] || { echo "$path has $got bytes, not $size"; return 1; }
		got=$(sha256 "$1/$path")
		[ "$got" = "$hash" ] || { echo "$path has sha256 $got, not $hash"; return 1; }
		n=$((n + 1))
	done <"$1/manifest"
	[ "$n" -gt 0 ] || { echo "manifest is empty"; return 1; }
}

# cache_seal DIR: writes manifest and stamp over all files in DIR
cache_seal() {
	(
		cd "$1" || exit
		find . -type f ! -name manifest ! -name stamp -printf '%P\n' | sort |
			while read -r f; do
				printf '%s %s %s\n' "$(sha256 "$f")" "$(stat -c %s "$f")" "$f"
			done >manifest
		sync -f manifest
	)
}

# cache_make NAME INPUTS BUILDER: REPLY = the entry's folder. INPUTS is the
# text whose hash is the key; BUILDER DIR fills DIR.
cache_make() {
	local name=$1 inputs=$2 builder=$3 key entry start fd dir
	key=$(printf '%s\n' "$inputs" | sha256sum | cut -c1-32)
	entry=$CACHE/out/$name-$key
	mkdir -p "$CACHE/out" "$CACHE/lock"
	exec {fd}>"$CACHE/lock/$name-$key"
	if ! flock -n "$fd"; then
		say "$name: another build holds the lock, waiting"
		flock "$fd"
	fi
	if [ -d "$entry" ] && ! cache_good "$entry"; then
		say "$name: the cached copy is damaged, building it again"
		rm -rf "$entry"
	fi
	if [ ! -d "$entry" ]; then
		start=$(date +%s)
		say "$name: building (key $key)"
		scratch "$name"
		dir=$REPLY
		mkdir "$dir/entry"
		"$builder" "$dir/entry" "$dir" {fd}>&-
		printf '%s\n' "$inputs" >"$dir/entry/inputs"
		cache_seal "$dir/entry"
		mv -T "$dir/entry" "$entry"
		cache_stat "$entry" >"$entry/stamp"
		rm -rf "$dir"
		say "$name: built in $(elapsed "$start")"
	fi
	exec {fd}>&-
	REPLY=$entry
}
