/*
 * Guest memory: one reservation with a PROT_NONE guard on both sides.
 *
 *	guard | RAM, 2 MiB aligned ........................ | guard
 *
 * `resolve` is the only place where a guest address becomes a host pointer.
 * It checks the whole range against one part of RAM (below the gap or above
 * it), with no sum that could wrap.  A stray host access past either end
 * faults in the guard instead of touching the VMM's own memory.
 */
#include "mem.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MEM_ALIGN	(2ull << 20)
#define MEM_GUARD_BYTES (64ull << 10)
#define MEM_PAGE_BYTES	4096ull

#ifdef MEM_TRACE
void (*mem_trace_load)(const void *host, size_t len);
#define TRACE_LOAD(p, n) (mem_trace_load ? mem_trace_load(p, n) : (void)0)
#else
#define TRACE_LOAD(p, n) ((void)0)
#endif

/* The compiler may not turn a copy back into loads of the original. */
#define COPIED() __asm__ volatile("" ::: "memory")

static int ram_advise(const struct mem *m)
{
	if (madvise(m->host, m->size, MADV_DONTDUMP) < 0)
		return -errno;
	if (madvise(m->host, m->size, MADV_DONTFORK) < 0)
		return -errno;
	return 0;
}

int mem_init(struct mem *m, uint64_t size)
{
	uint64_t span = size + 2 * MEM_GUARD_BYTES + MEM_ALIGN;
	uint8_t *base, *ram, *end;
	struct mem made;
	int r;

	if (size == 0 || size % MEM_PAGE_BYTES ||
	    size > (uint64_t)MEM_MIB_MAX << 20)
		return -EINVAL;
	base = mmap(NULL, span, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;

	ram = base + MEM_GUARD_BYTES;
	ram += -(uintptr_t)ram & (MEM_ALIGN - 1);
	end = ram + size + MEM_GUARD_BYTES;
	if (ram - MEM_GUARD_BYTES > base)
		munmap(base, (size_t)(ram - MEM_GUARD_BYTES - base));
	if (base + span > end)
		munmap(end, (size_t)(base + span - end));

	made = (struct mem){.host = ram, .size = size};
	if (mprotect(ram, size, PROT_READ | PROT_WRITE) < 0)
		r = -errno;
	else
		r = ram_advise(&made);
	if (r < 0) {
		mem_finish(&made);
		return r;
	}
	*m = made;
	return 0;
}

void mem_finish(struct mem *m)
{
	if (!m->host)
		return;
	munmap(m->host - MEM_GUARD_BYTES, m->size + 2 * MEM_GUARD_BYTES);
	*m = (struct mem){0};
}

static uint8_t *resolve(const struct mem *m, gpa_t at, size_t len)
{
	uint64_t low = m->size < MEM_GAP_START ? m->size : MEM_GAP_START;
	uint64_t high = m->size - low;

	if (at < MEM_GAP_START) {
		if (at > low || len > low - at)
			return NULL;
		return m->host + at;
	}
	if (at < MEM_GAP_END)
		return NULL;
	at -= MEM_GAP_END;
	if (at > high || len > high - at)
		return NULL;
	return m->host + low + at;
}

void mem_copy_in(void *dst, const void *span, size_t len)
{
	memcpy(dst, span, len);
	COPIED();
	TRACE_LOAD(span, len);
}

void mem_copy_out(void *span, const void *src, size_t len)
{
	memcpy(span, src, len);
	COPIED();
}

int mem_read(const struct mem *m, gpa_t src, void *dst, size_t len)
{
	const uint8_t *p = resolve(m, src, len);

	if (!p)
		return -EFAULT;
	mem_copy_in(dst, p, len);
	return 0;
}

int mem_write(struct mem *m, gpa_t dst, const void *src, size_t len)
{
	uint8_t *p = resolve(m, dst, len);

	if (!p)
		return -EFAULT;
	mem_copy_out(p, src, len);
	return 0;
}

void *mem_span(struct mem *m, gpa_t at, size_t len)
{
	return resolve(m, at, len);
}

int mem_load16_acquire(const struct mem *m, gpa_t at, uint16_t *ret)
{
	uint8_t *p = resolve(m, at, sizeof(uint16_t));

	if (!p || at % sizeof(uint16_t))
		return -EFAULT;
	*ret = __atomic_load_n((uint16_t *)(void *)p, __ATOMIC_ACQUIRE);
	TRACE_LOAD(p, sizeof(uint16_t));
	return 0;
}

int mem_store16_release(struct mem *m, gpa_t at, uint16_t v)
{
	uint8_t *p = resolve(m, at, sizeof(uint16_t));

	if (!p || at % sizeof(uint16_t))
		return -EFAULT;
	__atomic_store_n((uint16_t *)(void *)p, v, __ATOMIC_RELEASE);
	return 0;
}
