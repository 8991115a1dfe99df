# shellcheck shell=bash
# What builds, checks and tests the TypeScript client on the host: the node of
# the node image, the TypeScript compiler, and node's types. Read by build.sh.

recipe_inputs() {
	inputs_of "$IMAGES"/jstools/{recipe.sh,npm.lock} "$IMAGES"/node/npm.lock
}

recipe_build() {
	local out=$1 name version size hash integrity dir
	fetch_npm "$IMAGES/node/npm.lock"
	fetch_npm "$IMAGES/jstools/npm.lock"
	read -r name version size hash integrity < <(grep -v '^#' "$IMAGES/node/npm.lock")
	mkdir "$out/bin"
	tar -xzf "$(dl "$hash")" --no-same-owner --strip-components=2 -C "$out/bin" package/bin/node
	tar -xzf "$(dl "$hash")" --no-same-owner --strip-components=1 -C "$out" package/LICENSE
	while read -r name version size hash integrity; do
		say "jstools: $name $version"
		dir=$out/node_modules/$name
		mkdir -p "$dir"
		tar -xzf "$(dl "$hash")" --no-same-owner --strip-components=1 -C "$dir"
	done < <(grep -v '^#' "$IMAGES/jstools/npm.lock")
}
