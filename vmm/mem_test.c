/* Guest memory: edges of both parts, overflow, guards. */
#include "mem.c"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define MIB (1ull << 20)

static void sizes_refused(void **state)
{
	struct mem m = {0};

	(void)state;
	assert_int_equal(mem_init(&m, 0), -EINVAL);
	assert_int_equal(mem_init(&m, 4095), -EINVAL);
	assert_int_equal(mem_init(&m, (MEM_MIB_MAX + 1) * MIB), -EINVAL);
	assert_int_equal(mem_init(&m, UINT64_MAX), -EINVAL);
	assert_null(m.host);
	mem_finish(&m);
}

static void edges_of_small_ram(void **state)
{
	struct mem m;
	uint8_t b[8] = {1, 2, 3, 4, 5, 6, 7, 8}, c[8];

	(void)state;
	assert_int_equal(mem_init(&m, MIB), 0);
	assert_int_equal((uintptr_t)m.host % (2 * MIB), 0);
	assert_int_equal(mem_write(&m, MIB - 8, b, 8), 0);
	assert_int_equal(mem_read(&m, MIB - 8, c, 8), 0);
	assert_memory_equal(b, c, 8);
	assert_int_equal(mem_write(&m, MIB - 7, b, 8), -EFAULT);
	assert_int_equal(mem_read(&m, MIB - 8, c, 8), 0);
	assert_memory_equal(b, c, 8); /* untouched by the failure */
	assert_int_equal(mem_read(&m, MIB, c, 1), -EFAULT);
	assert_int_equal(mem_read(&m, MIB, c, 0), 0);
	assert_int_equal(mem_read(&m, MIB + 1, c, 0), -EFAULT);
	assert_int_equal(mem_read(&m, UINT64_MAX, c, 1), -EFAULT);
	assert_int_equal(mem_read(&m, UINT64_MAX - 3, c, 8), -EFAULT);
	assert_null(mem_span(&m, 0, SIZE_MAX));
	assert_null(mem_span(&m, 1, SIZE_MAX));
	assert_null(mem_span(&m, MEM_GAP_START, 1));
	assert_null(mem_span(&m, MEM_GAP_END, 1));
	assert_non_null(mem_span(&m, 0, MIB));
	assert_null(mem_span(&m, 0, MIB + 1));
	mem_finish(&m);
	mem_finish(&m);
}

static void gap(void **state)
{
	struct mem m;
	uint8_t b = 7, c;

	(void)state;
	/* Reserved, not touched: only the pages written take memory. */
	assert_int_equal(mem_init(&m, MEM_GAP_START + 512 * MIB), 0);
	assert_int_equal(mem_write(&m, MEM_GAP_START - 1, &b, 1), 0);
	assert_int_equal(mem_write(&m, MEM_GAP_END, &b, 1), 0);
	assert_int_equal(mem_read(&m, MEM_GAP_END, &c, 1), 0);
	assert_int_equal(c, 7);
	assert_ptr_equal((uint8_t *)mem_span(&m, MEM_GAP_END, 1) - 1,
			 mem_span(&m, MEM_GAP_START - 1, 1));
	/* B11: contiguous on the host, not in guest addresses; and not the
	 * other way round either. */
	assert_null(mem_span(&m, MEM_GAP_START - 1, 2));
	assert_null(mem_span(&m, MEM_GAP_START, 1));
	assert_null(mem_span(&m, MEM_GAP_END - 1, 2));
	assert_non_null(mem_span(&m, MEM_GAP_END, 512 * MIB));
	assert_null(mem_span(&m, MEM_GAP_END, 512 * MIB + 1));
	mem_finish(&m);
}

static void indexes(void **state)
{
	struct mem m;
	uint16_t v = 9;

	(void)state;
	assert_int_equal(mem_init(&m, MIB), 0);
	assert_int_equal(mem_store16_release(&m, MIB - 2, 0x1234), 0);
	assert_int_equal(mem_load16_acquire(&m, MIB - 2, &v), 0);
	assert_int_equal(v, 0x1234);
	assert_int_equal(mem_load16_acquire(&m, MIB - 1, &v), -EFAULT);
	assert_int_equal(mem_load16_acquire(&m, 1, &v), -EFAULT);
	assert_int_equal(mem_store16_release(&m, MIB, 1), -EFAULT);
	assert_int_equal(v, 0x1234);
	mem_finish(&m);
}

static sigjmp_buf fault;

static void on_segv(int sig)
{
	(void)sig;
	siglongjmp(fault, 1);
}

static bool faults(volatile uint8_t *p)
{
	if (sigsetjmp(fault, 1))
		return true;
	(void)*p;
	return false;
}

static void guards(void **state)
{
	struct sigaction sa = {.sa_handler = on_segv}, was;
	struct mem m;

	(void)state;
	assert_int_equal(mem_init(&m, MIB), 0);
	sigaction(SIGSEGV, &sa, &was);
	assert_true(faults(m.host - 1));
	assert_false(faults(m.host));
	assert_false(faults(m.host + MIB - 1));
	assert_true(faults(m.host + MIB));
	assert_true(faults(m.host + MIB + MEM_GUARD_BYTES - 1));
	assert_true(faults(m.host - MEM_GUARD_BYTES));
	sigaction(SIGSEGV, &was, NULL);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_refused),
		cmocka_unit_test(edges_of_small_ram),
		cmocka_unit_test(gap),
		cmocka_unit_test(indexes),
		cmocka_unit_test(guards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
