#!/bin/sh
# Runs in L1 (busybox sh).  Prints TAP; status 0 when every line is ok.
#
# Each hutch-vmm, also hutchd's, writes a trace: at the end the exits of all
# VMs are looked through for a request of the kernel's paravirtual XSAVE.
# shellcheck disable=SC3040 # busybox has it
set -o pipefail
PVX_PORT=1296 # HUTCH_PORT_PVX of api/guest_abi.h, as the trace writes it
VECTEST_SECONDS=$(cat /vectest-seconds)
LOAD_ROUNDS=$(cat /load-rounds)
traces=/tmp/trace
n=0
bad=0
mkdir -p $traces

up() { cut -d' ' -f1 /proc/uptime; }
say() { sed 's/^/# /' | cut -c1-160; }
CHECK_SECONDS=400 # 45 alone, 180 on a busy host

# What hangs, and where: the VMMs' threads, and what they did last.
show_hang() {
	dmesg | grep -i 'tsc\|clock' | tail -n 12 | say
	cat /sys/devices/system/clocksource/clocksource0/current_clocksource | say
	ps -o pid,stat,args | grep -v '\[' | say
	for pid in $(pidof hutch-vmm); do
		for task in /proc/"$pid"/task/*; do
			echo "vmm $pid $(cat "$task/comm") wchan=$(cat \
				"$task/wchan") $(cat "$task/syscall")"
			head -n 8 "$task/stack"
		done 2>&1 | say
	done
	newest=$(ls -t $traces | head -n 1)
	tail -n 12 "$traces/$newest" | say
	tail -n 12 /tmp/hutchd.log 2>/dev/null | say
}

watch() { # watch NAME: ends what takes too long, by its VMM
	sleep $CHECK_SECONDS
	echo "# $1: over $CHECK_SECONDS s"
	show_hang
	killall -q -9 hutch-vmm hutch
}

check() { # check NAME COMMAND...: ok when the command succeeds
	name=$1
	shift
	n=$((n + 1))
	t0=$(up)
	watch "$name" &
	dog=$!
	"$@"
	status=$?
	kill $dog 2>/dev/null
	if [ $status = 0 ]; then
		echo "ok $n - $name # $t0 to $(up) s of L1 time"
	else
		bad=$((bad + 1))
		echo "not ok $n - $name # status $status, $t0 to $(up) s"
	fi
}
lines() { # lines WORD FILE...: how many hold WORD
	word=$1
	shift
	cat "$@" | grep -c "$word"
}

is_stock() { hutch-vmm --probe 2>&1 | tee /tmp/probe | say; grep -qi stock /tmp/probe; }

tiny_guest() {
	hutch-vmm --kernel /guest/tiny.elf --mem 128 --vcpus 1 2>&1 | say
}

vectest() { # vectest VCPUS: registers of three processes, 0 wrong
	l1-vmm --kernel /images/vmlinux --mem 256 --vcpus "$1" \
		--disk /guest/vectest.erofs,ro --log fd:1 \
		--cmdline "-- $VECTEST_SECONDS" >/tmp/vectest.log 2>&1
	grep -o 'vectest.*' /tmp/vectest.log | say
	sed -n 's/.*vectest checks=\([0-9]*\).*/# count=\1/p' /tmp/vectest.log
	grep -q 'vectest: AVX' /tmp/vectest.log &&
		grep -q 'vectest checks=[1-9][0-9]* wrong=0$' /tmp/vectest.log &&
		return 0
	tail -n 30 /tmp/vectest.log | say
	return 1
}

# That the count below would see a request: with the flag the kernel makes
# one, which no stock host answers, and panics.
flag_on_is_seen() {
	LD_PRELOAD=/usr/lib/l1-xcr0.so hutch-vmm --kernel /images/vmlinux --mem 256 --vcpus 1 \
		--disk /guest/vectest.erofs,ro --log fd:1 --trace /tmp/flag.trace \
		--cmdline "soft_kvm -- 1" >/tmp/flag.log 2>&1
	seen=$(lines "\"port\":$PVX_PORT," /tmp/flag.trace)
	grep -o 'Kernel panic.*' /tmp/flag.log | head -n 1 | say
	echo "# with soft_kvm: $seen requests"
	[ "$seen" -gt 0 ]
}

prepare() { hutch prepare "$1" 2>&1 | say; }

one_run() { # one_run TEMPLATE: 1+2+3, and the kernel's command line
	case $1 in
	lbb/shell) file=/guest/shell.sh ;;
	lbb/python) file=/guest/python.py ;;
	lbb/node) file=/guest/node.js ;;
	esac
	out=$(hutch run "$file" --template "$1" --input '[1,2,3]' \
		--timeout 120s 2>/tmp/run.err)
	status=$?
	echo "$1 status=$status out=$out" | say
	[ $status = 0 ] && echo "$out" | tail -n 1 | grep -qx 6 &&
		echo "$out" | grep -q ' root=/dev/vda\|^root=/dev/vda' &&
		! echo "$out" | grep -q soft_kvm && return 0
	say </tmp/run.err
	return 1
}

# Runs one after another in one sandbox: the third's runner is a fork.
held_runs() {
	id=$(hutch sandbox create --template lbb/python) || return 1
	for i in 1 2 3; do
		t1=$(up)
		hutch sandbox run --input '[1,2,3]' --timeout 120 "$id" \
			/guest/held.py >/tmp/held.out 2>&1
		[ $? = 0 ] && tail -n 1 /tmp/held.out | grep -qx 6 || return 1
		echo "held run $i: $(head -n 1 /tmp/held.out), $t1 to $(up) s" |
			say
	done
	hutch sandbox rm "$id" | say
	head -n 1 /tmp/held.out | grep -qx 'fork of a zygote'
}

# One that runs is copied while a command runs; another begins from it when the
# first is gone: its file and its process are there, and it is somebody else.
snapshot() {
	id=$(hutch sandbox create --template lbb/shell) || return 1
	hutch sandbox exec "$id" bash -c 'echo kept > f; mkfifo /tmp/q
		(exec 3<>/tmp/q; echo $BASHPID > /tmp/p
		while :; do read -t 1 -u 3; done) >/dev/null 2>&1 &' || return 1
	hutch sandbox exec "$id" bash -c \
		'exec 3<>/tmp/q; echo begun; read -t 3 -u 3; echo ended' \
		>/tmp/busy.out 2>&1 &
	busy=$!
	until grep -q begun /tmp/busy.out || ! kill -0 $busy; do usleep 10000; done
	snap=$(hutch snapshot create "$id") || return 1
	wait $busy
	grep -q ended /tmp/busy.out || return 1
	hutch sandbox rm "$id" | say
	kid=$(hutch sandbox create --snapshot "$snap") || return 1
	out=$(hutch sandbox exec "$kid" bash -c 'cat f
		cat /proc/sys/kernel/hostname; kill -0 $(cat /tmp/p) && echo there')
	echo "$out" | say
	hutch sandbox rm "$kid" | say
	hutch snapshot rm "$snap" | say
	[ "$(echo "$out" | tr '\n' ' ')" = "kept $(echo "$kid" | tr _ -) there " ]
}

in_box() { hutch sandbox exec "$box" "$@"; }

# Written by the host, read by code and by the host: the same bytes, past the
# page cache and through it (the last block).
files() {
	box=$(hutch sandbox create --template lbb/shell) || return 1
	head -c 1000003 /dev/urandom >/tmp/r
	hutch sandbox put "$box" /tmp/r a/b/r | say
	sum=$(in_box sha256sum a/b/r)
	hutch sandbox get "$box" a/b/r /tmp/r2
	list=$(hutch sandbox files "$box" a/b)
	hutch sandbox del "$box" a/b/r | say
	hutch sandbox rm "$box" | say
	echo "$list" | say
	[ "${sum%% *}" = "$(sha256sum /tmp/r | cut -d ' ' -f 1)" ] &&
		cmp /tmp/r /tmp/r2 && echo "$list" | grep -q ' 1000003 .* a/b/r$'
}

# Lines of a stream: numbered from 0, each once, to the end.
lines_right() {
	awk '{ if ($2 "" != NR - 1 "" && !($2 == "end" && $3 "" == NR - 1 ""))
			bad = 1
		last = $2 }
		END { exit bad || last != "end" }' "$1"
}

# blocks_right N FILE: as load.sh makes them.  Words, not numbers, are compared:
# busybox takes leading zeros for octal.
blocks_right() {
	awk -v n="$1" '{ x = NR; sum = 0; words = all = ""
			for (k = 0; k < 16; k++) {
				x = x * 16807 % 2147483647
				sum = (sum + x) % 2147483647
				words = words sprintf("%010d", x)
			}
			for (k = 0; k < 25; k++)
				all = all words
			if ($1 " " $2 " " $3 != sprintf("%010d %010d ", NR - 1,
					sum) all)
				bad = 1 }
		END { exit bad || NR != n }' "$2"
}

# Of the stopped sandbox: its journal replayed, nothing to mend.
disk_clean() {
	/usr/bin/cp --sparse=always "/tmp/state/stopped/$box/disk" /tmp/copy &&
		/usr/bin/e2fsck -E journal_only -y /tmp/copy >/tmp/fsck 2>&1
	[ $? -le 1 ] && /usr/bin/e2fsck -fn /tmp/copy >>/tmp/fsck 2>&1 && return 0
	say </tmp/fsck
	return 1
}

goes_on() { # its last stream and its blocks grow
	now=$(in_box bash -c 'wc -c <s7; wc -c <blocks' | tr '\n' ' ')
	echo "$was$now" | awk '{ exit !($3 > $1 && $4 > $2) }'
}

# A sandbox that writes, says and computes, stopped and resumed again and again.
load() {
	box=$(hutch sandbox create --template lbb/shell) &&
		in_box bash -c "$(cat /guest/load.sh)" load all || return 1
	was="0 0 "
	i=0
	while [ $i -lt "$LOAD_ROUNDS" ]; do
		t=$(up)
		hutch sandbox stop "$box" && disk_clean &&
			hutch sandbox resume "$box"
		[ $? = 0 ] || return 1
		k=0
		while ! goes_on; do
			k=$((k + 1))
			[ $k -lt 20 ] || return 1
		done
		echo "# round $i: $t to $(up) s of L1 time: $was-> $now"
		was=$now
		i=$((i + 1))
	done
	in_box touch /tmp/end
	k=0
	while ! in_box bash -c '[ -s n_blocks ] && [ -s busy ]'; do
		k=$((k + 1))
		[ $k -lt 20 ] || return 1
		usleep 500000
	done
	blocks=$(in_box cat n_blocks)
	in_box sync && hutch sandbox stop "$box" && disk_clean
	[ $? = 0 ] || return 1
	for k in 0 1 2 3 4 5 6 7; do
		/usr/bin/debugfs -R "dump /workspace/s$k /tmp/s" /tmp/copy 2>/tmp/load.log
		lines_right /tmp/s || {
			echo "stream $k: $(tail -n 1 /tmp/s)" | say
			return 1
		}
	done
	/usr/bin/debugfs -R "dump /workspace/blocks /tmp/blocks" /tmp/copy 2>/tmp/load.log
	blocks_right "$blocks" /tmp/blocks
	status=$?
	echo "# $blocks blocks, $(wc -c </tmp/blocks) bytes;" \
		"the last stream has $(wc -l </tmp/s) lines"
	hutch sandbox rm "$box"
	rm -f /tmp/copy /tmp/blocks /tmp/s
	return $status
}

load_said() { load 2>&1 | sed 's/^[^#]/# &/'; }

# Of every VM so far: cold boots, snapshots, restored runs, the vector test.
patch_is_inert() {
	vms=$(ls $traces | wc -l)
	exits=$(lines '"ev":"exit"\|"ev":"io"\|"ev":"mmio"' $traces/*)
	ports=$(lines '"ev":"io"' $traces/*)
	pvx=$(lines "\"port\":$PVX_PORT," $traces/*)
	dropped=$(cat $traces/* | sed -n 's/.*"dropped","n":\([0-9]*\).*/\1/p' |
		awk '{ s += $1 } END { print s + 0 }')
	echo "# $vms VMs: $exits exits seen, $ports to ports," \
		"$pvx of paravirtual XSAVE; $dropped not traced"
	[ "$pvx" = 0 ] && [ "$ports" -gt 100 ] && [ "$dropped" -lt "$exits" ]
}

check stock_kvm_found is_stock
check tiny_guest_runs tiny_guest
rest=$CHECK_SECONDS
CHECK_SECONDS=$((60 + VECTEST_SECONDS))
check vectors_kept_1_vcpu vectest 1
check vectors_kept_2_vcpus vectest 2
CHECK_SECONDS=$rest
check patch_is_seen_where_it_is_on flag_on_is_seen
export HUTCH_STATE=/tmp/state HUTCH_CACHE=/tmp/cache
hutchd --state /tmp/state --cache /tmp/cache --images /images \
	--vmm /usr/bin/l1-vmm --init-image /guest/init.erofs --listen none \
	--set disk_reserve_mib=64 --set ram_budget_mib=3000 \
	2>/tmp/hutchd.log &
daemon=$!
i=0
while [ ! -S /tmp/state/admin.sock ] && [ $i -lt 100 ]; do
	usleep 100000
	i=$((i + 1))
done
while read -r t; do
	check "cold_boot_and_snapshot_$t" prepare "$t"
	check "restored_run_$t" one_run "$t"
	check "restored_run_again_$t" one_run "$t"
	[ "$t" != lbb/python ] || check held_runs_again held_runs
	[ "$t" != lbb/shell ] || check copied_while_it_runs snapshot
	[ "$t" != lbb/shell ] || check files_there_and_back files
done </templates
if grep -qx lbb/shell /templates; then
	check "load_stopped_and_resumed_${LOAD_ROUNDS}_times" load_said
fi
kill $daemon
wait $daemon
check patch_is_inert patch_is_inert
[ $bad = 0 ] || sed 's/^/# /' /tmp/hutchd.log | tail -n 60
echo "1..$n"
[ $bad = 0 ]
