/* API keys; see auth.h. */
#include "auth.h"
#include "../clock.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

struct entry {
	uint8_t hash[HASH_BYTES];
	struct key_info info;
};

struct keys {
	struct entry *list; /* owned */
	size_t n, cap;
};

struct auth {
	struct store *store; /* borrowed */
	struct keys keys;
	struct realm realm;
	struct grants grants;
};

struct load {
	struct auth *auth;
	struct keys keys;
	struct realm realm;
	int rc;
	void (*done)(void *ctx, int rc);
	void *ctx;
};

int auth_create(struct auth **ret, struct store *s)
{
	struct auth *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->store = s;
	*ret = a;
	return 0;
}

void auth_destroy(struct auth *a)
{
	if (!a)
		return;
	free(a->keys.list);
	realm_finish(&a->realm);
	grants_finish(&a->grants);
	free(a);
}

const struct realm *auth_realm(const struct auth *a)
{
	return &a->realm;
}

static int keys_add(struct keys *keys, const struct key_info *k,
		    const uint8_t hash[HASH_BYTES])
{
	if (keys->n == AUTH_KEYS_MAX)
		return -E2BIG;
	if (keys->n == keys->cap) {
		size_t cap = keys->cap ? keys->cap * 2 : 16;
		struct entry *more = realloc(keys->list, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		keys->list = more;
		keys->cap = cap;
	}
	memcpy(keys->list[keys->n].hash, hash, HASH_BYTES);
	keys->list[keys->n++].info = *k;
	return 0;
}

static void load_end(struct load *l)
{
	struct auth *a = l->auth;

	if (!l->rc) {
		free(a->keys.list);
		a->keys = l->keys;
		realm_finish(&a->realm);
		a->realm = l->realm;
	} else {
		free(l->keys.list);
		realm_finish(&l->realm);
	}
	l->done(l->ctx, l->rc);
	free(l);
}

static void load_key(void *ctx, int rc, const struct key_info *k,
		     const uint8_t hash[HASH_BYTES])
{
	struct load *l = ctx;

	if (!rc && k)
		rc = keys_add(&l->keys, k, hash);
	if (rc && !l->rc)
		l->rc = rc;
	if (!k)
		load_end(l);
}

static void load_realm(void *ctx, int rc, const struct realm_rows *rows)
{
	struct load *l = ctx;

	if (!rc)
		rc = realm_take(&l->realm, rows);
	if (!rc)
		rc = store_key_list(l->auth->store, load_key, l);
	if (!rc)
		return; /* it may be over, and gone, by now */
	l->rc = rc;
	load_end(l);
}

int auth_load(struct auth *a, void (*done)(void *ctx, int rc), void *ctx)
{
	struct load *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->auth = a;
	l->done = done;
	l->ctx = ctx;
	rc = store_realm_load(a->store, false, load_realm, l);
	if (rc)
		free(l);
	return rc;
}

/* ---- grants ----------------------------------------------------------- */

struct grants_load {
	struct auth *auth;
	int64_t now_ms;
	void (*done)(void *ctx, int rc);
	void *ctx;
};

static void on_grants(void *ctx, int rc, const struct grant_row *rows, size_t n)
{
	struct grants_load l = *(struct grants_load *)ctx;

	free(ctx);
	for (size_t i = 0; !rc && i < n; i++)
		rc = grants_add(&l.auth->grants, &rows[i], l.now_ms);
	l.done(l.ctx, rc);
}

int auth_load_grants(struct auth *a, void (*done)(void *ctx, int rc), void *ctx)
{
	struct grants_load *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	*l = (struct grants_load){a, clock_wall_ms(), done, ctx};
	rc = store_grant_load(a->store, l->now_ms, on_grants, l);
	if (rc)
		free(l);
	return rc;
}

struct grants *auth_grants(struct auth *a)
{
	return &a->grants;
}

/* ---- headers ---------------------------------------------------------- */

static const char *bearer(const char *header)
{
	if (!header || strncasecmp(header, "Bearer ", 7))
		return NULL;
	for (header += 7; *header == ' '; header++)
		;
	return header;
}

bool auth_is_grant(const char *header)
{
	const char *token = bearer(header);

	return token && !strncmp(token, GRANT_PREFIX, sizeof(GRANT_PREFIX) - 1);
}

int auth_check_grant(const struct auth *a, const char *header, int64_t now_ms,
		     struct grant *ret, struct err *e)
{
	return grants_check(&a->grants, bearer(header), now_ms, ret, e);
}

int auth_check(const struct auth *a, const char *header,
	       const struct key_info **ret, struct err *e)
{
	const char *key = bearer(header);
	const struct entry *found = NULL;
	uint8_t hash[HASH_BYTES];
	size_t len;

	if (!header)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "no API key: send Authorization: Bearer "
			       "lbb_sk_...");
	if (!key)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "the Authorization header is not of the form "
			       "Bearer lbb_sk_...");
	len = strlen(key);
	if (strncmp(key, "lbb_sk_", 7) || len >= AUTH_KEY_BYTES_MAX)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "this is not an environment API key "
			       "(lbb_sk_...).");
	SHA256((const uint8_t *)key, len, hash);
	for (size_t i = 0; i < a->keys.n; i++)
		if (!CRYPTO_memcmp(a->keys.list[i].hash, hash, HASH_BYTES))
			found = &a->keys.list[i];
	if (!found)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "this API key is not known here");
	if (found->info.is_revoked)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "this API key was revoked");
	*ret = &found->info;
	return 0;
}

int auth_new_key(struct auth_new *ret, bool is_test)
{
	uint8_t raw[32];
	int n;

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return -EIO;
	n = snprintf(ret->text, sizeof(ret->text), "lbb_sk_%s_",
		     is_test ? "test" : "live");
	for (size_t i = 0; i < sizeof(raw); i++)
		n += snprintf(ret->text + n, sizeof(ret->text) - (size_t)n,
			      "%02x", raw[i]);
	OPENSSL_cleanse(raw, sizeof(raw));
	SHA256((const uint8_t *)ret->text, (size_t)n, ret->hash);
	return 0;
}

const struct key_info *auth_key(const struct auth *a, size_t idx)
{
	return idx < a->keys.n ? &a->keys.list[idx].info : NULL;
}

bool auth_has(const struct auth *a, const char *environment, const char *name)
{
	const struct key_info *k;

	for (size_t i = 0; (k = auth_key(a, i)); i++)
		if (!k->is_revoked && !strcmp(k->environment, environment) &&
		    !strcmp(k->name, name))
			return true;
	return false;
}

static bool is_name(const char *name, size_t max, const char *set)
{
	size_t len = strspn(name, set);

	return len && len <= max && !name[len];
}

bool auth_environment_is_valid(const char *name)
{
	return is_name(name, ID_BYTES_MAX - 1,
		       "abcdefghijklmnopqrstuvwxyz0123456789_-");
}

bool auth_graph_is_valid(const char *name)
{
	return is_name(name, GRAPH_NAME_BYTES_MAX,
		       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		       "0123456789._-");
}
