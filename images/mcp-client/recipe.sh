# shellcheck shell=bash
# The official MCP clients for tests/system: the TypeScript SDK, the inspector's
# command line, and a Node.js to run them on this machine. Read by build.sh. Not
# a part of `all`: nothing but those tests needs it.
#
# package-lock.json has version and integrity of every package, and npm refuses
# what differs; it names no host. No script of a package runs.

recipe_inputs() {
	inputs_of "$IMAGES"/mcp-client/{recipe.sh,package.json,package-lock.json} \
		"$IMAGES"/node/npm.lock
}

recipe_build() {
	local out=$1 dir=$2/npm name version size hash integrity
	fetch_npm "$IMAGES/node/npm.lock"
	read -r name version size hash integrity < <(grep -v '^#' "$IMAGES/node/npm.lock")
	tar -xzf "$(dl "$hash")" --no-same-owner --strip-components=2 -C "$out" package/bin/node
	npm_ready
	mkdir "$dir"
	cp "$IMAGES"/mcp-client/package{,-lock}.json "$dir"
	long "mcp-client: installing $(grep -c '"integrity"' "$dir/package-lock.json") packages" \
		"$2/log" npm_client ci --prefix "$dir" --ignore-scripts --no-audit --no-fund \
		--cache "$2/npm-cache"
	# What a program reads: no maps, no types
	find "$dir/node_modules" \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.cts' \
		-o -name '*.d.mts' -o -name .package-lock.json \) -delete
	tar -cf "$out/node_modules.tar" --sort=name --owner=0 --group=0 --numeric-owner \
		--mtime="@$SOURCE_DATE_EPOCH" -C "$dir" node_modules
}
