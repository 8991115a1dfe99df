/*
 * The smallest guest: a mark, then power off.  Used to measure how long it
 * takes from the start of a process to the first guest instruction.
 *
 * The instructions are the same in 32-bit and 64-bit mode, and the file also
 * carries a PVH note, so that other monitors can run it too.
 */
	.section .text
	.globl _start
_start:
	mov $0x504, %edx	/* HUTCH_PORT_MARK */
	mov $1, %eax
	out %eax, %dx
	mov $0x500, %edx	/* HUTCH_PORT_POWER */
	mov $0x0ff0, %eax	/* HUTCH_POWER_OFF */
	out %eax, %dx
1:	hlt
	jmp 1b

	.section .note.Xen, "a", @note
	.balign 4
	.long 4, 4, 18		/* XEN_ELFNOTE_PHYS32_ENTRY */
	.asciz "Xen"
	.long _start
	.section .note.GNU-stack, "", @progbits
