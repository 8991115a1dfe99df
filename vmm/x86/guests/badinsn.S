/* An access to a place that nobody owns, then code outside of memory: the
 * guest kernel's mistakes end its VM, not its monitor. */
	.section .text
	.globl _start
_start:
	mov $0xd1000000, %ebx	/* no device */
	movq $1, (%rbx)
	mov (%rbx), %rax
	cmp $-1, %rax
	jne 1f
	mov $0x1234, %edx	/* no port */
	in %dx, %eax
	cmp $-1, %eax
	jne 1f
	out %eax, %dx
	mov $0x30000000, %ebx	/* mapped, but no memory there */
	jmp *%rbx
1:	mov $0x500, %edx
	mov $0x0ff0, %eax
	out %eax, %dx
	hlt
	.section .note.GNU-stack, "", @progbits
