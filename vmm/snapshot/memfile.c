/* See memfile.h. */
#include "memfile.h"
#include "fault.h"
#include "fd.h"
#include "pagemap.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES	4096ull
#define BLOCK_BYTES	(2ull << 20)
#define PAGES_PER_BLOCK (BLOCK_BYTES / PAGE_BYTES)
#define BLOCKS_MAX	(((uint64_t)MEM_MIB_MAX << 20) / BLOCK_BYTES)

struct writer {
	const struct mem *m;
	int fd;
	struct sha256 sum;
	uint64_t run, run_len; /* data pages not yet written */
	uint64_t data_bytes;
	uint64_t block[(BLOCKS_MAX + 63) / 64]; /* has data */
};

static bool is_zero_page(const uint8_t *page)
{
	const uint64_t *p = (const uint64_t *)(const void *)page;
	uint64_t any = 0;

	for (unsigned i = 0; i < PAGE_BYTES / sizeof(*p); i += 8) {
		for (unsigned j = 0; j < 8; j++)
			any |= p[i + j];
		if (any)
			return false;
	}
	return true;
}

static void sum_run(struct sha256 *s, uint64_t off, uint64_t len,
		    const void *data)
{
	sha256_add(s, &off, sizeof(off));
	sha256_add(s, &len, sizeof(len));
	sha256_add(s, data, len);
}

static int end_run(struct writer *w)
{
	int r = 0;

	if (w->run_len) {
		sum_run(&w->sum, w->run, w->run_len, w->m->host + w->run);
		r = fd_pwrite_all(w->fd, w->m->host + w->run, w->run_len,
				  (off_t)w->run);
		w->data_bytes += w->run_len;
		fault_point(FAULT_VMM_SAVE_MEMORY);
	}
	w->run_len = 0;
	return r;
}

/* Runs end at blocks, so that the reader of the file finds the same ones. */
static int add_page(struct writer *w, uint64_t off)
{
	uint64_t block = off / BLOCK_BYTES;

	w->block[block / 64] |= 1ull << block % 64;
	if (w->run_len == 0)
		w->run = off;
	w->run_len += PAGE_BYTES;
	return 0;
}

bool extents_hold(const struct extent *over, uint32_t n, uint64_t off)
{
	for (uint32_t i = 0; i < n; i++)
		if (off >= over[i].off && off - over[i].off < over[i].len)
			return true;
	return false;
}

static int write_block(struct writer *w, int pagemap, uint64_t off,
		       uint64_t len, bool is_file)
{
	uint64_t pm[PAGES_PER_BLOCK];
	size_t n = len / PAGE_BYTES;
	int r = pagemap_read(pagemap, w->m, off, pm, n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		uint64_t page = off + i * PAGE_BYTES;

		/* Never touched, and no file below it: reads as zeros. */
		bool is_there = is_file || pagemap_is_there(pm[i]);

		if (is_there && !is_zero_page(w->m->host + page))
			r = add_page(w, page);
		else
			r = end_run(w);
	}
	return r < 0 ? r : end_run(w);
}

/* Runs of blocks with data.  When there are too many, the smallest gaps are
 * filled: twice as large ones at each round. */
static void find_extents(const struct writer *w, struct vm_state *s)
{
	uint64_t gap = 0;

again:
	s->n_extents = 0;
	for (uint64_t off = 0; off < w->m->size; off += BLOCK_BYTES) {
		uint64_t block = off / BLOCK_BYTES, len = BLOCK_BYTES;
		struct extent *last =
			s->n_extents ? &s->extent[s->n_extents - 1] : NULL;

		if (!(w->block[block / 64] >> block % 64 & 1))
			continue;
		if (len > w->m->size - off)
			len = w->m->size - off;
		if (last && off - (last->off + last->len) <= gap) {
			last->len = off + len - last->off;
			continue;
		}
		if (s->n_extents == STATE_EXTENTS_MAX) {
			gap = gap ? 2 * gap : BLOCK_BYTES;
			goto again;
		}
		s->extent[s->n_extents++] =
			(struct extent){.off = off, .len = len};
	}
}

int memfile_write(const struct mem *m, int pagemap, int fd,
		  const struct extent *over, uint32_t n_over,
		  struct vm_state *s, struct err *e)
{
	struct writer w = {.m = m, .fd = fd};
	int r = 0;

	sha256_init(&w.sum);
	if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)m->size) < 0)
		r = -errno;
	for (uint64_t off = 0; r == 0 && off < m->size; off += BLOCK_BYTES) {
		uint64_t len = m->size - off < BLOCK_BYTES ? m->size - off
							   : BLOCK_BYTES;

		r = write_block(&w, pagemap, off, len,
				extents_hold(over, n_over, off));
	}
	if (r < 0) {
		err_set(e, ERR_INTERNAL, NULL, "memory file: %s", strerror(-r));
		return r;
	}
	sha256_end(&w.sum, s->mem_sum);
	s->mem_data_bytes = w.data_bytes;
	find_extents(&w, s);
	return 0;
}

static int refuse(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "restore", "memory file: %s",
		       what);
}

static int check(const struct mem *m, int fd, const struct vm_state *s,
		 struct err *e)
{
	uint64_t end = 0;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return refuse(e, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(e, "not a regular file");
	if ((uint64_t)st.st_size != m->size)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "memory file: torn: %lld bytes, %llu are needed",
			       (long long)st.st_size,
			       (unsigned long long)m->size);
	for (uint32_t i = 0; i < s->n_extents; i++) {
		const struct extent *x = &s->extent[i];

		if (x->off < end || x->off % BLOCK_BYTES || x->len == 0 ||
		    x->len % PAGE_BYTES || x->off > m->size ||
		    x->len > m->size - x->off)
			return refuse(e, "its parts overlap or lie outside");
		end = x->off + x->len;
	}
	return 0;
}

/* The sum again, from the mapping: page runs within blocks. */
static int verify(const struct mem *m, const struct vm_state *s, struct err *e)
{
	uint8_t sum[SHA256_BYTES];
	struct sha256 all;

	sha256_init(&all);
	for (uint32_t i = 0; i < s->n_extents; i++) {
		uint64_t run = 0, len = 0;
		uint64_t end = s->extent[i].off + s->extent[i].len;

		for (uint64_t at = s->extent[i].off; at <= end;
		     at += PAGE_BYTES) {
			bool is_end = at % BLOCK_BYTES == 0 || at == end;
			bool is_data = at < end && !is_zero_page(m->host + at);

			if (len && (is_end || !is_data)) {
				sum_run(&all, run, len, m->host + run);
				len = 0;
			}
			if (is_data && !len)
				run = at;
			len += is_data ? PAGE_BYTES : 0;
		}
	}
	sha256_end(&all, sum);
	if (memcmp(sum, s->mem_sum, sizeof(sum)) != 0)
		return refuse(e, "altered: its SHA-256 does not match");
	return 0;
}

int memfile_map(struct mem *m, int fd, const struct vm_state *s,
		bool is_verified, struct err *e)
{
	if (check(m, fd, s, e) < 0)
		return -1;
	for (uint32_t i = 0; i < s->n_extents; i++) {
		const struct extent *x = &s->extent[i];
		void *at = m->host + x->off;

		if (mmap(at, x->len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd,
			 (off_t)x->off) != at ||
		    madvise(at, x->len, MADV_DONTDUMP) < 0 ||
		    madvise(at, x->len, MADV_DONTFORK) < 0)
			return refuse(e, strerror(errno));
	}
	return is_verified ? verify(m, s, e) : 0;
}
