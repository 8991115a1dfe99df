/*
 * ELF loader.  The file is not trusted: every offset, size and address is
 * checked before anything is copied (hardening F12).
 *
 * A kernel's segments are placed at their physical addresses; they must lie in
 * RAM above 1 MiB and apart from each other, and the entry must be inside an
 * executable one.
 */
#include "elf.h"
#include "fd.h"
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

struct segment {
	uint64_t file_off, file_len, gpa, len;
	bool is_executable;
};

struct image {
	struct segment seg[ELF_SEGMENTS_MAX];
	unsigned n;
	uint64_t file_len;
};

static int bad(struct err *e, const char *what, unsigned long long value)
{
	return err_set(e, ERR_INVALID_REQUEST, "kernel", "kernel: %s (0x%llx)",
		       what, value);
}

static int check_header(const Elf64_Ehdr *h, struct err *e)
{
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
		return bad(e, "not an ELF file, magic", h->e_ident[0]);
	if (h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_ident[EI_DATA] != ELFDATA2LSB)
		return bad(e, "not 64-bit little endian, class",
			   h->e_ident[EI_CLASS]);
	if (h->e_machine != EM_X86_64)
		return bad(e, "not for x86-64, machine", h->e_machine);
	if (h->e_type != ET_EXEC)
		return bad(e, "not a fixed executable, type", h->e_type);
	if (h->e_phentsize != sizeof(Elf64_Phdr))
		return bad(e, "program header entry size", h->e_phentsize);
	if (h->e_phnum == 0 || h->e_phnum > ELF_SEGMENTS_MAX)
		return bad(e, "number of program headers", h->e_phnum);
	return 0;
}

/* One PT_LOAD: inside the file, inside RAM, apart from the ones before. */
static int check_segment(const struct image *img, struct mem *m,
			 const Elf64_Phdr *p, struct err *e)
{
	uint64_t end;

	if (p->p_filesz > p->p_memsz)
		return bad(e, "segment larger in file than in memory",
			   p->p_filesz);
	if (__builtin_add_overflow(p->p_offset, p->p_filesz, &end) ||
	    end > img->file_len)
		return bad(e, "segment ends behind the file, offset",
			   p->p_offset);
	if (p->p_paddr < ELF_LOAD_GPA_MIN)
		return bad(e, "segment below 1 MiB", p->p_paddr);
	if (!mem_span(m, p->p_paddr, p->p_memsz))
		return bad(e, "segment outside of guest memory", p->p_paddr);
	end = p->p_paddr + p->p_memsz; /* no wrap: it is inside RAM */
	for (unsigned i = 0; i < img->n; i++) {
		const struct segment *s = &img->seg[i];

		if (p->p_paddr < s->gpa + s->len && s->gpa < end)
			return bad(e, "segments overlap", p->p_paddr);
	}
	return 0;
}

static int read_image(struct image *img, struct mem *m, int fd,
		      gpa_t *ret_entry, struct err *e)
{
	Elf64_Phdr ph[ELF_SEGMENTS_MAX];
	Elf64_Ehdr h;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return bad(e, strerror(errno), 0);
	img->file_len = (uint64_t)st.st_size;
	r = fd_pread_all(fd, &h, sizeof(h), 0);
	if (r < 0)
		return bad(e, "file shorter than an ELF header", img->file_len);
	if (check_header(&h, e) < 0)
		return -1;
	if (h.e_phoff > INT64_MAX - sizeof(ph) ||
	    fd_pread_all(fd, ph, h.e_phnum * sizeof(ph[0]), (off_t)h.e_phoff) <
		    0)
		return bad(e, "program headers behind the file", h.e_phoff);
	for (unsigned i = 0; i < h.e_phnum; i++) {
		if (ph[i].p_type != PT_LOAD || ph[i].p_memsz == 0)
			continue;
		if (check_segment(img, m, &ph[i], e) < 0)
			return -1;
		img->seg[img->n++] = (struct segment){
			.file_off = ph[i].p_offset,
			.file_len = ph[i].p_filesz,
			.gpa = ph[i].p_paddr,
			.len = ph[i].p_memsz,
			.is_executable = ph[i].p_flags & PF_X,
		};
	}
	for (unsigned i = 0; i < img->n; i++) {
		const struct segment *s = &img->seg[i];

		if (s->is_executable && h.e_entry >= s->gpa &&
		    h.e_entry - s->gpa < s->len) {
			*ret_entry = h.e_entry;
			return 0;
		}
	}
	return bad(e, "entry outside of executable segments", h.e_entry);
}

int elf_load(struct mem *m, int fd, gpa_t *ret_entry, struct err *e)
{
	struct image img = {0};
	int r;

	if (read_image(&img, m, fd, ret_entry, e) < 0)
		return -1;
	for (unsigned i = 0; i < img.n; i++) {
		const struct segment *s = &img.seg[i];

		/* Fresh guest memory is zero: only file bytes are written. */
		r = fd_pread_all(fd, mem_span(m, s->gpa, s->file_len),
				 s->file_len, (off_t)s->file_off);
		if (r < 0)
			return bad(e, strerror(-r), s->file_off);
	}
	return 0;
}
