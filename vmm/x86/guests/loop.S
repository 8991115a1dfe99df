/* Never leaves the guest by itself. */
	.section .text
	.globl _start
_start:
	jmp _start
	.section .note.GNU-stack, "", @progbits
