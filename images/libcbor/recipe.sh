# shellcheck shell=bash
# libcbor as a static archive for the guest's init, which Debian does not
# build, from the upstream source in Debian's archive. Read by build.sh.

recipe_inputs() {
	inputs_of "$IMAGES"/libcbor/{recipe.sh,debs.lock}
	gcc --version | head -1
	ar --version | head -1
}

recipe_build() {
	local out=$1 src=$2/src f name version hash
	need gcc gcc
	fetch_debs "$IMAGES/libcbor/debs.lock"
	read -r name version _ _ hash _ < <(grep -v '^#' "$IMAGES/libcbor/debs.lock")
	mkdir "$src" "$out/lib" "$out/include"
	tar -xzf "$(dl "$hash")" --strip-components=1 -C "$src"
	version=${version%%-*}
	# What cmake would have made of the two generated headers
	sed -e "s/\${CBOR_VERSION_MAJOR}/${version%%.*}/" \
		-e "s/\${CBOR_VERSION_MINOR}/$(cut -d. -f2 <<<"$version")/" \
		-e "s/\${CBOR_VERSION_PATCH}/${version##*.}/" \
		-e 's/\${CBOR_BUFFER_GROWTH}/2/' -e 's/\${CBOR_MAX_STACK_SIZE}/2048/' \
		-e 's/#cmakedefine01 CBOR_PRETTY_PRINTER/#define CBOR_PRETTY_PRINTER 0/' \
		-e 's/\${CBOR_RESTRICT_SPECIFIER}/restrict/' \
		-e 's/#define CBOR_INLINE_SPECIFIER.*/#define CBOR_INLINE_SPECIFIER/' \
		"$src/src/cbor/configuration.h.in" >"$src/src/cbor/configuration.h"
	! grep -n '\${' "$src/src/cbor/configuration.h" >&2 || die "$name $version: unknown setting"
	cat >"$src/src/cbor/cbor_export.h" <<-'EOF'
		#ifndef CBOR_EXPORT_H
		#define CBOR_EXPORT_H
		#define CBOR_EXPORT
		#define CBOR_NO_EXPORT
		#define CBOR_DEPRECATED __attribute__((__deprecated__))
		#endif
	EOF
	(
		cd "$src/src" || exit
		for f in $(find . -name '*.c' | sort); do
			gcc -std=c99 -O2 -g0 -fPIE -DNDEBUG -D_FORTIFY_SOURCE=2 \
				-fstack-protector-strong -ffile-prefix-map="$src"=. -I. \
				-c -o "$(tr / _ <<<"${f#./}" | sed 's/c$/o/')" "$f"
		done
		ar rcsD "$out/lib/libcbor.a" ./*.o
		find . -name '*.h' | sort | copy_headers "$out/include"
	)
	install -m 644 "$src/LICENSE.md" "$out/LICENSE.md"
}

# the headers named on stdin, with their folders
copy_headers() {
	local h
	while read -r h; do
		install -D -m 644 "$h" "$1/$h"
	done
}
