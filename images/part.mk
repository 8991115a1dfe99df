# Guest kernel and template images: targets for the top Makefile.
#
#   make images          all of them, built or found in the cache
#   make images-kernel   one: kernel python node shell libcbor jstools
#   make mcp-client      the official MCP clients, for tests/system
#   make images-workflow Python packages of examples/workflow
#   make images-schemathesis  those of tests/system/test_40_properties.py
#   make images-test     the cache, byte for byte reproduction, first use,
#                        registers on this machine's KVM (needs hutch-vmm)
#
# Results are links in build/images, beside images.json.

IMAGES_DIR := $(CURDIR)/images
IMAGE_NAMES := kernel python node shell libcbor jstools

images: $(addprefix images-,$(IMAGE_NAMES))

$(addprefix images-,$(IMAGE_NAMES)): images-%:
	+@$(IMAGES_DIR)/build.sh $* >/dev/null

# Where it cannot be had the tests that need it are skipped, by name.
mcp-client:
	-+@$(IMAGES_DIR)/build.sh mcp-client >/dev/null

# No image: what examples/workflow runs with.  Where it cannot be had its test
# is skipped.
images-workflow:
	+@$(IMAGES_DIR)/build.sh workflow >/dev/null

# A file that needs a result names it; what is up to date takes 0.1 s.
build/images/vmlinux: images-kernel
build/images/python.erofs: images-python
build/images/node.erofs: images-node
build/images/jstools: images-jstools
build/images/shell.erofs: images-shell
build/images/libcbor/lib/libcbor.a build/images/libcbor: images-libcbor

# As little: what sends the requests of tests/system/test_40_properties.py.
images-schemathesis:
	+@$(IMAGES_DIR)/build.sh schemathesis >/dev/null

images-test: images
	$(IMAGES_DIR)/test-cache.sh
	$(IMAGES_DIR)/test-reproducible.sh
	$(IMAGES_DIR)/test-smoke.sh
	$(IMAGES_DIR)/test-vectest.sh

build/images/vectest: images/kernel/vectest.c
	@mkdir -p $(@D)
	gcc -O2 -Wall -Wextra -static -Iapi -o $@ $<

.PHONY: images images-test mcp-client images-workflow \
	images-schemathesis \
	$(addprefix images-,$(IMAGE_NAMES))
