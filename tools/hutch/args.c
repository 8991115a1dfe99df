/* Command lines as tables; see args.h. */
#include "args.h"
#include <stdlib.h>
#include <string.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static const struct opt *find(const struct opt *table, const char *name,
			      size_t len)
{
	for (const struct opt *o = table; o && o->name; o++)
		if (!strncmp(o->name, name, len) && !o->name[len])
			return o;
	return NULL;
}

static int set_u64(const struct opt *o, const char *value, struct err *e)
{
	uint64_t n = 0;
	bool is_good = *value;

	for (const char *p = value; is_good && *p; p++)
		is_good = *p >= '0' && *p <= '9' &&
			  !__builtin_mul_overflow(n, (uint64_t)10, &n) &&
			  !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
	if (!is_good || n < o->min || n > o->max)
		return err_set(e, ERR_INVALID_REQUEST, o->name,
			       "--%s %s: must be a whole number from %llu to "
			       "%llu",
			       o->name, value, (unsigned long long)o->min,
			       (unsigned long long)o->max);
	*(uint64_t *)o->dst = n;
	return 0;
}

static const struct {
	const char *unit;
	uint64_t ms;
} time_units[] = {
	{"", 1000},   {"s", 1000},    {"ms", 1},
	{"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* A time as a person writes it, in the largest unit that is exact. */
static void time_text(uint64_t ms, char *dst, size_t cap)
{
	const char *unit = "ms";
	uint64_t n = ms;

	for (size_t i = 1; i < N_OF(time_units); i++) {
		if (ms % time_units[i].ms || ms / time_units[i].ms > n)
			continue;
		n = ms / time_units[i].ms;
		unit = time_units[i].unit;
	}
	snprintf(dst, cap, "%llu%s", (unsigned long long)n, unit);
}

static int set_time(const struct opt *o, const char *value, struct err *e)
{
	char min[32], max[32], *end;
	double n = strtod(value, &end);

	for (size_t i = 0; i < N_OF(time_units); i++) {
		double ms = n * (double)time_units[i].ms;

		if (end == value || strcmp(end, time_units[i].unit))
			continue;
		if (!(ms >= (double)o->min && ms <= (double)o->max))
			break;
		*(uint64_t *)o->dst = (uint64_t)ms;
		return 0;
	}
	time_text(o->min, min, sizeof(min));
	time_text(o->max, max, sizeof(max));
	return err_set(e, ERR_INVALID_REQUEST, o->name,
		       "--%s %s: expected seconds, or a number with ms, s, m, "
		       "h or d, from %s to %s",
		       o->name, value, min, max);
}

static int set(const struct opt *o, const char *value, struct err *e)
{
	struct opt_list *list;

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)o->dst = true;
		return 0;
	case OPT_TEXT:
		*(const char **)o->dst = value;
		return 0;
	case OPT_U64:
		return set_u64(o, value, e);
	case OPT_TIME:
		return set_time(o, value, e);
	case OPT_LIST:
		break;
	}
	list = o->dst;
	if (list->n >= ARGS_LIST_MAX)
		return err_set(e, ERR_INVALID_REQUEST, o->name,
			       "--%s: given more than %d times", o->name,
			       ARGS_LIST_MAX);
	list->items[list->n++] = value;
	return 0;
}

/* One option at argv[*i]; *i moves over a value of its own. */
static int parse_option(struct args *a, int argc, char **argv, int *i,
			const struct opt *opts, const struct opt *more,
			struct err *e)
{
	const char *name = argv[*i] + 2, *eq = strchr(name, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	const struct opt *o = find(opts, name, len);

	if (o)
		a->given |= 1ull << (o - opts);
	else
		o = find(more, name, len);
	if (!o)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "unknown option --%.*s", (int)len, name);
	if (o->kind == OPT_FLAG && eq)
		return err_set(e, ERR_INVALID_REQUEST, o->name,
			       "--%s takes no value", o->name);
	if (o->kind == OPT_FLAG)
		return set(o, NULL, e);
	if (eq)
		return set(o, eq + 1, e);
	if (*i + 1 >= argc)
		return err_set(e, ERR_INVALID_REQUEST, o->name,
			       "--%s needs a value: --%s %s", o->name, o->name,
			       o->arg);
	return set(o, argv[++*i], e);
}

int args_parse(struct args *a, int argc, char **argv, const struct opt *opts,
	       const struct opt *more, bool stop_at_rest, struct err *e)
{
	bool is_over = false;

	memset(a, 0, sizeof(*a));
	for (int i = 0; i < argc; i++) {
		const char *arg = argv[i];

		if (!is_over && !strcmp(arg, "--")) {
			is_over = true;
			continue;
		}
		if (!is_over &&
		    (!strcmp(arg, "--help") || !strcmp(arg, "-h"))) {
			a->is_help = true;
			continue;
		}
		if (!is_over && arg[0] == '-' && arg[1] == '-') {
			if (parse_option(a, argc, argv, &i, opts, more, e))
				return -1;
			continue;
		}
		/* A lone "-" is an argument: standard input. */
		if (!is_over && arg[0] == '-' && arg[1])
			return err_set(e, ERR_INVALID_REQUEST, NULL,
				       "unknown option %s", arg);
		if (a->n >= ARGS_LIST_MAX)
			return err_set(e, ERR_INVALID_REQUEST, NULL,
				       "more than %d arguments", ARGS_LIST_MAX);
		a->rest[a->n++] = arg;
		is_over = is_over || stop_at_rest;
	}
	return 0;
}

void args_help(const struct opt *opts, FILE *out)
{
	for (const struct opt *o = opts; o && o->name; o++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");
		fprintf(out, "  %-22s %s%s%s\n", left, o->of ? o->of : "",
			o->of ? ": " : "", o->help);
	}
}

int args_expect(const struct args *a, size_t min, size_t max, const char *what,
		struct err *e)
{
	if (a->n < min)
		return err_set(e, ERR_INVALID_REQUEST, NULL, "%s is missing",
			       what);
	if (a->n > max)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "unexpected argument \"%s\"", a->rest[max]);
	return 0;
}

/* Is it one of the words of "create, exec"? */
static bool is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p; p += strspn(p, ", ")) {
		size_t n = strcspn(p, ", ");

		if (n == len && !memcmp(p, word, n))
			return true;
		p += n;
	}
	return false;
}

int args_expect_of(const struct args *a, const struct opt *opts,
		   const char *verb, struct err *e)
{
	for (const struct opt *o = opts; o->name; o++)
		if (o->of && (a->given >> (o - opts) & 1) &&
		    !is_listed(o->of, verb))
			return err_set(e, ERR_INVALID_REQUEST, o->name,
				       "--%s is an option of %s, not of %s",
				       o->name, o->of, verb);
	return 0;
}
