/* See touched.h. */
#include "touched.h"
#include "../thread.h"
#include "log.h"
#include "memfile.h"
#include "pagemap.h"
#include "sealed.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

static const struct codec_field run_table[] = {
	CODEC_FIELD_UINT(1, struct touched_run, off),
	CODEC_FIELD_UINT(2, struct touched_run, len),
	CODEC_FIELD_END,
};

static const struct codec_field touched_table[] = {
	CODEC_FIELD_FIXED(1, struct touched, mem_sum),
	CODEC_FIELD_LIST(2, struct touched, all, n_all, run_table),
	CODEC_FIELD_LIST(3, struct touched, own, n_own, run_table),
	CODEC_FIELD_END,
};

static const struct sealed_kind touched_kind = {
	.name = "file of touched pages",
	.magic = {'h', 'u', 't', 'c', 'h', '-', 't', 'p'},
	.version = TOUCHED_VERSION,
	.table = touched_table,
};

/* ---- recording ---- */

struct runs {
	struct touched_run *run;
	uint32_t n;
	uint64_t gap, bytes_max;
	uint64_t bytes;
};

/* Pages come in order.  -E2BIG: there are too many runs. */
static int runs_add(struct runs *l, uint64_t page)
{
	struct touched_run *last = l->n ? &l->run[l->n - 1] : NULL;
	uint64_t end = page + PAGEMAP_PAGE_BYTES;
	bool is_near = last && page - (last->off + last->len) <= l->gap;
	uint64_t more =
		is_near ? end - (last->off + last->len) : PAGEMAP_PAGE_BYTES;

	if (l->bytes + more > l->bytes_max) {
		l->bytes_max = 0; /* the first ones are enough */
		return 0;
	}
	if (!is_near && l->n == TOUCHED_RUNS_MAX)
		return -E2BIG;
	l->bytes += more;
	if (is_near)
		last->len += more;
	else
		l->run[l->n++] = (struct touched_run){page, more};
	return 0;
}

static int scan(const struct mem *m, int pagemap, const struct extent *over,
		uint32_t n_over, struct runs *all, struct runs *own)
{
	uint64_t pm[PAGEMAP_BATCH];
	bool is_file;
	int r = 0;

	for (uint64_t at = 0; r == 0 && at < m->size;
	     at += PAGEMAP_BATCH * PAGEMAP_PAGE_BYTES) {
		size_t n = (m->size - at) / PAGEMAP_PAGE_BYTES;

		if (n > PAGEMAP_BATCH)
			n = PAGEMAP_BATCH;
		is_file = extents_hold(over, n_over, at);
		r = pagemap_read(pagemap, m, at, pm, n);
		for (size_t i = 0; r == 0 && i < n; i++) {
			uint64_t page = at + i * PAGEMAP_PAGE_BYTES;

			if (is_file && pagemap_is_touched(pm[i]))
				r = runs_add(all, page);
			if (r == 0 && pagemap_is_own(pm[i]))
				r = runs_add(own, page);
		}
	}
	return r;
}

/* When there are too many runs, small gaps are filled: twice as large ones at
 * each round. */
static int record(const struct mem *m, int pagemap, const struct extent *over,
		  uint32_t n_over, struct touched *t)
{
	uint64_t gap = 0;
	int r;

	do {
		struct runs all = {t->all, 0, gap, m->size, 0};
		struct runs own = {t->own, 0, gap, TOUCHED_OWN_BYTES_MAX, 0};

		r = scan(m, pagemap, over, n_over, &all, &own);
		t->n_all = all.n;
		t->n_own = own.n;
		gap = gap ? 2 * gap : PAGEMAP_PAGE_BYTES;
	} while (r == -E2BIG);
	return r;
}

int touched_write(const struct mem *m, int pagemap, const struct extent *over,
		  uint32_t n_over, const uint8_t mem_sum[SHA256_BYTES], int fd,
		  struct err *e)
{
	struct touched *t = calloc(1, sizeof(*t));
	int r = t ? record(m, pagemap, over, n_over, t) : -ENOMEM;

	if (r < 0) {
		err_set(e, ERR_INTERNAL, NULL, "touched pages: %s",
			strerror(-r));
	} else {
		memcpy(t->mem_sum, mem_sum, SHA256_BYTES);
		r = sealed_write(fd, &touched_kind, t, e);
	}
	free(t);
	return r;
}

/* ---- using it ---- */

/* In order, whole pages, inside of RAM; the sum, or UINT64_MAX. */
static uint64_t runs_bytes(const struct touched_run *run, uint32_t n,
			   const struct mem *m)
{
	uint64_t end = 0, sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct touched_run *r = &run[i];

		if (r->off < end || r->off % PAGEMAP_PAGE_BYTES ||
		    r->len == 0 || r->len % PAGEMAP_PAGE_BYTES ||
		    r->off > m->size || r->len > m->size - r->off)
			return UINT64_MAX;
		end = r->off + r->len;
		sum += r->len;
	}
	return sum;
}

int touched_read(int fd, const struct mem *m,
		 const uint8_t mem_sum[SHA256_BYTES], struct touched *ret,
		 struct err *e)
{
	if (sealed_read(fd, &touched_kind, ret, e) < 0)
		return -1;
	if (memcmp(ret->mem_sum, mem_sum, SHA256_BYTES) != 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "%s: it is of another memory file",
			       touched_kind.name);
	if (runs_bytes(ret->all, ret->n_all, m) == UINT64_MAX ||
	    runs_bytes(ret->own, ret->n_own, m) > TOUCHED_OWN_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "%s: its runs overlap, lie outside of memory or "
			       "are too many",
			       touched_kind.name);
	return 0;
}

/* Does a read of its first byte not have to wait? */
static bool is_cached(int mem_fd, uint64_t off)
{
	uint8_t byte;
	struct iovec v = {&byte, sizeof(byte)};

	return preadv2(mem_fd, &v, 1, (off_t)off, RWF_NOWAIT) == 1;
}

static void get_ahead(const struct touched_work *w, const struct touched *t)
{
	for (uint32_t i = 0; i < t->n_all; i++)
		if (!is_cached(w->mem_fd, t->all[i].off))
			(void)posix_fadvise(w->mem_fd, (off_t)t->all[i].off,
					    (off_t)t->all[i].len,
					    POSIX_FADV_WILLNEED);
	/* A host that is short of memory, or too old: faults do it later. */
	for (uint32_t i = 0; i < t->n_own; i++)
		if (madvise(w->mem->host + t->own[i].off, t->own[i].len,
			    MADV_POPULATE_WRITE) < 0)
			break;
}

static void *work(void *arg)
{
	const struct touched_work *w = arg;
	struct touched *t = calloc(1, sizeof(*t));
	struct err e = {0};

	if (!t)
		err_set(&e, ERR_INTERNAL, NULL, "touched pages: out of memory");
	if (t && touched_read(w->fd, w->mem, w->mem_sum, t, &e) == 0)
		get_ahead(w, t);
	else
		log_warn("%s; the run is slower without", e.text);
	free(t);
	return NULL;
}

void touched_start(struct touched_work *w)
{
	if (w->fd < 0)
		return;
	if (thread_create(&w->thread, work, w) == 0)
		w->is_running = true;
	else
		work(w);
}

void touched_wait(struct touched_work *w)
{
	if (w->is_running)
		pthread_join(w->thread, NULL);
	w->is_running = false;
}
