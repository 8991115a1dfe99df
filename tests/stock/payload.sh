#!/bin/sh
# Runs in L1 (busybox sh).  Prints TAP; status 0 when every line is ok.
n=0
bad=0
up() { cut -d' ' -f1 /proc/uptime; }
check() { # check NAME COMMAND...: ok when the command succeeds
	name=$1
	shift
	n=$((n + 1))
	t0=$(up)
	if "$@"; then
		echo "ok $n - $name # $t0 to $(up) s of L1 time"
	else
		bad=$((bad + 1))
		echo "not ok $n - $name # status $?, $t0 to $(up) s"
	fi
}

is_stock() { hutch-vmm --probe | tee /dev/stderr | grep -qi stock; }

tiny_guest() {
	hutch-vmm --kernel /guest/tiny.elf --mem 128 --vcpus 1
}

one_run() { # one_run TEMPLATE: result of 1+2+3
	case $1 in
	lbb/shell) file=/guest/shell.sh ;;
	lbb/python) file=/guest/python.py ;;
	lbb/node) file=/guest/node.js ;;
	esac
	out=$(hutch run "$file" --template "$1" --input '[1,2,3]' \
		--timeout 120s 2>/tmp/run.err)
	status=$?
	echo "# $1 status=$status out=$out"
	[ $status = 0 ] && echo "$out" | tail -n 1 | grep -qx 6 && return 0
	sed 's/^/# /' /tmp/run.err
	return 1
}

check stock_kvm_found is_stock
check tiny_guest_runs tiny_guest
export HUTCH_STATE=/tmp/state HUTCH_CACHE=/tmp/cache
hutchd --state /tmp/state --cache /tmp/cache --images /images \
	--vmm /usr/bin/hutch-vmm --init-image /guest/init.erofs --listen none \
	--set disk_reserve_mib=64 --set ram_budget_mib=3000 \
	2>/tmp/hutchd.log &
daemon=$!
i=0
while [ ! -S /tmp/state/admin.sock ] && [ $i -lt 100 ]; do
	usleep 100000
	i=$((i + 1))
done
while read -r t; do
	check "cold_boot_and_snapshot_$t" hutch prepare "$t"
	check "restored_run_$t" one_run "$t"
	check "restored_run_again_$t" one_run "$t"
done </templates
kill $daemon
wait $daemon
[ $bad = 0 ] || sed 's/^/# /' /tmp/hutchd.log | tail -n 60
echo "1..$n"
[ $bad = 0 ]
