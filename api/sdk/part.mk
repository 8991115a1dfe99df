# The clients. Python needs no build; TypeScript becomes JavaScript and types
# in build/sdk, laid out as where an application has its packages.  tsc leaves
# the names of the sources in the types; older ones of its kind want .js there.
JSTOOLS := build/images/jstools
TS_SRCS := $(wildcard api/sdk/typescript/src/*.ts)
TS_PACKAGE := build/sdk/node_modules/@littlebigbrain/client

sdk: $(TS_PACKAGE)/package.json

$(TS_PACKAGE)/package.json: api/sdk/typescript/package.json \
		api/sdk/typescript/tsconfig.json api/sdk/typescript/README.md \
		$(TS_SRCS) | $(JSTOOLS)
	@echo "  TSC     $(@D)"
	@rm -rf build/sdk
	@mkdir -p $(@D)
	$(Q)NODE_DISABLE_COMPILE_CACHE=1 \
		$(JSTOOLS)/bin/node $(JSTOOLS)/node_modules/typescript/bin/tsc \
		-p api/sdk/typescript --typeRoots $(JSTOOLS)/node_modules/@types \
		--outDir $(@D)/dist
	@sed -i 's|\(from "\./[a-z]*\)\.ts"|\1.js"|' $(@D)/dist/*.d.ts
	@cp api/sdk/typescript/README.md $(@D)/
	@cp $< $@

.PHONY: sdk
