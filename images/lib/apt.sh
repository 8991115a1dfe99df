# shellcheck shell=bash
# Debian's mirrors as this machine knows them, and a private apt for trixie
# that leaves the system's own lists, cache and status alone.

# Every suite this machine's apt reads: lines "URI SUITE", of both formats
apt_sources() {
	local f
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -f "$f" ] || continue
		sed -n 's/^ *deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\)  *\([^ ]*\) .*/\2 \3/p' "$f"
	done
	for f in /etc/apt/sources.list.d/*.sources; do
		[ -f "$f" ] || continue
		awk '
			function flush(  i, j) {
				if (types ~ /(^| )deb( |$)/ && enabled !~ /no/)
					for (i = 1; i <= nu; i++) for (j = 1; j <= ns; j++) print u[i], s[j]
				nu = ns = 0; types = enabled = ""
			}
			/^#/ { next }
			/^[ \t]*$/ { flush(); next }
			tolower($1) == "types:" { $1 = ""; types = $0 }
			tolower($1) == "enabled:" { enabled = tolower($2) }
			tolower($1) == "uris:" { nu = 0; for (i = 2; i <= NF; i++) u[++nu] = $i }
			tolower($1) == "suites:" { ns = 0; for (i = 2; i <= NF; i++) s[++ns] = $i }
			END { flush() }' "$f"
	done
}

# mirrors: sets MIRROR and MIRROR_SECURITY
mirrors() {
	local codename
	[ -z "${MIRROR:-}" ] || return 0
	MIRROR=${HUTCH_MIRROR:-} MIRROR_SECURITY=${HUTCH_MIRROR_SECURITY:-${HUTCH_MIRROR:-}}
	[ -z "$MIRROR" ] || return 0
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
	MIRROR=$(apt_sources | awk -v s="$codename" '$2 == s { print $1; exit }')
	MIRROR_SECURITY=$(apt_sources | awk -v s="$codename-security" '$2 == s { print $1; exit }')
	MIRROR=${MIRROR%/} MIRROR_SECURITY=${MIRROR_SECURITY%/}
	[ -n "$MIRROR" ] && [ -n "$MIRROR_SECURITY" ] ||
		die "no Debian mirror in apt's sources" \
			"Looked for the suites $codename and $codename-security in /etc/apt." \
			"HUTCH_MIRROR and HUTCH_MIRROR_SECURITY name them instead."
}

# mirror_of POOL-PATH: the security archive has its pool in pool/updates
mirror_of() {
	mirrors
	case $1 in
	pool/updates/*) echo "$MIRROR_SECURITY" ;;
	*) echo "$MIRROR" ;;
	esac
}

# apt_private: a private apt for trixie in a scratch folder, as APT_CONFIG.
# The keyring of Debian 12 verifies trixie; an empty status makes apt resolve
# whole dependency trees.
apt_private() {
	local key=/usr/share/keyrings/debian-archive-keyring.gpg dir t
	mirrors
	scratch apt
	dir=$REPLY
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	: >"$dir/state/status"
	for t in deb deb-src; do
		printf "$t [signed-by=%s] %s %s main\n" \
			"$key" "$MIRROR" trixie \
			"$key" "$MIRROR" trixie-updates \
			"$key" "$MIRROR_SECURITY" trixie-security
	done >"$dir/sources"
	cat >"$dir/apt.conf" <<-EOF
		Dir::Etc::sourcelist "$dir/sources";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::State "$dir/state";
		Dir::State::status "$dir/state/status";
		Dir::Cache "$dir/cache";
		APT::Sandbox::User "root";
	EOF
	export APT_CONFIG=$dir/apt.conf
	long "reading trixie's package lists" "$dir/log" apt-get update
}
