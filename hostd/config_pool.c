/* The value of a pool_... key; see config.h. */
#include "config.h"
#include <string.h>

/* As api/openapi/lbb.yaml has them. */
static const struct {
	const char *name;
	uint32_t min, max;
} ranges[] = {
	{"vCPUs", 1, 4},
	{"MiB of memory", 128, 8192},
	{"MiB of disk", 256, 10240},
	{"VMs", 0, 64},
};
enum { VCPUS, MEMORY, DISK, COUNT, N_NUMBERS };

/* A whole number at *p, which moves behind it; -1: none, or out of range. */
static int number(const char **p, int what, uint32_t *ret)
{
	uint32_t n = 0;
	const char *from = *p;

	while (**p >= '0' && **p <= '9' && n <= ranges[what].max)
		n = n * 10 + (uint32_t)(*(*p)++ - '0');
	if (*p == from || n < ranges[what].min || n > ranges[what].max)
		return -1;
	*ret = n;
	return 0;
}

static int wrong(const char *part, size_t len, struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "\"%.*s\" is neither N nor VCPUSxMEMORY:N nor "
		       "VCPUSxMEMORYxDISK:N, with %u to %u vCPUs, %u to %u MiB "
		       "of memory, %u to %u MiB of disk and %u to %u VMs",
		       (int)(len > 40 ? 40 : len), part, ranges[VCPUS].min,
		       ranges[VCPUS].max, ranges[MEMORY].min,
		       ranges[MEMORY].max, ranges[DISK].min, ranges[DISK].max,
		       ranges[COUNT].min, ranges[COUNT].max);
}

static int part_read(const char *part, size_t len, struct config_pool *ret,
		     struct err *e)
{
	uint32_t v[N_NUMBERS] = {1, 1024, 4096, 0};
	const char *p = part, *end = part + len;
	int rc = 0;

	if (memchr(part, ':', len)) {
		rc = number(&p, VCPUS, &v[VCPUS]);
		if (!rc && (*p != 'x' || (p++, number(&p, MEMORY, &v[MEMORY]))))
			rc = -1;
		if (!rc && *p == 'x' && (p++, number(&p, DISK, &v[DISK])))
			rc = -1;
		if (!rc && *p++ != ':')
			rc = -1;
	}
	if (rc || number(&p, COUNT, &v[COUNT]) || p != end)
		return wrong(part, len, e);
	*ret = (struct config_pool){v[VCPUS], v[MEMORY], v[DISK], v[COUNT]};
	return 0;
}

int config_pool_each(const char *text,
		     void (*fn)(void *ctx, const struct config_pool *p),
		     void *ctx, struct err *e)
{
	const char *p = text;

	for (;;) {
		struct config_pool one;
		size_t len;

		p += strspn(p, " \t");
		len = strcspn(p, " \t");
		if (!len)
			return 0;
		if (part_read(p, len, &one, e))
			return -1;
		if (one.count && fn)
			fn(ctx, &one);
		p += len;
	}
}
