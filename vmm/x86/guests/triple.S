/* A triple fault: an exception with an empty IDT. */
	.section .text
	.globl _start
_start:
	lidt empty(%rip)
	ud2
1:	jmp 1b
	.section .rodata
empty:	.word 0
	.quad 0
	.section .note.GNU-stack, "", @progbits
