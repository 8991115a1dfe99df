/*
 * Fuzz: the kernel loader.
 *
 * Input: patches of a good small image, each 3 bytes (offset, value), or, when
 * the first byte is odd, a whole file.  A load that succeeds must have put the
 * entry inside RAM; guard pages around RAM catch the rest.
 */
#include "elf.h"
#include "fd.h"
#include "fuzz.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM_BYTES (4u << 20)

struct image {
	Elf64_Ehdr h;
	Elf64_Phdr p[3];
	uint8_t code[64];
};

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
	i.h.e_phnum = 3;
	i.h.e_phoff = offsetof(struct image, p);
	i.h.e_entry = 0x200010;
	for (unsigned n = 0; n < 3; n++)
		i.p[n] = (Elf64_Phdr){.p_type = PT_LOAD,
				      .p_flags = PF_R | PF_X,
				      .p_offset = offsetof(struct image, code),
				      .p_paddr = 0x200000 + n * 0x10000ull,
				      .p_filesz = 64,
				      .p_memsz = 4096};
	return i;
}

static int write_image(int fd, const uint8_t *data, size_t len)
{
	struct image i = good();
	uint8_t *bytes = (uint8_t *)&i;

	if (len && (data[0] & 1))
		return fd_pwrite_all(fd, data + 1, len - 1, 0);
	for (size_t at = 1; at + 3 <= len; at += 3)
		bytes[(data[at] | data[at + 1] << 8) % sizeof(i)] =
			data[at + 2];
	return fd_pwrite_all(fd, &i, sizeof(i), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct mem mem;
	struct err e = {0};
	gpa_t entry = 0;
	int fd, r;

	fuzz_begin();
	if (!mem.host && mem_init(&mem, RAM_BYTES) < 0)
		abort();
	fd = memfd_create("kernel", MFD_CLOEXEC);
	if (fd < 0 || write_image(fd, data, len) < 0)
		abort();
	r = elf_load(&mem, fd, &entry, &e);
	close(fd);
	if (r == 0 && !mem_span(&mem, entry, 1))
		abort();
	/* Past the file's header: a segment or the entry was looked at. */
	if (r == 0 || strstr(e.text, "segment"))
		fuzz_reach();
	return 0;
}
