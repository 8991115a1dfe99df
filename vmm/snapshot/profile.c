/*
 * The host that a snapshot belongs to; see state.h.
 *
 * On soft KVM guest user code sees the real processor, whatever the guest's
 * CPUID says; on stock KVM the guest's kernel patched itself for it.  So the
 * raw CPUID of the host is part of a snapshot.  Fields that differ from core
 * to core of one host are left out.
 */
#include "state.h"
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define LEAVES_MAX 64
/* A counter that differs by less is the same one, measured again. */
#define TSC_PPM_MAX 500

enum reg { EAX, EBX, ECX, EDX };

static const struct {
	uint32_t leaf;
	enum reg reg;
	uint32_t clear;
} varies[] = {
	{0x1, EBX, 0xff000000},	       /* initial APIC id */
	{0x1, ECX, 1u << 27},	       /* OSXSAVE: is in XCR0 */
	{0xb, EDX, 0xffffffff},	       /* x2APIC id */
	{0x1f, EDX, 0xffffffff},       /* x2APIC id */
	{0xd, EBX, 0xffffffff},	       /* size by the current XCR0 */
	{0x8000001e, EAX, 0xffffffff}, /* extended APIC id */
	{0x8000001e, EBX, 0xff},       /* core id */
	{0x8000001e, ECX, 0xff},       /* node id */
	{0x80000026, EDX, 0xffffffff}, /* extended APIC id */
};

static uint32_t n_subleaves(uint32_t leaf)
{
	switch (leaf) {
	case 0x4:
	case 0x8000001d: /* caches */
	case 0x7:
	case 0xb:
	case 0x1f: /* topology */
		return 4;
	case 0xd: /* state components */
		return 20;
	default:
		return 1;
	}
}

static void add_leaf(struct sha256 *s, uint32_t leaf, uint32_t sub)
{
	uint32_t v[6] = {0};

	__cpuid_count(leaf, sub, v[EAX], v[EBX], v[ECX], v[EDX]);
	for (size_t i = 0; i < sizeof(varies) / sizeof(varies[0]); i++)
		if (varies[i].leaf == leaf)
			v[varies[i].reg] &= ~varies[i].clear;
	v[4] = leaf;
	v[5] = sub;
	sha256_add(s, v, sizeof(v));
}

static void add_range(struct sha256 *s, uint32_t first)
{
	uint32_t last, b, c, d;

	__cpuid(first, last, b, c, d);
	for (uint32_t leaf = first; leaf <= last && leaf < first + LEAVES_MAX;
	     leaf++) {
		for (uint32_t sub = 0; sub < n_subleaves(leaf); sub++)
			add_leaf(s, leaf, sub);
	}
}

static uint64_t xcr0(void)
{
	uint32_t a, b, c, d;

	__cpuid(1, a, b, c, d);
	if (!(c & 1u << 27))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	return a | (uint64_t)d << 32;
}

void profile_get(struct profile *ret, const struct kvm *k)
{
	struct sha256 s;

	*ret = (struct profile){
		.is_soft = k->is_soft,
		.xcr0 = xcr0(),
		.tsc_khz = k->tsc_khz,
	};
	sha256_init(&s);
	add_range(&s, 0);
	add_range(&s, 0x80000000u);
	sha256_end(&s, ret->cpuid);
}

const char *profile_differs(const struct profile *a, const struct profile *b)
{
	if (a->is_soft != b->is_soft)
		return "kind of KVM (soft or stock)";
	if (a->xcr0 != b->xcr0)
		return "XCR0";
	if (memcmp(a->cpuid, b->cpuid, sizeof(a->cpuid)) != 0)
		return "processor (raw CPUID)";
	return NULL;
}

bool profile_is_tsc_other(uint32_t a_khz, uint32_t b_khz)
{
	uint32_t more = a_khz > b_khz ? a_khz : b_khz;
	uint32_t less = a_khz > b_khz ? b_khz : a_khz;

	return (uint64_t)(more - less) * 1000000 > (uint64_t)less * TSC_PPM_MAX;
}
