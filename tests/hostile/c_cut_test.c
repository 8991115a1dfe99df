/*
 * Hostile case C14: the host loses its power, again and again, under a guest
 * that writes and flushes.  What a completed FLUSH covered must be there
 * after it.
 *
 * The device works over an I/O layer of the test's (played_io.h), and below
 * that lies a model of a host's page cache and disk, as unkind as the rules
 * of fdatasync allow:
 *
 *	cache     what reads would see; a completed write is here
 *	durable   what is there after the cut
 *
 * A sync makes durable what was in the cache when it was started, nothing
 * that came later.  A failed one forgets those pages: they stay readable and
 * never reach the disk.  Besides, the host writes back sectors when it likes,
 * and at the cut some of the rest, also of writes still in flight.  A sector
 * is written whole or not at all.
 *
 * The guest keeps no two writes to one sector in flight and knows of each
 * sector which versions it may find.  A last case takes the sync away and
 * sees that this is noticed: a test that cannot fail shows nothing.
 */
#include "guest.h"
#include "played_io.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SECTORS	    64u
#define SECTOR	    512u
#define BYTES	    (SECTORS * SECTOR)
#define REQS	    24u /* of the guest in flight; 3 descriptors each */
#define RUN_SECTORS 8u	/* a write has at most */
#define STEPS	    150u
#define SYNCS_MAX   64u

enum { OK, IOERR, UNSUPP };
enum { T_OUT = 1, T_FLUSH = 4, T_WZ = 13 };

static uint64_t seed;

static uint32_t roll(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* ---- the host ---- */

struct image {
	uint8_t data[SECTORS][SECTOR];
	uint64_t when[SECTORS]; /* of the write that it holds */
};

static struct image cache, durable;
static uint64_t clock_now, forgotten[SECTORS];
static struct {
	unsigned id;
	bool is_used;
	struct image then;
} sync_at[SYNCS_MAX];
static unsigned n_seen; /* operations looked at */
static bool is_sync_void;

static void sector_keep(const struct image *from, unsigned s)
{
	if (from->when[s] <= durable.when[s] || from->when[s] <= forgotten[s])
		return;
	memcpy(durable.data[s], from->data[s], SECTOR);
	durable.when[s] = from->when[s];
}

/* Syncs that were started since: what they will cover is settled now. */
static void syncs_look(void)
{
	for (unsigned i = 0; i < n_pend; i++) {
		unsigned k = 0;

		if (pend[i].id < n_seen || pend[i].kind != FSYNC)
			continue;
		while (sync_at[k].is_used)
			assert_true(++k < SYNCS_MAX);
		sync_at[k].is_used = true;
		sync_at[k].id = pend[i].id;
		sync_at[k].then = cache;
	}
	n_seen = n_started;
}

static int sync_ends(unsigned id, bool is_good)
{
	unsigned k = 0;

	while (!sync_at[k].is_used || sync_at[k].id != id)
		assert_true(++k < SYNCS_MAX);
	sync_at[k].is_used = false;
	for (unsigned s = 0; s < SECTORS && !is_sync_void; s++) {
		uint64_t when = sync_at[k].then.when[s];

		if (is_good)
			sector_keep(&sync_at[k].then, s);
		else if (when > durable.when[s] && when > forgotten[s])
			forgotten[s] = when;
	}
	return is_good ? 0 : -EIO;
}

/* Bytes of a write or hole from `off`: `n` of them, whole sectors. */
static void cache_take(struct image *to, const struct pending *p, uint64_t n)
{
	uint64_t at = p->off;

	assert_true(p->off + n <= BYTES);
	for (uint64_t s = at / SECTOR; s < (at + n) / SECTOR; s++)
		to->when[s] = ++clock_now;
	if (p->kind == PUNCH) {
		memset((uint8_t *)to->data + at, 0, n);
		return;
	}
	for (int i = 0; i < p->n && n > 0; i++) {
		size_t part = p->iov[i].iov_len < n ? p->iov[i].iov_len : n;

		memcpy((uint8_t *)to->data + at, p->iov[i].iov_base, part);
		at += part;
		n -= part;
	}
}

/* Some operation ends, one way or another. */
static void host_step(bool do_syncs_fail)
{
	unsigned i = n_pend ? roll(n_pend) : 0;
	struct pending p = pend[i];
	int res = 0;

	if (roll(4) == 0)
		sector_keep(&cache, roll(SECTORS));
	if (n_pend == 0)
		return;
	if (p.kind == FSYNC) {
		res = sync_ends(p.id, !(do_syncs_fail && roll(4) == 0));
	} else if (roll(10) == 0) {
		res = -EINTR;
	} else if (p.kind == PUNCH) {
		cache_take(&cache, &p, p.len);
	} else {
		res = (int)p.len;
		if (p.len > SECTOR && roll(4) == 0)
			res = (int)(SECTOR *
				    (1 + roll((uint32_t)p.len / SECTOR)));
		cache_take(&cache, &p, (uint64_t)res);
	}
	complete(i, res);
	syncs_look();
}

/* The power is gone: what reached the disk besides what had to. */
static void power_cut(void)
{
	for (unsigned i = 0; i < n_pend; i++) {
		struct image torn = cache;

		if (pend[i].kind == FSYNC)
			continue;
		cache_take(&torn, &pend[i], pend[i].len);
		for (uint64_t s = pend[i].off / SECTOR;
		     s < (pend[i].off + pend[i].len) / SECTOR; s++)
			if (roll(2))
				sector_keep(&torn, (unsigned)s);
	}
	for (unsigned s = 0; s < SECTORS; s++)
		if (roll(2))
			sector_keep(&cache, s);
}

/* ---- the guest ---- */

static struct guest guest;
static struct guest *const g = &guest;
static struct mem ram;
static struct blk *blk;
static int fd;

/* Versions of each sector in the order of their writes; 0 = all zeroes. */
static struct {
	uint32_t version[STEPS + 2];
	unsigned n, n_done, n_sure; /* written, completed, flushed */
	bool is_busy;
} sect[SECTORS];

static struct req {
	bool is_used;
	uint32_t type, sector, n;
	unsigned sure[SECTORS]; /* FLUSH: what it covers */
	bool is_after_failure;
} req[REQS];

static uint32_t version_now;
static bool has_failed;
static unsigned n_flushed, n_sectors_sure;

static gpa_t hdr_of(unsigned i)
{
	return 0x10000 + 64 * i;
}

static gpa_t data_of(unsigned i)
{
	return 0x20000 + RUN_SECTORS * SECTOR * i;
}

static void version_fill(uint64_t *at, uint32_t version, unsigned s)
{
	for (unsigned i = 0; i < SECTOR / 8; i++)
		at[i] = version ? (uint64_t)version << 32 | s << 16 | i : 0;
}

/* The version that a whole sector holds; a torn or foreign one fails. */
static uint32_t version_of(const uint8_t *data, unsigned s)
{
	uint64_t want[SECTOR / 8], first;

	memcpy(&first, data, 8);
	version_fill(want, (uint32_t)(first >> 32), s);
	assert_memory_equal(data, want, SECTOR);
	return (uint32_t)(first >> 32);
}

static void request_send(unsigned i, const void *data, uint32_t len)
{
	struct {
		uint32_t type, reserved;
		uint64_t sector;
	} h = {req[i].type, 0, req[i].type == T_OUT ? req[i].sector : 0};
	uint16_t d = (uint16_t)(3 * i), status = (uint16_t)(d + 2);

	req[i].is_used = true;
	guest_put(g, hdr_of(i), &h, sizeof(h));
	guest_fill(g, hdr_of(i) + 32, 0xee, 1);
	if (len > 0)
		guest_put(g, data_of(i), data, len);
	guest_desc(g, 0, d, hdr_of(i), 16, F_NEXT,
		   len ? (uint16_t)(d + 1) : status);
	guest_desc(g, 0, (uint16_t)(d + 1), data_of(i), len, F_NEXT, status);
	guest_desc(g, 0, status, hdr_of(i) + 32, 1, F_WRITE, 0);
	guest_avail(g, 0, d);
}

static void write_send(unsigned i, uint32_t type)
{
	static uint64_t data[RUN_SECTORS][SECTOR / 8];
	uint32_t n = 1 + roll(RUN_SECTORS), s = roll(SECTORS - n + 1);
	struct {
		uint64_t sector;
		uint32_t n, flags;
	} seg = {s, n, 0};

	for (uint32_t k = s; k < s + n; k++)
		if (sect[k].is_busy)
			return;
	req[i] = (struct req){.type = type, .sector = s, .n = n};
	for (uint32_t k = 0; k < n; k++) {
		uint32_t version = type == T_OUT ? ++version_now : 0;

		version_fill(data[k], version, s + k);
		sect[s + k].is_busy = true;
		sect[s + k].version[sect[s + k].n++] = version;
	}
	if (type == T_OUT)
		request_send(i, data, n * SECTOR);
	else
		request_send(i, &seg, sizeof(seg));
}

static void flush_send(unsigned i)
{
	req[i] = (struct req){.type = T_FLUSH, .is_after_failure = has_failed};
	for (unsigned s = 0; s < SECTORS; s++)
		req[i].sure[s] = sect[s].n_done;
	request_send(i, NULL, 0);
}

static void request_done(struct req *r, uint8_t status)
{
	r->is_used = false;
	if (r->type != T_FLUSH) {
		assert_int_equal(status, OK);
		for (uint32_t s = r->sector; s < r->sector + r->n; s++) {
			sect[s].is_busy = false;
			sect[s].n_done = sect[s].n;
		}
		return;
	}
	if (status != OK) {
		has_failed = true;
		return;
	}
	assert_false(r->is_after_failure);
	n_flushed++;
	for (unsigned s = 0; s < SECTORS; s++)
		if (r->sure[s] > sect[s].n_sure)
			sect[s].n_sure = r->sure[s];
}

static void used_look(void)
{
	uint32_t id;
	uint8_t status;

	while (guest_used_now(g, 0, &id, NULL)) {
		assert_true(id % 3 == 0 && id / 3 < REQS);
		assert_true(req[id / 3].is_used);
		guest_get(g, hdr_of(id / 3) + 32, &status, 1);
		request_done(&req[id / 3], status);
	}
}

static void guest_step(void)
{
	unsigned i = 0, what = roll(20);

	used_look();
	while (req[i].is_used)
		if (++i == REQS)
			return;
	if (what < 3)
		flush_send(i);
	else
		write_send(i, what < 5 ? T_WZ : T_OUT);
	if (roll(3))
		guest_wr(g, R_NOTIFY, 0);
	io_step(NULL);
	syncs_look();
}

/* ---- together ---- */

static void start(void)
{
	struct blk_config cfg = {.bytes = BYTES};

	assert_int_equal(mem_init(&ram, GUEST_RAM_BYTES), 0);
	guest_canary_fill(&ram);
	fd = memfd_create("disk", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	cfg.fd = fd;
	assert_int_equal(blk_create(&blk, &ram, NULL, &cfg), 0);
	played_begin(blk_dev(blk));
	n_seen = 0;
	has_failed = false;
	memset(sync_at, 0, sizeof(sync_at));
	memset(req, 0, sizeof(req));
	memset(forgotten, 0, sizeof(forgotten));
	for (unsigned s = 0; s < SECTORS; s++) {
		sect[s].is_busy = false;
		sect[s].version[0] = version_of(durable.data[s], s);
		sect[s].n = sect[s].n_done = sect[s].n_sure = 1;
	}
	cache = durable;
	guest_init(g, &ram, NULL, blk_dev(blk));
	guest_start(g);
}

static void end(void)
{
	while (n_pend > 0) /* nobody is there to see it */
		complete(0, -EIO);
	guest_reset(g);
	guest_canary_check(&ram);
	blk_destroy(blk);
	close(fd);
	mem_finish(&ram);
}

/* Sectors that hold neither what was flushed last nor anything newer. */
static unsigned sectors_lost(void)
{
	unsigned n_lost = 0;

	for (unsigned s = 0; s < SECTORS; s++) {
		uint32_t found = version_of(durable.data[s], s);
		unsigned i = sect[s].n_sure - 1;

		n_sectors_sure += sect[s].n_sure > 1;
		while (i < sect[s].n && sect[s].version[i] != found)
			i++;
		n_lost += i == sect[s].n;
	}
	return n_lost;
}

static unsigned life(bool do_syncs_fail)
{
	unsigned n_lost, n = 1 + roll(STEPS);

	start();
	for (unsigned i = 0; i < n; i++) {
		guest_step();
		for (unsigned k = roll(3); k > 0; k--)
			host_step(do_syncs_fail);
	}
	used_look();
	power_cut();
	n_lost = sectors_lost();
	end();
	return n_lost;
}

static void c14_power_cut(void **state)
{
	unsigned lives = getenv("HUTCH_LONG") ? 50000 : 1500;

	(void)state;
	seed = 14;
	n_flushed = n_sectors_sure = 0;
	memset(&durable, 0, sizeof(durable));
	is_sync_void = false;
	for (unsigned i = 0; i < lives; i++)
		if (life(i % 5 == 4))
			fail_msg("life %u: flushed data is lost", i);
	print_message("# %u cuts, %u flushes, %u sectors had to be there\n",
		      lives, n_flushed, n_sectors_sure);
	print_message("# count=%u\n", lives);
	assert_true(n_flushed > lives && n_sectors_sure > lives);
}

/* A host whose sync does nothing: the same test must say so. */
static void c14_a_lying_disk_is_noticed(void **state)
{
	unsigned n_lost = 0;

	(void)state;
	seed = 15;
	memset(&durable, 0, sizeof(durable));
	is_sync_void = true;
	for (unsigned i = 0; i < 50; i++)
		n_lost += life(false);
	is_sync_void = false;
	assert_true(n_lost > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c14_power_cut),
		cmocka_unit_test(c14_a_lying_disk_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
