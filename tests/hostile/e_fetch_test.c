/*
 * Hostile cases E1 and E2: a guest that changes what was read.
 *
 * E2: every load of guest memory is reported (MEM_TRACE); the test counts the
 * loads of each byte and, straight after each, overwrites what was read.  A
 * device that read any field twice would see the garbage.  Exactly one load of
 * each field of descriptors, headers and segments; the avail index once for
 * each time the queue is looked at.
 *
 * E1: a second thread flips fields between good and hostile values while
 * requests run; only the invariants are asked for.
 */
#define MEM_TRACE
#include "../../vmm/mem.c"

#include "channel.h"
#include "disk.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint8_t n_loads[GUEST_RAM_BYTES];
static const uint8_t *ram_host;
static gpa_t keep_at; /* not scribbled on: indexes that go on living */
static size_t keep_len;

static void on_load(const void *host, size_t len)
{
	size_t at = (size_t)((const uint8_t *)host - ram_host);

	for (size_t i = 0; i < len; i++) {
		n_loads[at + i]++;
		if (at + i >= keep_at && at + i < keep_at + keep_len)
			continue;
		/* The guest's other CPU is as fast as can be. */
		((uint8_t *)(uintptr_t)host)[i] ^= 0xa5;
	}
}

static void trace_on(struct guest *g, const struct gq *q)
{
	ram_host = g->mem->host;
	memset(n_loads, 0, sizeof(n_loads));
	keep_at = q->avail; /* flags, idx, used_event live on */
	keep_len = 4;
	mem_trace_load = on_load;
}

static void trace_off(void)
{
	mem_trace_load = NULL;
}

static void loaded_once(gpa_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(n_loads[at + i], 1);
}

static void loaded_never(gpa_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(n_loads[at + i], 0);
}

static struct disk disk;

static int disk_start(void **state)
{
	(void)state;
	disk_up(&disk, &(struct disk_options){0});
	guest_start(&disk.g);
	return 0;
}

static int disk_stop(void **state)
{
	(void)state;
	trace_off();
	disk_down(&disk);
	return 0;
}

static void blk_traced(uint32_t type, uint32_t len, bool is_out, gpa_t data)
{
	struct guest *g = &disk.g;
	gpa_t hdr = disk_hdr(&disk, type, 8), status = disk_status_at(&disk);
	uint16_t first = g->q[0].next_desc, slot = g->q[0].avail_idx;
	uint32_t used;
	uint8_t s;

	guest_chain(g, 0,
		    (struct gbuf[]){{hdr, 16, false},
				    {data, len, is_out},
				    {status, 1, true}},
		    3);
	guest_wr(g, R_NOTIFY, 0);
	trace_on(g, &g->q[0]);
	for (int i = 0; i < 4; i++)
		io_step(disk.io);
	trace_off();
	assert_true(guest_used_now(g, 0, NULL, &used));
	guest_get(g, status, &s, 1);
	assert_int_equal(s, 0);
	assert_int_equal(used, is_out ? len + 1 : 1);

	loaded_once(g->q[0].desc + 16u * first, 3 * 16);
	loaded_once(g->q[0].avail + 4 + 2u * slot, 2);
	loaded_once(hdr, 16);
	loaded_never(status, 1);
	if (type == 11)
		loaded_once(data, len); /* segments are parsed */
	else
		loaded_never(data, len); /* bulk: only the kernel moves it */
	assert_in_range(n_loads[g->q[0].avail + 2], 1, 3);
}

static void e2_blk_fields_read_once(void **state)
{
	struct guest *g = &disk.g;
	struct {
		uint64_t sector;
		uint32_t n, flags;
	} seg[3] = {{8, 8, 0}, {100, 1, 0}, {8, 8, 0}};
	gpa_t data = guest_alloc(g, 4096);

	(void)state;
	blk_traced(0, 4096, true, data);
	blk_traced(1, 4096, false, data);
	blk_traced(8, 20, true, data);
	guest_put(g, data, seg, sizeof(seg));
	blk_traced(11, sizeof(seg), false, data);
	/* A chain that is refused is read once as well. */
	guest_desc(g, 0, 100, data, 16, F_NEXT, 101);
	guest_desc(g, 0, 101, data, 16, F_NEXT, 100);
	guest_avail(g, 0, 100);
	guest_wr(g, R_NOTIFY, 0);
	trace_on(g, &g->q[0]);
	io_step(disk.io);
	trace_off();
	loaded_once(g->q[0].desc + 1600, 16);
	/* 101 leads wherever the scribbled 100 said: read once or not. */
	assert_broken(g);
}

static struct channel ch;

static int channel_begin(void **state)
{
	(void)state;
	channel_up(&ch, false);
	channel_start(&ch, 16, 4096);
	return 0;
}

static int channel_end(void **state)
{
	(void)state;
	trace_off();
	channel_down(&ch);
	return 0;
}

static void e2_vsock_header_read_once(void **state)
{
	struct guest *g = &ch.g;
	struct pkt p =
		*PKT(.op = OP_RW, .src_port = 9, .dst_port = 1024, .len = 100);
	uint16_t first, slot;
	uint8_t sent[100], got[100];
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	memset(sent, 0x42, sizeof(sent));
	guest_put(g, ch.tx_buf, &p, sizeof(p));
	guest_put(g, ch.tx_buf + 64, sent, sizeof(sent));
	first = g->q[1].next_desc;
	slot = g->q[1].avail_idx;
	guest_chain(g, 1,
		    (struct gbuf[]){{ch.tx_buf, sizeof(p), false},
				    {ch.tx_buf + 64, 100, false}},
		    2);
	guest_wr(g, R_NOTIFY, 1);
	trace_on(g, &g->q[1]);
	io_step(ch.io);
	trace_off();
	assert_true(guest_used_now(g, 1, NULL, NULL));
	loaded_once(g->q[1].desc + 16u * first, 32);
	loaded_once(g->q[1].avail + 4 + 2u * slot, 2);
	loaded_once(ch.tx_buf, sizeof(p));
	loaded_never(ch.tx_buf + 64, 100); /* the kernel took it, once */
	assert_int_equal(recv(fd, got, sizeof(got), MSG_DONTWAIT), 100);
	assert_memory_equal(got, sent, 100);
	channel_close(&ch, 9, 1024);
	close(fd);
}

/* ---- E1 ---- */

static atomic_bool is_stopped;

struct flip {
	volatile uint8_t *at;
	uint8_t good[16], bad[16];
	unsigned len;
};

static void *flipper(void *arg)
{
	struct flip *f = arg;

	while (!atomic_load(&is_stopped)) {
		for (unsigned i = 0; i < f->len; i++)
			f->at[i] = f->bad[i];
		for (unsigned i = 0; i < f->len; i++)
			f->at[i] = f->good[i];
	}
	return NULL;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Which field of which descriptor, or of the header, and its bad value. */
static const struct field {
	const char *name;
	unsigned desc, off, len;
	uint64_t bad;
	bool is_header;
} fields[] = {
	{"addr", 1, 0, 8, UINT64_MAX - 255, false},
	{"addr in the window", 1, 0, 8, 0xd0000000, false},
	{"len", 1, 8, 4, 0xffffffff, false},
	{"flags", 1, 12, 2, F_INDIRECT | F_NEXT, false},
	{"flags direction", 1, 12, 2, F_NEXT, false},
	{"next", 0, 14, 2, 0xffff, false},
	{"next loop", 1, 14, 2, 0, false},
	{"type", 0, 0, 4, 1, true},
	{"sector", 0, 8, 8, UINT64_MAX - 3, true},
};

static void flip_one(const struct field *f, double seconds)
{
	struct guest *g = &disk.g;
	gpa_t hdr = disk_hdr(&disk, 0, 8), data = guest_alloc(g, 4096);
	gpa_t status = disk_status_at(&disk);
	gpa_t at = f->is_header ? hdr + f->off
				: g->q[0].desc + 16 * f->desc + f->off;
	struct flip flip = {.at = mem_span(g->mem, at, f->len), .len = f->len};
	double end = now_s() + seconds;
	unsigned long n_broken = 0, n = 0;
	pthread_t t;

	guest_desc(g, 0, 0, hdr, 16, F_NEXT, 1);
	guest_desc(g, 0, 1, data, 4096, F_NEXT | F_WRITE, 2);
	guest_desc(g, 0, 2, status, 1, F_WRITE, 0);
	guest_get(g, at, flip.good, f->len);
	memcpy(flip.bad, &f->bad, f->len);
	atomic_store(&is_stopped, false);
	pthread_create(&t, NULL, flipper, &flip);
	for (; now_s() < end; n++) {
		guest_avail(g, 0, 0);
		guest_wr(g, R_NOTIFY, 0);
		io_step(disk.io);
		io_step(disk.io);
		if (guest_status(g) == S_LIVE)
			continue;
		n_broken++;
		atomic_store(&is_stopped, true);
		pthread_join(t, NULL);
		guest_reset(g);
		guest_start(g);
		guest_desc(g, 0, 0, hdr, 16, F_NEXT, 1);
		guest_desc(g, 0, 1, data, 4096, F_NEXT | F_WRITE, 2);
		guest_desc(g, 0, 2, status, 1, F_WRITE, 0);
		atomic_store(&is_stopped, false);
		pthread_create(&t, NULL, flipper, &flip);
	}
	atomic_store(&is_stopped, true);
	pthread_join(t, NULL);
	print_message("# %s: %lu requests, %lu broken\n", f->name, n, n_broken);
	guest_reset(g);
	guest_free_all(g);
	guest_start(g);
}

static void e1_fields_flipped(void **state)
{
	double seconds = getenv("HUTCH_LONG") ? 60 : 0.3;

	(void)state;
	for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		flip_one(&fields[i], seconds);
}

#define BLK(f)	 cmocka_unit_test_setup_teardown(f, disk_start, disk_stop)
#define VSOCK(f) cmocka_unit_test_setup_teardown(f, channel_begin, channel_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BLK(e2_blk_fields_read_once),
		VSOCK(e2_vsock_header_read_once),
		BLK(e1_fields_flipped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
