# shellcheck shell=bash
# The shell image: bash and the usual tools, and jq. Read by build.sh.

recipe_inputs() {
	inputs_of "$IMAGES"/shell/{recipe.sh,debs.lock}
	tree_inputs
}

recipe_build() {
	local out=$1 root=$2/root
	need_root
	fetch_debs "$IMAGES/shell/debs.lock"
	tree_unpack "$IMAGES/shell/debs.lock" "$root"
	tree_finish "$root"
	tree_links "$root"
	tree_erofs "$root" "$out/shell.erofs" shell
}
