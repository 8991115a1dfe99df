/*
 * Hostile cases A17, B26, C12-C14, C17: virtio-blk over an I/O layer that the
 * test itself plays: operations complete when, in which order and with which
 * result the test likes.
 */
#include "guest.h"
#include "played_io.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK, IOERR };
enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_WZ = 13 };

/* ---- the device ---- */

static struct guest guest;
static struct guest *const g = &guest;
static struct mem ram;
static struct blk *blk;
static int fd;

static int up(void **state)
{
	struct blk_config cfg = {.bytes = 1 << 20};

	(void)state;
	assert_int_equal(mem_init(&ram, GUEST_RAM_BYTES), 0);
	guest_canary_fill(&ram);
	fd = memfd_create("disk", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	cfg.fd = fd;
	assert_int_equal(blk_create(&blk, &ram, NULL, &cfg), 0);
	played_begin(blk_dev(blk));
	guest_init(g, &ram, NULL, blk_dev(blk));
	guest_start(g);
	return 0;
}

static int down(void **state)
{
	(void)state;
	assert_int_equal(n_pend, 0);
	guest_reset(g);
	guest_canary_check(&ram);
	blk_destroy(blk);
	close(fd);
	mem_finish(&ram);
	return 0;
}

static gpa_t status_at;

/* One request, kicked; its status byte will be at status_at. */
static uint16_t put(uint32_t type, uint64_t sector, gpa_t data, uint32_t len)
{
	struct {
		uint32_t type, reserved;
		uint64_t sector;
	} h = {type, 0, sector};
	gpa_t hdr = guest_alloc(g, sizeof(h));
	struct gbuf b[3] = {{hdr, 16, false}, {data, len, type == T_IN}};
	uint16_t head;

	status_at = guest_alloc(g, 1);
	guest_fill(g, status_at, 0xee, 1);
	guest_put(g, hdr, &h, sizeof(h));
	b[len ? 2 : 1] = (struct gbuf){status_at, 1, true};
	head = guest_chain(g, 0, b, len ? 3 : 2);
	guest_kick(g, 0);
	return head;
}

static uint8_t status_of(gpa_t at)
{
	uint8_t s;

	guest_get(g, at, &s, 1);
	return s;
}

static void ends_with(uint8_t status, uint32_t used_len)
{
	uint32_t len;

	assert_true(guest_used_now(g, 0, NULL, &len));
	assert_int_equal(len, used_len);
	assert_int_equal(status_of(status_at), status);
	assert_false(guest_used_now(g, 0, NULL, NULL));
}

static void not_yet(void)
{
	assert_false(guest_used_now(g, 0, NULL, NULL));
	assert_int_equal(status_of(status_at), 0xee);
}

static void *resetter(void *arg)
{
	guest_reset(g);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void a17_reset_with_io_in_flight(void **state)
{
	static const struct timespec nap = {.tv_nsec = 50000000};
	gpa_t data = guest_alloc(g, 4096);
	atomic_bool is_done;
	pthread_t t;

	(void)state;
	for (int round = 0; round < 3; round++) {
		guest_fill(g, data, 0x11, 4096);
		for (int i = 0; i < 5; i++)
			put(i % 2 ? T_OUT : T_IN, 0, data, 512);
		put(T_FLUSH, 0, 0, 0);
		assert_int_equal(n_pend, 6);
		atomic_store(&is_done, false);
		pthread_create(&t, NULL, resetter, &is_done);
		nanosleep(&nap, NULL);
		assert_false(atomic_load(&is_done)); /* it waits */
		/* Another CPU meanwhile: nothing is accepted. */
		guest_wr(g, R_STATUS, S_ACK);
		guest_wr(g, R_NOTIFY, 0);
		while (n_pend > 1)
			complete(n_pend - 1, n_pend % 2 ? -EIO : 512);
		nanosleep(&nap, NULL);
		assert_false(atomic_load(&is_done));
		complete(0, 512);
		pthread_join(t, NULL);
		assert_true(atomic_load(&is_done));
		assert_int_equal(guest_used_idx(g, 0), 0); /* all dropped */
		assert_int_equal(status_of(status_at), 0xee);
		guest_free_all(g);
		guest_start(g);
	}
	put(T_IN, 0, data, 512);
	complete(0, 512);
	ends_with(OK, 513);
}

static void b26_completions_out_of_order(void **state)
{
	gpa_t data = guest_alloc(g, 4096);
	uint16_t head[40];
	uint32_t id;

	(void)state;
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 40; i++)
			head[i] = put(T_IN, i, data, 512);
		assert_int_equal(n_pend, 40);
		for (unsigned i = 40; i-- > 0;) {
			unsigned at = round % 2 ? i : i * 7 % (i + 1);
			struct io_op *op = pend[at].op;
			unsigned k;

			for (k = 0; k < n_pend && pend[k].op != op; k++)
				;
			complete(at, 512);
			assert_true(guest_used_now(g, 0, &id, NULL));
			for (k = 0; k < 40 && head[k] != id; k++)
				;
			assert_true(k < 40);
			head[k] = 0xffff; /* each id once */
		}
		guest_free_all(g);
		guest_alloc(g, 512);
	}
	assert_live(g);
}

static void c12_errors(void **state)
{
	static const int bad[] = {-EIO,	   -ECANCELED,	-ENOSPC,
				  -EFAULT, -EOPNOTSUPP, 0,
				  513,	   INT32_MAX,	INT32_MIN};
	gpa_t data = guest_alloc(g, 512);

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (uint32_t type = T_IN; type <= T_OUT; type++) {
			put(type, 0, data, 512);
			not_yet();
			complete(0, bad[i]);
			ends_with(IOERR, 1);
			assert_int_equal(n_pend, 0);
		}
	}
	assert_live(g);
}

static void c12_interrupted_and_short(void **state)
{
	gpa_t data = guest_alloc(g, 4096);
	unsigned n;

	(void)state;
	for (uint32_t type = T_IN; type <= T_OUT; type++) {
		put(type, 8, data, 4096);
		complete(0, -EINTR);
		complete(0, -EAGAIN);
		assert_int_equal(pend[0].len, 4096);
		complete(0, 1); /* goes on at the next byte */
		not_yet();
		assert_int_equal(pend[0].off, 4097);
		assert_int_equal(pend[0].len, 4095);
		assert_ptr_equal(pend[0].iov[0].iov_base,
				 (uint8_t *)mem_span(&ram, data, 1) + 1);
		complete(0, 4094);
		complete(0, -EINTR);
		not_yet();
		assert_int_equal(pend[0].len, 1);
		complete(0, 1);
		ends_with(OK, type == T_IN ? 4097 : 1);
	}
	/* Short, then the end of the file: no zero-filled lie. */
	put(T_IN, 8, data, 4096);
	complete(0, 512);
	complete(0, 0);
	ends_with(IOERR, 1);
	/* Interrupted for ever: given up, not spun on. */
	put(T_IN, 8, data, 4096);
	for (n = 0; n_pend > 0; n++)
		complete(0, -EINTR);
	assert_in_range(n, 1, 64);
	ends_with(IOERR, 1);
}

static void c13_failed_sync_latches(void **state)
{
	struct blk_stats s;

	(void)state;
	put(T_FLUSH, 0, 0, 0);
	complete(0, 0);
	ends_with(OK, 1);
	put(T_FLUSH, 0, 0, 0);
	complete(0, -EIO);
	ends_with(IOERR, 1);
	for (int i = 0; i < 10; i++) {
		put(T_FLUSH, 0, 0, 0);
		assert_int_equal(n_pend, 0); /* not even tried */
		ends_with(IOERR, 1);
	}
	guest_reset(g); /* a reset of the driver does not heal the disk */
	guest_free_all(g);
	guest_start(g);
	put(T_FLUSH, 0, 0, 0);
	ends_with(IOERR, 1);
	blk_stats(blk, &s);
	assert_int_equal(s.sync_failed, 12);
}

/* Two FLUSHes at once: the kernel tells a failed write-back to one sync only.
 * So the second sync is not started before the first has ended. */
static void c13_failure_is_told_to_all(void **state)
{
	gpa_t at[3];

	(void)state;
	for (int fails = 0; fails < 2; fails++) {
		for (int i = 0; i < 3; i++) {
			put(T_FLUSH, 0, 0, 0);
			at[i] = status_at;
		}
		assert_int_equal(n_pend, 1);
		complete(0, fails ? -EIO : 0);
		while (n_pend > 0)
			complete(0, 0);
		for (int i = 0; i < 3; i++) {
			assert_true(guest_used_now(g, 0, NULL, NULL));
			assert_int_equal(status_of(at[i]), fails ? IOERR : OK);
		}
	}
	assert_int_equal(n_started, 3 + 1);
}

static void *drainer(void *arg);

/* blk_drain in a thread of its own: does it return? */
static void drains(void)
{
	static const struct timespec nap = {.tv_nsec = 1000000};
	atomic_bool is_done = false;
	pthread_t t;

	pthread_create(&t, NULL, drainer, &is_done);
	for (int i = 0; i < 5000 && !atomic_load(&is_done); i++)
		nanosleep(&nap, NULL);
	assert_true(atomic_load(&is_done));
	pthread_join(t, NULL);
}

/* A driver that gives up with a kick unheard, or with a request that found no
 * room in io: the VM can still be paused. */
static void drain_of_a_failed_driver(void **state)
{
	(void)state;
	guest_wr(g, R_NOTIFY, 0);
	guest_wr(g, R_STATUS, S_LIVE | VIRTIO_FAILED);
	drains();
	guest_reset(g);
	guest_start(g);
	room = 0;
	put(T_FLUSH, 0, 0, 0);
	guest_wr(g, R_STATUS, S_LIVE | VIRTIO_FAILED);
	io_step(NULL);
	drains();
	room = PENDING_MAX;
}

/* FLUSHes that wait for a sync go with the device's queue. */
static void a17_reset_with_syncs_waiting(void **state)
{
	static const struct timespec nap = {.tv_nsec = 50000000};
	atomic_bool is_done = false;
	pthread_t t;

	(void)state;
	for (int i = 0; i < 3; i++)
		put(T_FLUSH, 0, 0, 0);
	assert_int_equal(n_pend, 1);
	pthread_create(&t, NULL, resetter, &is_done);
	nanosleep(&nap, NULL);
	assert_false(atomic_load(&is_done)); /* it waits for the one */
	complete(0, 0);
	pthread_join(t, NULL);
	assert_int_equal(n_pend, 0);
	guest_free_all(g);
	guest_start(g);
	put(T_FLUSH, 0, 0, 0);
	complete(0, 0);
	ends_with(OK, 1);
}

static void c14_flush_waits_for_sync(void **state)
{
	gpa_t data = guest_alloc(g, 512), write_status;

	(void)state;
	put(T_OUT, 0, data, 512);
	write_status = status_at;
	assert_int_equal(pend[0].kind, WRITEV);
	complete(0, 512);
	assert_int_equal(status_of(write_status), OK);
	assert_true(guest_used_now(g, 0, NULL, NULL));
	put(T_FLUSH, 0, 0, 0);
	assert_int_equal(pend[0].kind, FSYNC); /* after the write's end */
	not_yet();
	complete(0, 0);
	ends_with(OK, 1);
}

static void c17_more_than_fits(void **state)
{
	unsigned n_done = 0, n_put = 0, n_free = 64, i;
	gpa_t hdr = guest_alloc(g, 16), at = guest_alloc(g, 64 * 513);
	uint16_t unused[64];
	struct blk_stats s;
	uint64_t read[2] = {T_IN, 0};
	uint32_t id;

	(void)state;
	guest_put(g, hdr, read, 16);
	for (uint16_t k = 0; k < 64; k++) {
		unused[k] = (uint16_t)(2 * k);
		guest_desc(g, 0, (uint16_t)(2 * k), hdr, 16, F_NEXT,
			   (uint16_t)(2 * k + 1));
		guest_desc(g, 0, (uint16_t)(2 * k + 1), at + 513u * k, 513,
			   F_WRITE, 0);
	}
	while (n_done < 10000) {
		/* Less room in io than slots in the device. */
		room = n_done % 5 == 0 ? 1 : 10;
		for (; n_put < 10000 && n_free > 0; n_put++)
			guest_avail(g, 0, unused[--n_free]);
		guest_kick(g, 0);
		assert_in_range(n_pend, 1, 10);
		for (i = n_pend > 3 ? n_put % 3 : 0; i < n_pend; i++)
			complete(i, 512);
		io_step(NULL); /* room again */
		for (; guest_used_now(g, 0, &id, NULL); n_done++)
			unused[n_free++] = (uint16_t)id;
	}
	assert_int_equal(n_started, 10000);
	assert_int_equal(n_pend, 0);
	blk_stats(blk, &s);
	assert_int_equal(s.reads, 10000);
	g->q[0].next_desc = 0;
	/* All slots in flight, then one more request: it stays in the ring. */
	room = PENDING_MAX;
	guest_free_all(g);
	at = guest_alloc(g, 512);
	for (i = 0; i < 64; i++)
		put(T_IN, 0, at, 512);
	assert_int_equal(n_pend, 64);
	assert_live(g);
	while (n_pend > 0)
		complete(0, 512);
	for (i = 0; i < 64; i++)
		assert_true(guest_used_now(g, 0, NULL, NULL));
}

static void *drainer(void *arg)
{
	blk_drain(blk);
	atomic_store((atomic_bool *)arg, true);
	return NULL;
}

static void drain_waits(void **state)
{
	static const struct timespec nap = {.tv_nsec = 50000000};
	gpa_t data = guest_alloc(g, 512);
	atomic_bool is_done = false;
	pthread_t t;

	(void)state;
	blk_drain(blk); /* nothing to wait for */
	put(T_IN, 0, data, 512);
	put(T_OUT, 0, data, 512);
	pthread_create(&t, NULL, drainer, &is_done);
	nanosleep(&nap, NULL);
	assert_false(atomic_load(&is_done));
	complete(1, 512);
	nanosleep(&nap, NULL);
	assert_false(atomic_load(&is_done));
	complete(0, 512);
	pthread_join(t, NULL);
	assert_true(guest_used_now(g, 0, NULL, NULL));
	assert_true(guest_used_now(g, 0, NULL, NULL));
}

static void c9_ranges_one_by_one(void **state)
{
	struct {
		uint64_t sector;
		uint32_t n, flags;
	} seg[3] = {{8, 8, 0}, {64, 16, 1}, {0, 1, 0}};
	gpa_t at = guest_alloc(g, sizeof(seg));

	(void)state;
	guest_put(g, at, seg, sizeof(seg));
	put(T_WZ, 0, at, sizeof(seg));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(n_pend, 1);
		assert_int_equal(pend[0].kind, PUNCH);
		assert_int_equal(pend[0].off, seg[i].sector * 512);
		assert_int_equal(pend[0].len, seg[i].n * 512u);
		not_yet();
		if (i == 1)
			complete(0, -EINTR); /* again */
		complete(0, 0);
	}
	ends_with(OK, 1);
	put(T_WZ, 0, at, sizeof(seg));
	complete(0, 0);
	complete(0, -EIO); /* the second fails: so does the request */
	ends_with(IOERR, 1);
	assert_int_equal(n_pend, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a17_reset_with_io_in_flight),
		CASE(b26_completions_out_of_order),
		CASE(c9_ranges_one_by_one),
		CASE(c12_errors),
		CASE(c12_interrupted_and_short),
		CASE(c13_failed_sync_latches),
		CASE(c14_flush_waits_for_sync),
		CASE(c17_more_than_fits),
		CASE(c13_failure_is_told_to_all),
		CASE(drain_waits),
		CASE(drain_of_a_failed_driver),
		CASE(a17_reset_with_syncs_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
