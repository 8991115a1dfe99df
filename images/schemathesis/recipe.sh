# shellcheck shell=bash
# What tests/system/test_40_properties.py sends requests with, as a folder for
# PYTHONPATH: wheels for the Python of Debian 12.  No image: nothing of it gets
# into a sandbox.  Read by build.sh.

# shellcheck disable=SC2034 # fetch.sh reads it
WHEELS_PYTHON=3.11

recipe_inputs() {
	inputs_of "$IMAGES"/schemathesis/{recipe.sh,wheels.lock}
}

recipe_build() {
	wheels_site "$IMAGES/schemathesis/wheels.lock" "$1/site"
}
