/*
 * Bases and shapes: which templates there are, and which one serves a
 * sandbox's limits.  A few RAM classes and vCPU counts, so that few snapshots
 * serve all; the exact limits are set in the guest when it is bound.
 */
#include "template_priv.h"
#include <stdio.h>
#include <string.h>

/* Heavy libraries are imported ahead where there is room for them. */
#define PRELOAD_MIB_MIN 512

static const struct {
	const char *base, *runner, *image, *first_run;
} bases[] = {
	{"lbb/python", "python", "python",
	 "def run(input, config):\n    return sum(input)\n"},
	{"lbb/node", "node", "node",
	 "function run(input) { return input.reduce((a, b) => a + b) }\n"},
	{"lbb/shell", "shell", "shell", NULL},
};
#define N_BASES (sizeof(bases) / sizeof(bases[0]))

static const uint32_t ram_classes[] = {256, 512, 1024, 2048, 4096, 8192};
static const uint32_t vcpu_classes[] = {1, 2, 4};

const char *base_runner(const char *base)
{
	for (size_t i = 0; i < N_BASES; i++)
		if (strcmp(bases[i].base, base) == 0)
			return bases[i].runner;
	return NULL;
}

const char *base_image(const char *base)
{
	for (size_t i = 0; i < N_BASES; i++)
		if (strcmp(bases[i].base, base) == 0)
			return bases[i].image;
	return NULL;
}

const char *base_first_run(const char *base)
{
	for (size_t i = 0; i < N_BASES; i++)
		if (strcmp(bases[i].base, base) == 0)
			return bases[i].first_run;
	return NULL;
}

bool shape_has_preload(const struct shape *s)
{
	return s->ram_mib >= PRELOAD_MIB_MIN;
}

bool shape_is_same(const struct shape *a, const struct shape *b)
{
	return a->vcpus == b->vcpus && a->ram_mib == b->ram_mib &&
	       !strcmp(a->base, b->base);
}

void shape_text(const struct shape *s, char *dst, size_t cap)
{
	snprintf(dst, cap, "%s with %u vCPU%s and %u MiB", s->base, s->vcpus,
		 s->vcpus == 1 ? "" : "s", s->ram_mib);
}

static uint32_t class_of(const uint32_t *list, size_t n, uint32_t want)
{
	for (size_t i = 0; i < n; i++)
		if (want <= list[i])
			return list[i];
	return 0;
}

int shape_for(const char *base, const struct limits *limits, struct shape *ret,
	      struct err *e)
{
	struct shape s = {
		.vcpus = class_of(vcpu_classes, 3, limits->vcpus),
		.ram_mib = class_of(ram_classes, 6, limits->memory_mib),
	};

	if (!base_runner(base))
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, "template",
			       "there is no template '%.64s': the base "
			       "templates are lbb/python, lbb/node and "
			       "lbb/shell",
			       base);
	if (!s.vcpus)
		return err_set(e, ERR_LIMITS_INVALID, "limits.vcpus",
			       "limits.vcpus is %u, at most 4 are possible",
			       limits->vcpus);
	if (!s.ram_mib)
		return err_set(e, ERR_LIMITS_INVALID, "limits.memory_mib",
			       "limits.memory_mib is %u, at most 8192 are "
			       "possible",
			       limits->memory_mib);
	snprintf(s.base, sizeof(s.base), "%s", base);
	*ret = s;
	return 0;
}
