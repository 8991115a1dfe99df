/* Parsing the command line; see options.h.  Opening: options_open.c. */
#include "options.h"
#include "fault.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FD_MAX		   1024
#define UID_MAX_OPTION	   0xfffffffeull
#define DISK_CAP_BYTES_MAX (1ull << 50)

static const char help[] =
	"usage: hutch-vmm --kernel SRC --mem MIB --vcpus N [--disk "
	"SRC[,OPT]]...\n"
	"       hutch-vmm --restore state=SRC,mem=SRC --mem MIB --vcpus N ...\n"
	"       hutch-vmm --probe\n"
	"\n"
	"Runs one microVM on /dev/kvm and ends with it.  SRC is a path, or "
	"fd:N\n"
	"for an inherited descriptor.  All is opened before the process "
	"confines\n"
	"itself.\n"
	"\n"
	"  --kernel SRC       uncompressed ELF kernel (vmlinux)\n"
	"  --cmdline STR      added to the kernel's default command line\n"
	"  --mem MIB          guest memory, 16 to 8192\n"
	"  --vcpus N          1 to 4\n"
	"  --disk SRC[,ro][,lazy][,cap=BYTES]   vda, vdb, vdc in this order\n"
	"                     ro: read-only (a given descriptor must be, "
	"too);\n"
	"                     lazy: a flush need not reach the platter;\n"
	"                     cap: most bytes the disk may allocate\n"
	"  --control fd:N     owner's SOCK_SEQPACKET socket (api/vmm_ctl.h);\n"
	"                     without it the process runs by itself\n"
	"  --channel fd:N     stream socket for the guest's first connection "
	"to\n"
	"                     the agent port\n"
	"  --log fd:N         also write the guest's boot log there\n"
	"  --trace SRC        exits, queue events and marks as NDJSON\n"
	"  --restore state=SRC,mem=SRC[,touched=SRC][,verify]   start from a\n"
	"                     snapshot; touched: the pages that a run needs, "
	"as\n"
	"                     VMM_TOUCHED wrote them: read and copied ahead;\n"
	"                     verify: also check the SHA-256 of the memory\n"
	"  --soft auto|on|off host without hardware virtualisation (auto)\n"
	"  --sync-io          no io_uring\n"
	"  --uid U --gid G    ids to run under (with root)\n"
	"  --no-confine       for tests only: no confinement at all\n"
	"  --die-at NAME[:halt]   for tests only: end or stop there\n"
	"  --probe            say which kind of KVM this host has, and end\n"
	"\n"
	"Exit status: 0 guest powered off, 1 could not start, 2 guest crashed "
	"or\n"
	"reset, 3 KVM error, 4 device rules broken, 5 owner ended it, 6 host "
	"error\n";

enum {
	OPT_KERNEL = 256,
	OPT_CMDLINE,
	OPT_MEM,
	OPT_VCPUS,
	OPT_DISK,
	OPT_CONTROL,
	OPT_CHANNEL,
	OPT_LOG,
	OPT_TRACE,
	OPT_RESTORE,
	OPT_SOFT,
	OPT_SYNC_IO,
	OPT_UID,
	OPT_GID,
	OPT_NO_CONFINE,
	OPT_DIE_AT,
	OPT_PROBE,
	OPT_HELP,
};

static const struct option longs[] = {
	{"kernel", required_argument, NULL, OPT_KERNEL},
	{"cmdline", required_argument, NULL, OPT_CMDLINE},
	{"mem", required_argument, NULL, OPT_MEM},
	{"vcpus", required_argument, NULL, OPT_VCPUS},
	{"disk", required_argument, NULL, OPT_DISK},
	{"control", required_argument, NULL, OPT_CONTROL},
	{"channel", required_argument, NULL, OPT_CHANNEL},
	{"log", required_argument, NULL, OPT_LOG},
	{"trace", required_argument, NULL, OPT_TRACE},
	{"restore", required_argument, NULL, OPT_RESTORE},
	{"soft", required_argument, NULL, OPT_SOFT},
	{"sync-io", no_argument, NULL, OPT_SYNC_IO},
	{"uid", required_argument, NULL, OPT_UID},
	{"gid", required_argument, NULL, OPT_GID},
	{"no-confine", no_argument, NULL, OPT_NO_CONFINE},
	{"die-at", required_argument, NULL, OPT_DIE_AT},
	{"probe", no_argument, NULL, OPT_PROBE},
	{"help", no_argument, NULL, OPT_HELP},
	{0},
};

static int parse_number(const char *name, const char *s, uint64_t min,
			uint64_t max, uint64_t *ret, struct err *e)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno || end == s || *end || s[0] == '-' || v < min || v > max)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "--%s '%.64s': a number from %llu to %llu is "
			       "needed",
			       name, s, (unsigned long long)min,
			       (unsigned long long)max);
	*ret = v;
	return 0;
}

static int parse_u32(const char *name, const char *s, uint32_t min,
		     uint32_t max, uint32_t *ret, struct err *e)
{
	uint64_t v = 0;

	if (parse_number(name, s, min, max, &v, e) < 0)
		return -1;
	*ret = (uint32_t)v;
	return 0;
}

static int parse_source(const char *name, const char *s, struct source *ret,
			struct err *e)
{
	uint64_t fd = 0;

	if (ret->is_given)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "--%s is given twice", name);
	ret->is_given = true;
	if (strncmp(s, "fd:", 3) == 0) {
		if (parse_number(name, s + 3, 0, FD_MAX, &fd, e) < 0)
			return -1;
		ret->fd = (int)fd;
		return 0;
	}
	if (!*s)
		return err_set(e, ERR_INVALID_REQUEST, name, "--%s: empty path",
			       name);
	ret->path = s;
	return 0;
}

/* Options that take an inherited descriptor only. */
static int parse_fd(const char *name, const char *s, int *ret, struct err *e)
{
	struct source src = {.fd = -1, .is_given = *ret >= 0};

	if (parse_source(name, s, &src, e) < 0)
		return -1;
	if (src.path)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "--%s '%.64s': fd:N is needed", name, s);
	*ret = src.fd;
	return 0;
}

static int parse_disk(struct options *o, char *s, struct err *e)
{
	struct disk_options *d = &o->disk[o->n_disks];
	char *save = NULL, *word = strtok_r(s, ",", &save);

	if (o->n_disks == DISKS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "disk",
			       "--disk: at most %d disks", DISKS_MAX);
	if (parse_source("disk", word ? word : "", &d->src, e) < 0)
		return -1;
	while ((word = strtok_r(NULL, ",", &save))) {
		if (strcmp(word, "ro") == 0) {
			d->is_read_only = true;
		} else if (strcmp(word, "lazy") == 0) {
			d->is_lazy = true;
		} else if (strncmp(word, "cap=", 4) == 0) {
			if (parse_number("disk", word + 4, 1,
					 DISK_CAP_BYTES_MAX, &d->cap_bytes,
					 e) < 0)
				return -1;
		} else {
			return err_set(e, ERR_INVALID_REQUEST, "disk",
				       "--disk: unknown option '%.64s'", word);
		}
	}
	o->n_disks++;
	return 0;
}

static int parse_restore(struct options *o, char *s, struct err *e)
{
	char *save = NULL, *word;

	for (word = strtok_r(s, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		struct source *src = NULL;
		char *value = strchr(word, '=');

		if (value && strncmp(word, "state=", 6) == 0)
			src = &o->state;
		else if (value && strncmp(word, "mem=", 4) == 0)
			src = &o->memory;
		else if (value && strncmp(word, "touched=", 8) == 0)
			src = &o->touched;
		if (strcmp(word, "verify") == 0) {
			o->is_verified = true;
			continue;
		}
		if (!src)
			return err_set(e, ERR_INVALID_REQUEST, "restore",
				       "--restore: unknown part '%.64s'", word);
		if (parse_source("restore", value + 1, src, e) < 0)
			return -1;
	}
	if (!o->state.is_given || !o->memory.is_given)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "--restore needs state= and mem=");
	o->is_restore = true;
	return 0;
}

static int parse_soft(struct options *o, const char *s, struct err *e)
{
	if (strcmp(s, "auto") == 0)
		o->kind = KVM_KIND_AUTO;
	else if (strcmp(s, "on") == 0)
		o->kind = KVM_KIND_SOFT;
	else if (strcmp(s, "off") == 0)
		o->kind = KVM_KIND_STOCK;
	else
		return err_set(e, ERR_INVALID_REQUEST, "soft",
			       "--soft '%.64s': auto, on or off is needed", s);
	return 0;
}

static int parse_die_at(const char *s, struct err *e)
{
	int r = fault_arm(FAULT_OF_VMM, s, e);

	if (r == 0)
		return err_set(e, ERR_INVALID_REQUEST, "die-at",
			       "--die-at '%.64s': it is one of hutchd", s);
	return r < 0 ? err_wrap(e, "--die-at") : 0;
}

static int parse_one(struct options *o, int c, char *arg, struct err *e)
{
	switch (c) {
	case OPT_KERNEL:
		return parse_source("kernel", arg, &o->kernel, e);
	case OPT_CMDLINE:
		o->cmdline = arg;
		return 0;
	case OPT_MEM:
		return parse_u32("mem", arg, MEM_MIB_MIN, MEM_MIB_MAX,
				 &o->mem_mib, e);
	case OPT_VCPUS:
		return parse_u32("vcpus", arg, 1, VCPUS_MAX, &o->n_vcpus, e);
	case OPT_DISK:
		return parse_disk(o, arg, e);
	case OPT_CONTROL:
		return parse_fd("control", arg, &o->control, e);
	case OPT_CHANNEL:
		return parse_fd("channel", arg, &o->channel, e);
	case OPT_LOG:
		return parse_fd("log", arg, &o->log, e);
	case OPT_TRACE:
		return parse_source("trace", arg, &o->trace, e);
	case OPT_RESTORE:
		return parse_restore(o, arg, e);
	case OPT_SOFT:
		return parse_soft(o, arg, e);
	case OPT_SYNC_IO:
		o->use_ring = false;
		return 0;
	case OPT_UID:
		o->has_ids = true;
		return parse_u32("uid", arg, 1, UID_MAX_OPTION, &o->uid, e);
	case OPT_GID:
		return parse_u32("gid", arg, 1, UID_MAX_OPTION, &o->gid, e);
	case OPT_NO_CONFINE:
		o->is_confined = false;
		return 0;
	case OPT_DIE_AT:
		return parse_die_at(arg, e);
	case OPT_PROBE:
		o->is_probe = true;
		return 0;
	default:
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "unknown option; see hutch-vmm --help");
	}
}

static int check(const struct options *o, struct err *e)
{
	if (o->is_probe)
		return 0;
	if (o->is_restore == o->kernel.is_given)
		return err_set(e, ERR_INVALID_REQUEST, "kernel",
			       "one of --kernel and --restore is needed");
	if (o->is_restore && o->cmdline)
		return err_set(e, ERR_INVALID_REQUEST, "cmdline",
			       "--cmdline has no meaning with --restore");
	if (!o->mem_mib)
		return err_set(e, ERR_INVALID_REQUEST, "mem",
			       "--mem is needed");
	if (!o->n_vcpus)
		return err_set(e, ERR_INVALID_REQUEST, "vcpus",
			       "--vcpus is needed");
	if (o->has_ids != (o->gid != 0))
		return err_set(e, ERR_INVALID_REQUEST, "uid",
			       "--uid and --gid go together");
	return 0;
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
	int c;

	*o = (struct options){
		.kernel.fd = -1,
		.trace.fd = -1,
		.state.fd = -1,
		.memory.fd = -1,
		.touched.fd = -1,
		.control = -1,
		.channel = -1,
		.log = -1,
		.kvm = -1,
		.pagemap = -1,
		.use_ring = true,
		.is_confined = true,
	};
	for (int i = 0; i < DISKS_MAX; i++)
		o->disk[i].src.fd = -1;
	opterr = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == OPT_HELP) {
			fputs(help, stdout);
			return 1;
		}
		if (parse_one(o, c, optarg, e) < 0)
			return -1;
	}
	if (optind < argc)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "unexpected argument '%.64s'", argv[optind]);
	return check(o, e);
}
