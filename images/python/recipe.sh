# shellcheck shell=bash
# The python image: CPython 3.13 from Debian, eight libraries and what they
# need as wheels, all .pyc files made here. Read by build.sh.

SITE=usr/local/lib/python3.13/dist-packages

recipe_inputs() {
	inputs_of "$IMAGES"/python/{recipe.sh,debs.lock,wheels.lock}
	tree_inputs
}

recipe_build() {
	local out=$1 root=$2/root hash file
	need_root
	need unzip unzip
	fetch_debs "$IMAGES/python/debs.lock"
	fetch_wheels "$IMAGES/python/wheels.lock"
	tree_unpack "$IMAGES/python/debs.lock" "$root"
	mkdir -p "$root/$SITE"
	while read -r _ _ file _ hash; do
		unzip -q -o -d "$root/$SITE" "$(dl "$hash")"
	done < <(grep -v '^#' "$IMAGES/python/wheels.lock")
	rm -rf "$root/$SITE"/*.data	# command line scripts
	chown -R 0:0 "$root/$SITE"
	chmod -R u=rwX,go=rX "$root/$SITE"
	trim "$root"
	ln -sf python3 "$root/usr/bin/python"
	tree_finish "$root"
	tree_links "$root"
	long "python: compiling" "$2/log" compile "$root"
	tree_erofs "$root" "$out/python.erofs" python
}

# Not needed to use a library: its tests, headers, sources in C and Cython,
# type stubs; of pyarrow what speaks to a network, and the second and third
# copies of its libraries, which a wheel cannot have as links
trim() {
	local site=$1/$SITE py=$1/usr/lib/python3.13
	find "$site" -depth -type d \( -name tests -o -name test \) \
		! -path '*/numpy/testing/*' -exec rm -rf {} +
	find "$site" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' \
		-o -name '*.pxi' -o -name '*.h' -o -name '*.hpp' -o -name '*.c' \
		-o -name '*.cc' -o -name '*.a' -o -name '*.lib' \) -delete
	rm -rf "$site"/pyarrow/{include,src} "$site"/numpy/_core/include
	rm -f "$site"/pyarrow/{lib*flight*,libarrow_s3.*,_pyarrow_cpp_tests*} \
		"$site"/pyarrow/{_flight,_s3fs,_gcsfs,_azurefs,_hdfs}*.so \
		"$site"/pyarrow/libarrow_python*.so{,.*.*}
	# Debian's hook for its crash reporter, looked for at every start
	rm -f "$py/sitecustomize.py" "$1/etc/python3.13/sitecustomize.py"
	# Debian's own byte-compiler, and the debugger's entry points
	rm -f "$1"/usr/bin/{py3compile,py3clean,py3versions,pdb3,pdb3.13,pydoc3,pydoc3.13,pygettext3,pygettext3.13}
	find "$1/usr" -depth -type d -name __pycache__ -exec rm -rf {} +
}

# unchecked-hash: at import neither the source's date (which the image fixes,
# so it never fits) nor its bytes are looked at. -B and -f: else the compiler's
# own imports leave date-checked files behind that it then skips.
compile() {
	in_root "$1" /usr/bin/python3 -B -m compileall -f -q -j 1 \
		--invalidation-mode unchecked-hash /usr/lib/python3.13 "/$SITE"
	! find "$1/usr" -name '*.py' -printf '%h/__pycache__/%f\n' |
		sed 's/\.py$/.cpython-313.pyc/' | while read -r f; do
			[ -f "$f" ] || echo "$f"
		done | grep -v -e /lib2to3/ -e /usr/share/ -e /usr/bin/
}
