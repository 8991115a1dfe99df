/*
 * Hostile case D26: 50 streams at once, echoed by the guest, with the I/O
 * thread as in the VMM.  What comes back is what was sent, nothing is reset,
 * and no stream starves: when the first is through, the slowest has at least a
 * quarter of the fastest.  20 MiB each way a stream with HUTCH_LONG.
 */
#include "channel.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS	  50
#define GUEST_BUF 16384u /* the guest's buf_alloc, a stream */

static struct channel ch;
static struct guest *const g = &ch.g;
static bool use_ring;

struct stream { /* the guest's end */
	uint8_t buf[GUEST_BUF];
	uint32_t at, len;	   /* received, not yet echoed */
	uint32_t rx_cnt, told;	   /* from the host; fwd_cnt last told */
	uint32_t tx_cnt, peer_fwd; /* to the host */
};
static struct stream stream[STREAMS];
static int host[STREAMS];
static uint64_t total;

static uint8_t byte_of(unsigned s, uint64_t at)
{
	return (uint8_t)((at * 2654435761u >> 7) + s * 31);
}

struct side {
	uint64_t sent[STREAMS], got[STREAMS];
	bool is_fair, is_right;
};

static bool host_write(struct side *h, unsigned s)
{
	uint8_t block[8192];
	size_t n = sizeof(block);
	ssize_t r;

	if (n > total - h->sent[s])
		n = (size_t)(total - h->sent[s]);
	if (n == 0)
		return false;
	for (size_t i = 0; i < n; i++)
		block[i] = byte_of(s, h->sent[s] + i);
	r = send(host[s], block, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r > 0)
		h->sent[s] += (uint64_t)r;
	return r > 0;
}

static void host_read(struct side *h, unsigned s)
{
	uint8_t block[8192];
	ssize_t r = recv(host[s], block, sizeof(block), MSG_DONTWAIT);

	for (ssize_t i = 0; i < r; i++)
		if (block[i] != byte_of(s, h->got[s]++))
			h->is_right = false;
}

static void *host_side(void *arg)
{
	struct side *h = arg;
	unsigned n_through = 0;

	h->is_right = h->is_fair = true;
	while (n_through < STREAMS) {
		struct pollfd p[STREAMS];
		uint64_t least = UINT64_MAX, most = 0;
		unsigned was = n_through;

		for (unsigned s = 0; s < STREAMS; s++)
			p[s] = (struct pollfd){
				.fd = h->got[s] == total ? -1 : host[s],
				.events = (short)(POLLIN |
						  (h->sent[s] < total ? POLLOUT
								      : 0))};
		if (poll(p, STREAMS, 20000) <= 0)
			break; /* stuck: the caller sees what is missing */
		n_through = 0;
		for (unsigned s = 0; s < STREAMS; s++) {
			if (p[s].revents & POLLOUT)
				host_write(h, s);
			if (p[s].revents & POLLIN)
				host_read(h, s);
			n_through += h->got[s] == total;
			least = h->got[s] < least ? h->got[s] : least;
			most = h->got[s] > most ? h->got[s] : most;
		}
		if (was == 0 && n_through > 0 && least < most / 4)
			h->is_fair = false;
	}
	return NULL;
}

/* The guest's end: take a packet into its stream. */
static void guest_take(const struct pkt *p, const uint8_t *data)
{
	struct stream *s = &stream[p->dst_port - 100];

	assert_true(p->op == OP_RW || p->op == OP_CREDIT);
	s->peer_fwd = p->fwd_cnt;
	assert_true(p->len <= GUEST_BUF - s->len); /* kept to our credit */
	for (uint32_t i = 0; i < p->len; i++)
		s->buf[(s->at + s->len + i) % GUEST_BUF] = data[i];
	s->len += p->len;
	s->rx_cnt += p->len;
}

static bool guest_echo(unsigned i)
{
	struct stream *s = &stream[i];
	uint32_t room = VSOCK_BUF_BYTES - (s->tx_cnt - s->peer_fwd);
	uint32_t n = s->len < room ? s->len : room;
	uint8_t block[GUEST_BUF];
	struct pkt p = *PKT(.op = OP_RW, .src_port = 100 + i, .dst_port = 1024,
			    .buf_alloc = GUEST_BUF);
	struct gbuf b[2] = {{ch.tx_buf, sizeof(p), false},
			    {ch.tx_buf + 64, n, false}};

	if (n == 0)
		return false;
	for (uint32_t k = 0; k < n; k++)
		block[k] = s->buf[(s->at + k) % GUEST_BUF];
	s->at = (s->at + n) % GUEST_BUF;
	s->len -= n;
	p.len = n;
	p.fwd_cnt = s->rx_cnt - s->len;
	guest_put(g, ch.tx_buf, &p, sizeof(p));
	guest_put(g, ch.tx_buf + 64, block, n);
	guest_chain(g, 1, b, 2);
	guest_wr(g, R_NOTIFY, 1);
	assert_true(guest_used(g, 1, NULL, NULL));
	s->tx_cnt += n;
	return true;
}

/* One used receive buffer, if there is one. */
static bool guest_receive(void)
{
	static uint8_t data[8192];
	uint32_t id, len;
	struct pkt p;

	if (!guest_used_now(g, 0, &id, &len))
		return false;
	assert_true(len >= sizeof(p));
	guest_get(g, ch.rx_buf + 8192ull * id, &p, sizeof(p));
	guest_get(g, ch.rx_buf + 8192ull * id + sizeof(p), data, p.len);
	rx_post(&ch, id);
	guest_take(&p, data);
	return true;
}

static bool is_through(const struct side *h)
{
	for (unsigned s = 0; s < STREAMS; s++)
		if (stream[s].tx_cnt != (uint32_t)total)
			return false;
	(void)h;
	return true;
}

static void *runner(void *arg)
{
	io_run(arg);
	return NULL;
}

static void streams_open(void)
{
	struct pkt p;

	ch.policy = ANSWER;
	for (unsigned s = 0; s < STREAMS; s++) {
		tx(&ch,
		   PKT(.op = OP_REQUEST, .src_port = 100 + s, .dst_port = 1024,
		       .buf_alloc = GUEST_BUF),
		   NULL, 0);
		assert_true(rx(&ch, &p, NULL));
		assert_int_equal(p.op, OP_RESPONSE);
		host[s] = ch.host_fd;
		ch.host_fd = -1;
	}
}

static void d26_fifty_streams(void **state)
{
	static struct side side;
	pthread_t io_thread, host_thread;
	struct vsock_stats st;
	struct timespec idle = {.tv_nsec = 20000};

	(void)state;
	total = getenv("HUTCH_LONG") ? 20u << 20 : 128u << 10;
	memset(&side, 0, sizeof(side));
	memset(stream, 0, sizeof(stream));
	channel_up(&ch, use_ring);
	channel_start(&ch, 64, 4096);
	streams_open();
	g->has_io_thread = true;
	pthread_create(&io_thread, NULL, runner, ch.io);
	pthread_create(&host_thread, NULL, host_side, &side);
	while (!is_through(&side)) {
		bool did = false;

		for (int i = 0; i < 64 && guest_receive(); i++)
			did = true;
		if (did)
			guest_wr(g, R_NOTIFY, 0);
		for (unsigned s = 0; s < STREAMS; s++)
			did |= guest_echo(s);
		if (!did)
			nanosleep(&idle, NULL);
	}
	pthread_join(host_thread, NULL);
	for (unsigned s = 0; s < STREAMS; s++)
		assert_int_equal(side.got[s], total);
	assert_true(side.is_right);
	assert_true(side.is_fair);
	vsock_stats(ch.v, &st);
	assert_int_equal(st.resets, 0);
	assert_int_equal(st.n_conns, STREAMS);
	io_stop(ch.io);
	pthread_join(io_thread, NULL);
	guest_reset(g);
	for (unsigned s = 0; s < STREAMS; s++)
		close(host[s]);
	vsock_destroy(ch.v);
	io_destroy(ch.io);
	guest_canary_check(&ch.mem);
	mem_finish(&ch.mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(d26_fifty_streams)};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
