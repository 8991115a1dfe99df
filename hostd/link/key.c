/* Keys of snapshots; see key.h. */
#include "key.h"
#include "../image/disk.h"
#include "../image/filehash.h"
#include "guest_proto.h"
#include "vmm_ctl.h"
#include <cpuid.h>
#include <errno.h>
#include <openssl/evp.h>

#define KEY_VERSION 1

/*
 * Leaves that say which instructions and which state a CPU has.  Not those
 * that differ from CPU to CPU of one host (APIC ids, topology, current
 * frequency) or that only describe caches and power.
 */
static const struct {
	uint32_t leaf, sub;
	uint32_t mask[4]; /* eax ebx ecx edx */
} leaves[] = {
	{0x0, 0, {~0u, ~0u, ~0u, ~0u}},
	{0x1, 0, {~0u, 0x0000ffff, ~0u, ~0u}}, /* ebx: APIC id, threads */
	{0x7, 0, {~0u, ~0u, ~0u, ~0u}},
	{0x7, 1, {~0u, ~0u, ~0u, ~0u}},
	{0x7, 2, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 0, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 1, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 2, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 5, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 6, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 7, {~0u, ~0u, ~0u, ~0u}},
	{0xd, 9, {~0u, ~0u, ~0u, ~0u}},
	{0x80000001, 0, {~0u, ~0u, ~0u, ~0u}},
	{0x80000007, 0, {~0u, ~0u, ~0u, ~0u}},
	{0x80000008, 0, {~0u, ~0u, 0, 0}}, /* ecx: core counts */
	{0x80000021, 0, {~0u, ~0u, ~0u, ~0u}},
};

static uint64_t xcr0_read(void)
{
	uint32_t lo = 0, hi = 0, a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

static int cpu_lines(struct bytes *out)
{
	uint32_t basic = __get_cpuid_max(0, NULL);
	uint32_t extended = __get_cpuid_max(0x80000000, NULL);
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(leaves) / sizeof(leaves[0]); i++) {
		uint32_t leaf = leaves[i].leaf, r[4] = {0};

		if (leaf > (leaf & 0x80000000 ? extended : basic))
			continue;
		__cpuid_count(leaf, leaves[i].sub, r[0], r[1], r[2], r[3]);
		rc = bytes_printf(out, "cpuid.%x.%x=%08x %08x %08x %08x\n",
				  leaf, leaves[i].sub, r[0] & leaves[i].mask[0],
				  r[1] & leaves[i].mask[1],
				  r[2] & leaves[i].mask[2],
				  r[3] & leaves[i].mask[3]);
	}
	if (!rc)
		rc = bytes_printf(out, "xcr0=%llx\n",
				  (unsigned long long)xcr0_read());
	return rc;
}

static int hash_line(struct bytes *out, const char *name,
		     const uint8_t hash[HASH_BYTES])
{
	char hex[KEY_HEX_BYTES];

	hash_to_hex(hash, hex);
	return bytes_printf(out, "%s=%s\n", name, hex);
}

int key_make(const struct key_inputs *in, struct bytes *out,
	     char ret_hex[KEY_HEX_BYTES])
{
	uint8_t sha[HASH_BYTES];
	int rc;

	rc = bytes_printf(out,
			  "version=%d\nkvm=%s\ncontrol=%d\nguest=%d\n"
			  "base=%s\nvcpus=%u\nram_mib=%u\nrunner=%s\n"
			  "preload=%d\ndisk=%s\ncmdline=%s\n",
			  KEY_VERSION, in->is_soft ? "soft" : "stock",
			  VMM_CTL_VERSION, GP_VERSION, in->shape.base,
			  in->shape.vcpus, in->shape.ram_mib, in->runner,
			  in->has_preload, DISK_FORMAT, in->cmdline);
	if (!rc)
		rc = hash_line(out, "vmm", in->vmm);
	if (!rc)
		rc = hash_line(out, "kernel", in->kernel);
	if (!rc)
		rc = hash_line(out, "init", in->init);
	if (!rc)
		rc = hash_line(out, "root", in->root);
	if (!rc)
		rc = cpu_lines(out);
	if (rc)
		return rc;
	if (!EVP_Digest(out->data, out->len, sha, NULL, EVP_sha256(), NULL))
		return -EIO;
	hash_to_hex(sha, ret_hex);
	return 0;
}
