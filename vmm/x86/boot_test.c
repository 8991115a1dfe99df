/*
 * What a guest finds at its start: the kernel loader with hostile images,
 * MP tables, command line, CPUID, and the I/O APIC's registers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include "boot.h"
#include "bytes.h"
#include "cmdline.h"
#include "cpuid.h"
#include "elf.h"
#include "fd.h"
#include "ioapic.h"
#include "mptable.h"
#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM_BYTES (16u << 20)

struct image {
	Elf64_Ehdr h;
	Elf64_Phdr p[2];
	uint8_t code[64];
};

static struct mem mem;

static struct image good(void)
{
	struct image i;

	memset(&i, 0, sizeof(i));
	memcpy(i.h.e_ident, ELFMAG, SELFMAG);
	i.h.e_ident[EI_CLASS] = ELFCLASS64;
	i.h.e_ident[EI_DATA] = ELFDATA2LSB;
	i.h.e_type = ET_EXEC;
	i.h.e_machine = EM_X86_64;
	i.h.e_phentsize = sizeof(Elf64_Phdr);
	i.h.e_phnum = 2;
	i.h.e_phoff = offsetof(struct image, p);
	i.h.e_entry = 0x200010;
	i.p[0] = (Elf64_Phdr){.p_type = PT_LOAD,
			      .p_flags = PF_R | PF_X,
			      .p_offset = offsetof(struct image, code),
			      .p_paddr = 0x200000,
			      .p_filesz = 64,
			      .p_memsz = 4096};
	i.p[1] = (Elf64_Phdr){.p_type = PT_LOAD,
			      .p_flags = PF_R | PF_W,
			      .p_paddr = RAM_BYTES - 4096,
			      .p_memsz = 4096};
	memset(i.code, 0x90, sizeof(i.code));
	return i;
}

static int load(const struct image *i, size_t len, struct err *e)
{
	int fd = memfd_create("kernel", MFD_CLOEXEC), r;
	gpa_t entry = 0;

	assert_true(fd >= 0);
	assert_int_equal(fd_pwrite_all(fd, i, len, 0), 0);
	*e = (struct err){0};
	r = elf_load(&mem, fd, &entry, e);
	close(fd);
	if (r == 0)
		assert_int_equal(entry, i->h.e_entry);
	return r;
}

static void test_good(void **unused)
{
	struct image i = good();
	uint8_t code[65];
	struct err e;

	(void)unused;
	assert_int_equal(load(&i, sizeof(i), &e), 0);
	assert_int_equal(mem_read(&mem, 0x200000, code, sizeof(code)), 0);
	assert_int_equal(code[63], 0x90);
	assert_int_equal(code[64], 0);
}

/* F12: one wrong thing each; `field` is set to `value`. */
#define WRONG(field, value, says)                                              \
	do {                                                                   \
		struct image i_ = good();                                      \
		struct err e_;                                                 \
                                                                               \
		i_.field = value;                                              \
		assert_int_equal(load(&i_, sizeof(i_), &e_), -1);              \
		if (!strstr(e_.text, says))                                    \
			fail_msg("'%s' does not say '%s'", e_.text, says);     \
	} while (0)

static void test_wrong(void **unused)
{
	struct image i = good();
	struct err e;

	(void)unused;
	WRONG(h.e_ident[1], 'X', "magic");
	WRONG(h.e_ident[EI_CLASS], ELFCLASS32, "64-bit");
	WRONG(h.e_machine, EM_386, "machine");
	WRONG(h.e_type, ET_DYN, "type");
	WRONG(h.e_phentsize, 55, "entry size");
	WRONG(h.e_phnum, 0, "number of program headers");
	WRONG(h.e_phnum, ELF_SEGMENTS_MAX + 1, "number of program headers");
	WRONG(h.e_phoff, sizeof(struct image), "behind the file");
	WRONG(h.e_phoff, UINT64_MAX - 8, "behind the file");
	WRONG(h.e_phoff, INT64_MAX, "behind the file");
	WRONG(p[0].p_filesz, 5000, "larger in file");
	WRONG(p[0].p_offset, sizeof(struct image) - 63, "behind the file");
	WRONG(p[0].p_offset, UINT64_MAX, "behind the file");
	WRONG(p[0].p_paddr, 0xff000, "below 1 MiB");
	WRONG(p[0].p_paddr, 0, "below 1 MiB");
	WRONG(p[1].p_paddr, RAM_BYTES - 4095, "outside of guest memory");
	WRONG(p[1].p_paddr, 0xd0000000, "outside of guest memory");
	WRONG(p[1].p_paddr, UINT64_MAX - 100, "outside of guest memory");
	WRONG(p[1].p_memsz, UINT64_MAX, "outside of guest memory");
	WRONG(p[1].p_paddr, 0x200fff, "overlap");
	WRONG(p[1].p_paddr, 0x1ff001, "overlap");
	WRONG(h.e_entry, 0x1fffff, "entry");
	WRONG(h.e_entry, 0x201000, "entry");
	WRONG(h.e_entry, RAM_BYTES - 4096, "entry"); /* not executable */
	for (size_t n = 0; n < sizeof(i); n++)
		assert_int_equal(load(&i, n, &e), -1);
}

static void test_mptable(void **unused)
{
	uint8_t t[BOOT_MPTABLE_BYTES], sum = 0;
	uint16_t len;

	(void)unused;
	for (unsigned n = 1; n <= VCPUS_MAX; n++) {
		assert_int_equal(mptable_write(&mem, n), 0);
		assert_int_equal(mem_read(&mem, BOOT_MPTABLE_GPA, t, sizeof(t)),
				 0);
		assert_memory_equal(t, "_MP_", 4);
		for (unsigned i = 0; i < 16; i++)
			sum += t[i];
		assert_int_equal(sum, 0);
		assert_memory_equal(t + 16, "PCMP", 4);
		memcpy(&len, t + 20, sizeof(len));
		for (unsigned i = 0; i < len; i++)
			sum += t[16 + i];
		assert_int_equal(sum, 0);
		/* processors are 20 bytes each, the first the boot one */
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(t[60 + 20 * i], 0);
			assert_int_equal(t[61 + 20 * i], i);
			assert_int_equal(t[63 + 20 * i], i ? 1 : 3);
		}
		assert_int_equal(t[60 + 20 * n], 1); /* then the bus */
	}
	assert_int_equal(mptable_write(&mem, VCPUS_MAX + 1), -EINVAL);
}

static void test_cmdline(void **unused)
{
	char line[CMDLINE_BYTES_MAX + 1], more[CMDLINE_BYTES_MAX + 1];
	struct err e = {0};
	size_t room;

	(void)unused;
	assert_int_equal(cmdline_build(line, false, 4, NULL, &e), 0);
	assert_null(strstr(line, "soft_kvm"));
	assert_non_null(strstr(line, "4K@0xd0003000:8"));
	assert_int_equal(cmdline_build(line, true, 1, "quiet x=1", &e), 0);
	assert_non_null(strstr(line, " soft_kvm"));
	assert_string_equal(line + strlen(line) - 10, " quiet x=1");
	/* exactly full, and one more */
	assert_int_equal(cmdline_build(line, true, 4, "", &e), 0);
	room = CMDLINE_BYTES_MAX - strlen(line) - 1;
	memset(more, 'x', room);
	more[room] = '\0';
	assert_int_equal(cmdline_build(line, true, 4, more, &e), 0);
	assert_int_equal(strlen(line), CMDLINE_BYTES_MAX);
	more[room] = 'x';
	more[room + 1] = '\0';
	assert_int_equal(cmdline_build(line, true, 4, more, &e), -1);
	assert_non_null(strstr(e.text, "2047"));
	assert_int_equal(cmdline_build(line, true, 4, "a\tb", &e), -1);
}

static const struct kvm_cpuid_entry2 *leaf(const struct kvm_cpuid2 *t,
					   uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < t->nent; i++)
		if (t->entries[i].function == function &&
		    t->entries[i].index == index)
			return &t->entries[i];
	return NULL;
}

/* F10: what a guest must not be offered, whatever the host has. */
static void test_cpuid(void **unused)
{
	size_t bytes = sizeof(struct kvm_cpuid2) +
		       KVM_CPUID_ENTRIES_MAX * sizeof(struct kvm_cpuid_entry2);
	struct kvm_cpuid2 *host = calloc(1, bytes), *t = calloc(1, bytes);
	static const uint32_t leaves[] = {
		0,	    1,		4,	    6,
		7,	    0xa,	0xb,	    0xd,
		0x14,	    0x40000001, 0x80000001, 0x80000007,
		0x80000008, 0x8000000a, 0x8000001e, 0x80000022};
	struct kvm k = {.cpuid = host};

	(void)unused;
	for (size_t i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++)
		host->entries[i] = (struct kvm_cpuid_entry2){
			.function = leaves[i],
			.eax = ~0u,
			.ebx = ~0u,
			.ecx = ~0u,
			.edx = ~0u,
		};
	host->nent = sizeof(leaves) / sizeof(leaves[0]);
	cpuid_build(&k, t, 2, 3);
	assert_false(leaf(t, 1, 0)->ecx & 1u << 5);  /* VMX */
	assert_false(leaf(t, 1, 0)->ecx & 1u << 15); /* PDCM */
	assert_true(leaf(t, 1, 0)->ecx & 1u << 31);  /* hypervisor */
	assert_true(leaf(t, 1, 0)->ecx & 1u << 24);  /* deadline */
	assert_int_equal(leaf(t, 1, 0)->ebx >> 16, 2u << 8 | 3u);
	assert_false(leaf(t, 7, 0)->edx & 7u << 22 & ~(1u << 23)); /* AMX */
	assert_int_equal(leaf(t, 0xa, 0)->eax, 0);
	assert_false(leaf(t, 0xd, 0)->eax & 3u << 17);
	assert_false(leaf(t, 0x80000001, 0)->ecx & 1u << 2); /* SVM */
	assert_false(leaf(t, 0x80000007, 0)->edx & 1u << 8); /* inv. TSC */
	assert_int_equal(leaf(t, 0x8000000a, 0)->edx, 0);
	assert_int_equal(leaf(t, 0x40000001, 0)->eax,
			 1u << 0 | 1u << 1 | 1u << 3 | 1u << 24);
	assert_int_equal(leaf(t, 0xb, 0)->edx, 2);
	assert_int_equal(leaf(t, 0xb, 1)->ebx, 3);
	assert_int_equal(leaf(t, 0xb, 1)->eax, 2);
	assert_int_equal(leaf(t, 0x80000008, 0)->ecx & 0xff, 2);
	free(host);
	free(t);
}

static uint32_t reg(struct ioapic *a, uint32_t n)
{
	uint32_t v = 0;

	ioapic_write(a, 0, &n, 4);
	ioapic_read(a, 0x10, &v, 4);
	return v;
}

static void set(struct ioapic *a, uint32_t n, uint32_t v)
{
	ioapic_write(a, 0, &n, 4);
	ioapic_write(a, 0x10, &v, 4);
}

static void test_ioapic(void **unused)
{
	struct kvm none = {.vm = -1}; /* messages go nowhere */
	struct ioapic_state s;
	struct ioapic a;
	uint64_t wide = ~0ull;

	(void)unused;
	ioapic_init(&a, &none);
	assert_int_equal(reg(&a, 1), 0x170011);
	assert_int_equal(reg(&a, 0x10), 1u << 16); /* masked */
	assert_int_equal(reg(&a, 0x10 + 48), 0);   /* no such pin */
	set(&a, 0x10 + 48, ~0u);
	set(&a, 0x10, ~0u); /* read-only bits stay 0 */
	assert_int_equal(reg(&a, 0x10), 0x1afff);
	ioapic_write(&a, 0x10, &wide, 8); /* not 4 bytes: ignored */
	ioapic_write(&a, 0x10, &wide, 1);
	assert_int_equal(reg(&a, 0x10), 0x1afff);
	/* an edge on a masked pin waits for the mask to go */
	set(&a, 0x10 + 10, 1u << 16 | 0x35);
	ioapic_raise(&a, 5);
	assert_int_equal(a.raised, 0);
	set(&a, 0x10 + 10, 0x35);
	assert_int_equal(a.raised, 1);
	ioapic_raise(&a, 5);
	assert_int_equal(a.raised, 2);
	ioapic_raise(&a, IOAPIC_N_PINS);
	ioapic_raise(&a, ~0u);
	assert_int_equal(a.raised, 2);
	ioapic_save(&a, &s);
	assert_int_equal(ioapic_load(&a, &s), 0);
	s.pending = 1u << IOAPIC_N_PINS;
	assert_int_equal(ioapic_load(&a, &s), -EPROTO);
	s.pending = 0;
	s.entry[3] = 1ull << 40;
	assert_int_equal(ioapic_load(&a, &s), -EPROTO);
}

static int setup(void **unused)
{
	(void)unused;
	return mem_init(&mem, RAM_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_mptable), cmocka_unit_test(test_cmdline),
		cmocka_unit_test(test_cpuid),	cmocka_unit_test(test_ioapic),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
