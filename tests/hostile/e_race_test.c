/*
 * Hostile cases D25, E3, E4 and A17 with real threads: several "CPUs" write
 * registers while the I/O thread serves, sockets close, the device is held,
 * reset and asked for its numbers.  Only the invariants are asked for here;
 * the point is to run this under ThreadSanitizer (`clang -fsanitize=thread`)
 * and ASan.
 */
#include "channel.h"
#include "disk.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CPUS 4

static bool use_ring;
static atomic_bool is_over;

static void *runner(void *arg)
{
	io_run(arg);
	return NULL;
}

static void pause_ns(long ns)
{
	struct timespec t = {.tv_nsec = ns};

	nanosleep(&t, NULL);
}

/* A CPU that touches registers, never the rings, and none that another CPU
 * needs for its set-up (queue selector, features). */
static void *register_writer(void *arg)
{
	struct virtio_dev *d = arg;
	uint8_t data[8];
	uint32_t v;

	for (unsigned i = 0; !atomic_load(&is_over); i++) {
		v = i % 4;
		virtio_mmio_write(d, R_NOTIFY, &v, 4);
		virtio_mmio_read(d, R_ISR, data, 4);
		virtio_mmio_write(d, R_ISR_ACK, data, 4);
		virtio_mmio_read(d, R_STATUS, data, 4);
		virtio_mmio_read(d, R_CFG, data, 8);
		v = 0xffffffff;
		virtio_mmio_write(d, R_GEN, &v, 4);
		virtio_mmio_write(d, R_STATUS, &v, 2);
		if (i % 16 == 0)
			pause_ns(1000);
	}
	return NULL;
}

static void *holder(void *arg)
{
	struct vsock *v = arg;
	static struct vsock_state s;
	struct vsock_stats st;

	while (!atomic_load(&is_over)) {
		vsock_hold(v, true);
		vsock_save(v, &s);
		vsock_stats(v, &st);
		pause_ns(200000);
		vsock_hold(v, false);
		pause_ns(300000);
	}
	return NULL;
}

static void threads_start(pthread_t *t, unsigned n, void *(*fn)(void *),
			  void *arg)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&t[i], NULL, fn, arg), 0);
}

static void threads_end(pthread_t *t, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static bool connect_once(struct channel *c, uint32_t port, int *fd)
{
	struct pkt p;

	tx(c, PKT(.op = OP_REQUEST, .src_port = port, .dst_port = 1024), NULL,
	   0);
	for (int i = 0; i < 2000; i++) {
		channel_run(c);
		while (guest_used_now(&c->g, 0, NULL, NULL))
			;
		if (c->host_fd >= 0)
			break;
	}
	(void)p;
	*fd = c->host_fd;
	c->host_fd = -1;
	return *fd >= 0;
}

static void d25_kicks_while_sockets_close(void **state)
{
	static struct channel ch;
	struct guest *g = &ch.g;
	unsigned rounds = getenv("HUTCH_LONG") ? 500 : 20;
	pthread_t io_thread, cpu[CPUS], hold;
	uint8_t block[1024] = {0};

	(void)state;
	atomic_store(&is_over, false);
	channel_up(&ch, use_ring);
	channel_start(&ch, 32, 4096);
	g->has_io_thread = true;
	pthread_create(&io_thread, NULL, runner, ch.io);
	threads_start(cpu, CPUS, register_writer, g->d);
	pthread_create(&hold, NULL, holder, ch.v);
	for (unsigned r = 0; r < rounds; r++) {
		int fd[8];
		unsigned n = 0;

		while (n < 8 && connect_once(&ch, 100 + n, &fd[n]))
			n++;
		for (unsigned i = 0; i < n; i++) {
			send_data(&ch, 100 + i, 1024, 0, block, sizeof(block));
			send(fd[i], block, sizeof(block),
			     MSG_DONTWAIT | MSG_NOSIGNAL);
		}
		for (unsigned i = 0; i < n; i++) {
			if (i % 2)
				channel_close(&ch, 100 + i, 1024);
			close(fd[i]);
		}
		/* A reset in the middle of it, then all over again. */
		guest_reset(g);
		ch.n_taken = ch.n_asks;
		channel_start(&ch, 32, 4096);
	}
	atomic_store(&is_over, true);
	threads_end(cpu, CPUS);
	threads_end(&hold, 1);
	assert_live(g);
	io_stop(ch.io);
	threads_end(&io_thread, 1);
	g->has_io_thread = false;
	guest_reset(g);
	if (ch.host_fd >= 0)
		close(ch.host_fd);
	vsock_destroy(ch.v);
	io_destroy(ch.io);
	guest_canary_check(&ch.mem);
	mem_finish(&ch.mem);
	assert_int_equal(fds_count(), ch.fds_before);
}

static void *drainer(void *arg)
{
	struct blk_stats s;

	while (!atomic_load(&is_over)) {
		blk_drain(arg);
		blk_stats(arg, &s);
		pause_ns(100000);
	}
	return NULL;
}

static void e3_registers_while_served(void **state)
{
	static struct disk k;
	struct guest *g = &k.g;
	unsigned rounds = getenv("HUTCH_LONG") ? 5000 : 200;
	pthread_t io_thread, cpu[CPUS], drain;

	(void)state;
	atomic_store(&is_over, false);
	disk_up(&k, &(struct disk_options){.use_ring = use_ring});
	guest_start(g);
	g->has_io_thread = true;
	pthread_create(&io_thread, NULL, runner, k.io);
	threads_start(cpu, CPUS, register_writer, g->d);
	pthread_create(&drain, NULL, drainer, k.blk);
	for (unsigned r = 0; r < rounds; r++) {
		gpa_t data;

		guest_free_all(g);
		data = guest_alloc(g, 65536);
		for (unsigned i = 0; i < 20; i++)
			disk_put(&k, &(struct blk_req){.type = i % 2,
						       .sector = i * 8,
						       .data = data,
						       .len = 4096,
						       .is_out = i % 2 == 0});
		guest_wr(g, R_NOTIFY, 0);
		if (r % 3 == 0) { /* A17: reset with all of it in flight */
			guest_reset(g);
			guest_start(g);
			continue;
		}
		/* E4: a completion may find its bit just acknowledged. */
		for (unsigned i = 0; i < 20; i++)
			assert_true(guest_used(g, 0, NULL, NULL));
	}
	atomic_store(&is_over, true);
	threads_end(cpu, CPUS);
	threads_end(&drain, 1);
	disk_invariants(&k);
	io_stop(k.io);
	threads_end(&io_thread, 1);
	g->has_io_thread = false;
	guest_reset(g);
	blk_destroy(k.blk);
	io_destroy(k.io);
	close(k.dev_fd);
	close(k.fd);
	mem_finish(&k.mem);
	assert_int_equal(fds_count(), k.fds_before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(d25_kicks_while_sockets_close),
		cmocka_unit_test(e3_registers_while_served),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
