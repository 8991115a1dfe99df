/* What the tests of the store share: a loop, a folder, records. */
#ifndef HUTCHD_STORE_TEST_UTIL_H
#define HUTCHD_STORE_TEST_UTIL_H

#include "../loop.h"
#include "op.h"
#include "store.h"

struct fixture {
	char dir[64]; /* private, removed by fixture_finish */
	struct loop *loop;
	struct store *store;
};
void fixture_init(struct fixture *f);
void fixture_open(struct fixture *f);  /* fails the test when it cannot */
void fixture_close(struct fixture *f); /* the store only */
void fixture_finish(struct fixture *f);

/* HUTCH_LONG=1: full counts. */
bool is_long_run(void);

/* Records number `n` of environment env_a, graph main. */
struct sandbox_rec sandbox_of(int n);
struct command_rec command_of(int n); /* command_rec_finish it */

/* Run the loop until `answers` is reached; each callback below adds one. */
struct answer {
	struct loop *loop;
	int n, rc;
	struct store_found found;
	struct sandbox_rec sbx;
	struct command_rec cmd; /* copy, owned */
	char ids[64][ID_BYTES_MAX];
	size_t n_ids;
	bool has_more;
};
void answer_init(struct answer *a, struct fixture *f);
void answer_wait(struct answer *a, int n);
void answer_finish(struct answer *a);
void on_rc(void *ctx, int rc);
void on_found(void *ctx, int rc, const struct store_found *f);
void on_sandbox(void *ctx, int rc, struct sandbox_rec *r);
void on_command(void *ctx, int rc, struct command_rec *r);
void on_run(void *ctx, int rc, struct sandbox_rec *s, struct command_rec *c);
void on_sandboxes(void *ctx, int rc, struct sandbox_rec *r, size_t n,
		  bool has_more);
void on_commands(void *ctx, int rc, struct command_rec *r, size_t n,
		 bool has_more);

/* Begin run `n` under `key` and wait; the rc, *ret_found. */
int begin_now(struct fixture *f, int n, const char *key,
	      struct store_found *ret_found);
int update_now(struct fixture *f, const struct sandbox_rec *s,
	       const struct command_rec *c, bool with_output);

/* The database by a connection of its own, while no store is open. */
void raw_exec(const struct fixture *f, const char *sql);
/* Opens the database that the file of SQL makes; the fixture is new. */
void saved_schema_load(struct fixture *f, const char *path);
int64_t raw_number(const struct fixture *f, const char *sql);

#endif
