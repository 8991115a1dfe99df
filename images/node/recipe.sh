# shellcheck shell=bash
# The node image: Node.js and the usual shell tools. Read by build.sh.

recipe_inputs() {
	inputs_of "$IMAGES"/node/{recipe.sh,debs.lock,npm.lock}
	tree_inputs
}

recipe_build() {
	local out=$1 root=$2/root name version size hash integrity
	need_root
	fetch_debs "$IMAGES/node/debs.lock"
	fetch_npm "$IMAGES/node/npm.lock"
	tree_unpack "$IMAGES/node/debs.lock" "$root"
	read -r name version size hash integrity < <(grep -v '^#' "$IMAGES/node/npm.lock")
	say "node: $name $version"
	# The binary and its licence: no headers, no documentation
	tar -xzf "$(dl "$hash")" --numeric-owner --no-same-owner --strip-components=1 \
		-C "$2" package/bin/node package/LICENSE
	install -m 755 "$2/bin/node" "$root/usr/bin/node"
	install -D -m 644 "$2/LICENSE" "$root/usr/share/doc/node/copyright"
	ln -s node "$root/usr/bin/nodejs"
	tree_finish "$root"
	tree_links "$root"
	tree_erofs "$root" "$out/node.erofs" node
}
