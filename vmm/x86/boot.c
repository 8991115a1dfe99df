/* See boot.h. */
#include "boot.h"
#include "mptable.h"
#include <asm/bootparam.h>
#include <asm/e820.h>
#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/ioctl.h>

#define HEADER_MAGIC	 0x53726448u /* "HdrS" */
#define BOOT_FLAG	 0xaa55
#define LOADER_UNDEFINED 0xff
#define KERNEL_ALIGNMENT 0x1000000
#define HIGH_RAM_GPA	 0x100000ull

#define CR0_PE	     (1u << 0)
#define CR0_ET	     (1u << 4)
#define CR0_PG	     (1u << 31)
#define CR4_PAE	     (1u << 5)
#define EFER_LME     (1u << 8)
#define EFER_LMA     (1u << 10)
#define RFLAGS_FIXED 2

#define PTE_PRESENT  (1ull << 0)
#define PTE_WRITABLE (1ull << 1)
#define PTE_HUGE     (1ull << 7)
#define PD_ENTRIES   512

/* Selectors of the boot protocol: __BOOT_CS and __BOOT_DS. */
#define SEL_CODE 0x10
#define SEL_DATA 0x18

static_assert(BOOT_PD_GPA + 0x1000 <= BOOT_CMDLINE_GPA, "tables apart");
static_assert(BOOT_PARAMS_GPA + sizeof(struct boot_params) <= BOOT_STACK_GPA,
	      "boot_params apart");
static_assert(BOOT_MPTABLE_GPA + BOOT_MPTABLE_BYTES == 0xa0000, "EBDA end");

static void e820_add(struct boot_params *bp, uint64_t at, uint64_t end,
		     uint32_t type)
{
	struct boot_e820_entry *n = &bp->e820_table[bp->e820_entries];

	if (at >= end)
		return;
	n->addr = at;
	n->size = end - at;
	n->type = type;
	bp->e820_entries++;
}

static int write_params(struct mem *m, const char *cmdline)
{
	uint64_t low = m->size < MEM_GAP_START ? m->size : MEM_GAP_START;
	struct boot_params bp;
	int r;

	memset(&bp, 0, sizeof(bp));
	bp.hdr.type_of_loader = LOADER_UNDEFINED;
	bp.hdr.boot_flag = BOOT_FLAG;
	bp.hdr.header = HEADER_MAGIC;
	bp.hdr.kernel_alignment = KERNEL_ALIGNMENT;
	bp.hdr.cmd_line_ptr = BOOT_CMDLINE_GPA;
	bp.hdr.cmdline_size = (uint32_t)strlen(cmdline);
	e820_add(&bp, 0, BOOT_MPTABLE_GPA, E820_RAM);
	e820_add(&bp, BOOT_MPTABLE_GPA, BOOT_MPTABLE_GPA + BOOT_MPTABLE_BYTES,
		 E820_RESERVED);
	e820_add(&bp, HIGH_RAM_GPA, low, E820_RAM);
	e820_add(&bp, MEM_GAP_END, MEM_GAP_END + (m->size - low), E820_RAM);
	r = mem_write(m, BOOT_PARAMS_GPA, &bp, sizeof(bp));
	if (r < 0)
		return r;
	return mem_write(m, BOOT_CMDLINE_GPA, cmdline, strlen(cmdline) + 1);
}

/* Identity map of the first GiB by 2 MiB pages; Linux makes its own next. */
static int write_page_tables(struct mem *m)
{
	uint64_t pd[PD_ENTRIES];
	uint64_t entry = BOOT_PDPT_GPA | PTE_PRESENT | PTE_WRITABLE;
	int r = mem_write(m, BOOT_PML4_GPA, &entry, sizeof(entry));

	if (r < 0)
		return r;
	entry = BOOT_PD_GPA | PTE_PRESENT | PTE_WRITABLE;
	r = mem_write(m, BOOT_PDPT_GPA, &entry, sizeof(entry));
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < PD_ENTRIES; i++)
		pd[i] = i << 21 | PTE_PRESENT | PTE_WRITABLE | PTE_HUGE;
	return mem_write(m, BOOT_PD_GPA, pd, sizeof(pd));
}

static int write_gdt(struct mem *m)
{
	/* null, unused, 64-bit code, data: flat, present, ring 0 */
	static const uint64_t gdt[] = {0, 0, 0x00af9b000000ffffull,
				       0x00cf93000000ffffull};
	static const uint64_t idt;
	int r = mem_write(m, BOOT_GDT_GPA, gdt, sizeof(gdt));

	return r < 0 ? r : mem_write(m, BOOT_IDT_GPA, &idt, sizeof(idt));
}

static int set_registers(int vcpu_fd, gpa_t entry, struct err *e)
{
	struct kvm_segment code = {
		.limit = 0xffffffff,
		.selector = SEL_CODE,
		.type = 11,
		.present = 1,
		.s = 1,
		.l = 1,
		.g = 1,
	};
	struct kvm_segment data = code;
	struct kvm_regs regs = {
		.rip = entry,
		.rsp = BOOT_STACK_GPA,
		.rbp = BOOT_STACK_GPA,
		.rsi = BOOT_PARAMS_GPA,
		.rflags = RFLAGS_FIXED,
	};
	struct kvm_sregs s;

	data.selector = SEL_DATA;
	data.type = 3;
	data.l = 0;
	data.db = 1;
	if (ioctl(vcpu_fd, KVM_GET_SREGS, &s) < 0)
		goto fail;
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	s.gdt.base = BOOT_GDT_GPA;
	s.gdt.limit = 4 * sizeof(uint64_t) - 1;
	s.idt.base = BOOT_IDT_GPA;
	s.idt.limit = sizeof(uint64_t) - 1;
	s.cr0 = CR0_PE | CR0_ET | CR0_PG;
	s.cr3 = BOOT_PML4_GPA;
	s.cr4 = CR4_PAE;
	s.efer = EFER_LME | EFER_LMA;
	if (ioctl(vcpu_fd, KVM_SET_SREGS, &s) < 0 ||
	    ioctl(vcpu_fd, KVM_SET_REGS, &regs) < 0)
		goto fail;
	return 0;
fail:
	return err_set(e, ERR_INTERNAL, NULL, "registers of vCPU 0: %s",
		       strerror(errno));
}

int boot_setup(struct mem *m, int vcpu_fd, unsigned n_vcpus, gpa_t entry,
	       const char *cmdline, struct err *e)
{
	int r = write_params(m, cmdline);

	if (r == 0)
		r = write_page_tables(m);
	if (r == 0)
		r = write_gdt(m);
	if (r == 0)
		r = mptable_write(m, n_vcpus);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "boot tables: %s",
			       strerror(-r));
	return set_registers(vcpu_fd, entry, e);
}
