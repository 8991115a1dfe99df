/* Grants in memory; see grants.h. */
#include "grants.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void grants_finish(struct grants *g)
{
	free(g->list);
	memset(g, 0, sizeof(*g));
}

static void forget(struct grants *g, int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (g->list[i].grant.expires_ms + GRANT_REMEMBERED_MS < now_ms)
			continue;
		if (kept != i)
			g->list[kept] = g->list[i];
		kept++;
	}
	g->n = kept;
}

int grants_add(struct grants *g, const struct grant_row *row, int64_t now_ms)
{
	struct grant *to;

	forget(g, now_ms);
	if (g->n == g->cap) {
		size_t cap = g->cap ? g->cap * 2 : 16;
		void *more = realloc(g->list, cap * sizeof(*g->list));

		if (!more)
			return -ENOMEM;
		g->list = more;
		g->cap = cap;
	}
	memcpy(g->list[g->n].hash, row->hash, HASH_BYTES);
	to = &g->list[g->n++].grant;
	memcpy(to->environment, row->environment, sizeof(to->environment));
	memcpy(to->graph, row->graph, sizeof(to->graph));
	to->origin = row->origin;
	to->access = route_access_of_operation(row->operation);
	to->epoch = row->epoch;
	to->issued_ms = row->issued_ms;
	to->expires_ms = row->expires_ms;
	return 0;
}

static bool is_same_step(const struct grant *g, const char *environment,
			 const char *graph, const struct origin *o)
{
	return !strcmp(g->environment, environment) &&
	       !strcmp(g->graph, graph) &&
	       !strcmp(g->origin.workflow, o->workflow) &&
	       !strcmp(g->origin.run, o->run) &&
	       !strcmp(g->origin.step, o->step);
}

/* The latest attempt of the step that is known. */
static int fence(const struct grants *g, const char *environment,
		 const char *graph, const struct origin *o, struct err *e)
{
	uint32_t latest = o->attempt;

	for (size_t i = 0; i < g->n; i++) {
		const struct grant *other = &g->list[i].grant;

		if (other->origin.attempt > latest &&
		    is_same_step(other, environment, graph, o))
			latest = other->origin.attempt;
	}
	if (latest == o->attempt)
		return 0;
	return err_set(e, ERR_FENCE_LOST, "attempt",
		       "attempt %u of step %.64s of workflow %.64s is over: "
		       "attempt %u has begun",
		       o->attempt, o->step, o->workflow, latest);
}

int grants_may_issue(struct grants *g, const struct grant_row *row,
		     int64_t now_ms, struct err *e)
{
	forget(g, now_ms);
	if (fence(g, row->environment, row->graph, &row->origin, e))
		return -1;
	if (g->n < GRANTS_MAX)
		return 0;
	err_set(e, ERR_LIMIT_REACHED, NULL,
		"%zu grants were given in the last two minutes, as many as may "
		"be: wait until some are over",
		g->n);
	e->retry_after_s = 10;
	return -1;
}

int grants_make(struct grant_row *row, char token[GRANT_TOKEN_BYTES])
{
	uint8_t raw[32];
	int n;

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return -EIO;
	n = snprintf(token, GRANT_TOKEN_BYTES, GRANT_PREFIX);
	for (size_t i = 0; i < sizeof(raw); i++)
		n += snprintf(token + n, GRANT_TOKEN_BYTES - (size_t)n, "%02x",
			      raw[i]);
	OPENSSL_cleanse(raw, sizeof(raw));
	SHA256((const uint8_t *)token, (size_t)n, row->hash);
	return 0;
}

int grants_check(const struct grants *g, const char *token, int64_t now_ms,
		 struct grant *ret, struct err *e)
{
	const struct grant *found = NULL;
	uint8_t hash[HASH_BYTES];
	size_t len = strlen(token);

	if (len < GRANT_TOKEN_BYTES) {
		SHA256((const uint8_t *)token, len, hash);
		for (size_t i = 0; i < g->n; i++)
			if (!CRYPTO_memcmp(g->list[i].hash, hash, HASH_BYTES))
				found = &g->list[i].grant;
	}
	if (!found || found->access == ACCESS_OPEN)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "this grant is not known here");
	/* A clock that was set back gives it no second life. */
	if (now_ms >= found->expires_ms ||
	    now_ms < found->issued_ms - GRANT_TTL_MS_MAX)
		return err_set(
			e, ERR_GRANT_EXPIRED, NULL,
			"this grant was for %lld s, and they are over: "
			"ask for another",
			(long long)(found->expires_ms - found->issued_ms) /
				1000);
	if (fence(g, found->environment, found->graph, &found->origin, e))
		return -1;
	*ret = *found;
	return 0;
}
