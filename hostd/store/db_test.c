/* The connection of db.h alone: how many statements it keeps. */
#include "db.h"
#include "store_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define STATEMENTS 300 /* far more than the program has */

/* Each is prepared once and found again; none is one too many. */
static void test_statements(void **state)
{
	static char sql[STATEMENTS][32];
	sqlite3_stmt *st[STATEMENTS];
	struct fixture f;
	struct err e = {0};
	struct db db = {0};

	(void)state;
	fixture_init(&f);
	if (db_open(&db, f.dir, &e))
		fail_msg("%s", e.text);
	for (int turn = 0; turn < 2; turn++)
		for (int i = 0; i < STATEMENTS; i++) {
			struct query q;

			snprintf(sql[i], sizeof(sql[i]), "SELECT %d + ?1", i);
			q = query(&db, sql[i]);
			assert_int_equal(q.rc, 0);
			if (!turn)
				st[i] = q.st;
			assert_ptr_equal(q.st, st[i]);
			q_int(&q, turn);
			assert_int_equal(q_row(&q), 1);
			assert_int_equal(q_int_at(&q, 0), i + turn);
			q_end(&q);
		}
	assert_int_equal(db.n_cached, STATEMENTS);
	db_close(&db);
	fixture_finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_statements)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
