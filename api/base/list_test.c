/* Unit tests of list.h. */
#include "list.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

struct item {
	int value;
	struct list node;
};

static void order_is_first_in_first_out(void **state)
{
	struct item items[5];
	struct list head, *p, *tmp;
	int want = 0;

	(void)state;
	list_init(&head);
	assert_true(list_is_empty(&head));
	for (int i = 0; i < 5; i++) {
		items[i].value = i;
		list_append(&head, &items[i].node);
	}
	list_for_each_safe(p, tmp, &head) assert_int_equal(
		container_of(p, struct item, node)->value, want++);
	assert_int_equal(want, 5);
}

static void remove_while_walking(void **state)
{
	struct item items[6];
	struct list head, *p, *tmp;
	int sum = 0;

	(void)state;
	list_init(&head);
	for (int i = 0; i < 6; i++) {
		items[i].value = i;
		list_append(&head, &items[i].node);
	}
	list_for_each_safe(
		p, tmp, &head) if (container_of(p, struct item, node)->value %
				   2) list_remove(p);
	list_for_each_safe(p, tmp, &head) sum +=
		container_of(p, struct item, node)->value;
	assert_int_equal(sum, 0 + 2 + 4);
}

static void remove_twice_is_harmless(void **state)
{
	struct item a, b;
	struct list head;

	(void)state;
	list_init(&head);
	list_append(&head, &a.node);
	list_append(&head, &b.node);
	list_remove(&a.node);
	list_remove(&a.node);
	assert_ptr_equal(head.next, &b.node);
	assert_ptr_equal(head.prev, &b.node);
	list_remove(&b.node);
	assert_true(list_is_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_is_first_in_first_out),
		cmocka_unit_test(remove_while_walking),
		cmocka_unit_test(remove_twice_is_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
