/* BIND; see bind.h. */
#include "bind.h"
#include "fd.h"
#include "files.h"
#include "payload.h"
#include "port.h"
#include "refill.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define HOSTNAME_BYTES_MAX 63
#define MACHINE_ID_BYTES   32
/* 2020-01-01: long before any BIND. */
#define CLOCK_UNSET_S 1577836800

static int random_fd = -1;

/*
 * OpenSSL's generators, which node and python hold in their own memory and
 * therefore share with all clones, seed themselves anew when an hour has
 * passed by the wall clock.  Set back before they start, the clock passes
 * years at BIND.
 */
void bind_unset_clock(void)
{
	struct timespec ts = {.tv_sec = CLOCK_UNSET_S};

	if (clock_settime(CLOCK_REALTIME, &ts))
		port_log("clock: %s", strerror(errno));
}

void bind_init(void)
{
	random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
}

int entropy_give(const struct span *s)
{
	union {
		struct rand_pool_info info; /* ends in an array of words */
		uint8_t room[sizeof(struct rand_pool_info) + GP_ENTROPY_BYTES];
	} pool;

	if (s->len != GP_ENTROPY_BYTES)
		return -EINVAL;
	pool.info.entropy_count = GP_ENTROPY_BYTES * 8;
	pool.info.buf_size = GP_ENTROPY_BYTES;
	memcpy(pool.info.buf, s->data, GP_ENTROPY_BYTES);
	if (ioctl(random_fd, RNDADDENTROPY, &pool) ||
	    ioctl(random_fd, RNDRESEEDCRNG))
		return -errno;
	return 0;
}

static int clock_give(uint64_t wall_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(wall_ns / 1000000000ull),
		.tv_nsec = (long)(wall_ns % 1000000000ull),
	};

	return clock_settime(CLOCK_REALTIME, &ts) ? -errno : 0;
}

static int hostname_give(const struct span *s)
{
	if (!s->len || s->len > HOSTNAME_BYTES_MAX)
		return -EINVAL;
	return sethostname((const char *)s->data, s->len) ? -errno : 0;
}

static int machine_id_give(const struct guest *g, const struct span *s)
{
	if (s->len != MACHINE_ID_BYTES)
		return -EINVAL;
	return fd_pwrite_all(g->world.machine_id, s->data, s->len, 0);
}

static int limits_give(struct guest *g, const struct wire_map *m)
{
	uint64_t mem = m->v[GP_BIND_MEM_BYTES].u;
	uint64_t pids = m->v[GP_BIND_PIDS].u;

	if (!mem || !pids)
		return -EINVAL;
	/* Those that wait were there before user code. */
	return cgroups_limit(&g->cg, mem < g->user_room ? mem : g->user_room,
			     pids + refill_n_waiting(g));
}

/* 0, or -errno with the step's name. */
static int bind_all(struct guest *g, const struct wire_map *m,
		    const char **ret_what)
{
	const struct wire_value *disk = &m->v[GP_BIND_DISK_BYTES];
	int rc;

	*ret_what = "entropy";
	rc = entropy_give(&m->v[GP_BIND_ENTROPY].s);
	if (rc)
		return rc;
	*ret_what = "wall_ns";
	rc = clock_give(m->v[GP_BIND_WALL_NS].u);
	if (rc)
		return rc;
	*ret_what = "hostname";
	rc = hostname_give(&m->v[GP_BIND_HOSTNAME].s);
	if (rc)
		return rc;
	*ret_what = "machine_id";
	rc = machine_id_give(g, &m->v[GP_BIND_MACHINE_ID].s);
	if (rc)
		return rc;
	*ret_what = "limits";
	rc = limits_give(g, m);
	if (rc)
		return rc;
	*ret_what = "disk_bytes";
	/* Without quota on its file system the monitor's cap still holds. */
	rc = disk->u && g->world.has_quota
		     ? world_disk_limit(&g->world, disk->u)
		     : 0;
	return rc;
}

void bind_bound(struct bytes *ret, const char *error)
{
	struct writer w = {.out = ret};

	wire_put_map(&w, error ? 2 : 1);
	wire_put_bool(&w, GP_BOUND_OK, !error);
	if (error)
		wire_put_text(&w, GP_BOUND_ERROR, error);
}

bool bind_do(struct guest *g, const void *payload, size_t len,
	     struct bytes *ret)
{
	char why[160];
	struct wire_map m;
	const char *what = "";
	int rc;

	rc = payload_decode(GP_BIND, payload, len, &m, why, sizeof(why));
	if (!rc) {
		rc = bind_all(g, &m, &what);
		snprintf(why, sizeof(why), "%s: %s", what, strerror(-rc));
	}
	if (rc)
		port_log("bind: %s", why);
	else
		g->phase = PHASE_BOUND;
	if (g->link.is_held) {
		/* Copied while it ran: what is queued is the first one's. */
		commands_disown(g);
		files_drop(g);
		link_go(&g->link, true);
	}
	bind_bound(ret, rc ? why : NULL);
	return !rc;
}

void bind_ask(struct guest *g, const void *payload, size_t len)
{
	_cleanup_bytes_ struct bytes bound = {0};

	bind_do(g, payload, len, &bound);
	link_send(&g->link, GP_BOUND, 0, &bound);
	port_mark(HUTCH_MARK_BOUND);
}
