# shellcheck shell=bash
# What examples/workflow needs, as a folder for PYTHONPATH: wheels for the
# Python of Debian 12, which runs the example on the host.  No image: nothing of
# it gets into a sandbox.  Read by build.sh.

# shellcheck disable=SC2034 # fetch.sh reads it
WHEELS_PYTHON=3.11

recipe_inputs() {
	inputs_of "$IMAGES"/workflow/{recipe.sh,wheels.lock}
}

recipe_build() {
	wheels_site "$IMAGES/workflow/wheels.lock" "$1/site"
}
