/* The page of the express lane; see lane_page.h. */
#include "lane_page.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POOL_FILE "/proc/sys/vm/nr_hugepages"

/* Of an entry of /proc/self/pagemap (admin-guide/mm/pagemap.rst). */
#define PAGE_BYTES	 4096u
#define PAGEMAP_PRESENT	 (1ull << 63)
#define PAGEMAP_PFN_MASK ((1ull << 55) - 1)

static int pool_set(const char *n)
{
	_cleanup_fd_ int fd = open(POOL_FILE, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, n, strlen(n)) < 0)
		return -errno;
	return 0;
}

/* The kernel gives as many as it can: whether one is there shows in mmap. */
static int page_map(struct lane_page *p, const char **ret_what)
{
	void *at;
	int rc;

	*ret_what = POOL_FILE;
	rc = pool_set("1");
	if (rc)
		return rc;
	*ret_what = "memfd";
	p->fd = memfd_create("lane", MFD_HUGETLB | MFD_HUGE_2MB | MFD_CLOEXEC);
	if (p->fd < 0 || ftruncate(p->fd, LANE_PAGE_BYTES))
		return -errno;
	*ret_what = "mmap of a huge page";
	at = mmap(NULL, LANE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		  p->fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	p->head = at;
	*p->head = (struct lane_head){.state = LANE_CLOSED};
	return 0;
}

int lane_page_frame(const struct lane_page *p, uint64_t *ret)
{
	_cleanup_fd_ int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry, pfn;
	int rc;

	if (fd < 0)
		return -errno;
	rc = fd_pread_all(
		fd, &entry, sizeof(entry),
		(off_t)((uintptr_t)p->head / PAGE_BYTES * sizeof(entry)));
	if (rc)
		return rc;
	pfn = entry & PAGEMAP_PFN_MASK;
	/* 0: this process may not see frame numbers. */
	if (!(entry & PAGEMAP_PRESENT) || !pfn ||
	    pfn % (LANE_PAGE_BYTES / PAGE_BYTES))
		return -ENXIO;
	*ret = pfn / (LANE_PAGE_BYTES / PAGE_BYTES);
	return 0;
}

int lane_page_make(struct lane_page *p, uint64_t *ret_frame, char *why,
		   size_t why_cap)
{
	const char *what;
	int rc;

	*p = (struct lane_page){.fd = -1};
	rc = page_map(p, &what);
	if (!rc) {
		what = "its frame number";
		rc = lane_page_frame(p, ret_frame);
	}
	if (!rc)
		return 0;
	snprintf(why, why_cap, "%s: %s", what, strerror(-rc));
	lane_page_finish(p);
	pool_set("0");
	return rc;
}

void lane_page_finish(struct lane_page *p)
{
	if (p->head)
		munmap(p->head, LANE_PAGE_BYTES);
	p->head = NULL;
	fd_close(&p->fd);
}

void lane_page_close(struct lane_page *p)
{
	__atomic_store_n(&p->head->state, LANE_CLOSED, __ATOMIC_RELEASE);
}

void lane_page_ready(struct lane_page *p)
{
	p->head->version = LANE_VERSION;
	p->head->request_len = p->head->answer_len = 0;
	__atomic_store_n(&p->head->state, LANE_READY, __ATOMIC_RELEASE);
}

void lane_page_turn(struct lane_page *p, enum lane_turn turn)
{
	uint32_t *word = lane_page_at(p, LANE_TURN_OFF);

	__atomic_store_n(word, turn, __ATOMIC_RELEASE);
	if (turn == LANE_TURN_GIVEN)
		syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool lane_page_move(struct lane_page *p, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&p->head->state, &from, to, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void *lane_page_at(const struct lane_page *p, uint32_t off)
{
	return (uint8_t *)p->head + off;
}

uint32_t lane_page_state(const struct lane_page *p)
{
	return __atomic_load_n(&p->head->state, __ATOMIC_ACQUIRE);
}
