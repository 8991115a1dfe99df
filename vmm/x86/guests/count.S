/*
 * Counts in a register and in memory, which must agree, and says every 64th
 * number as a letter of the log port: a to z, again and again.  A difference
 * is a triple fault.  Built to be stopped and copied at any instruction.
 */
	.section .text
	.globl _start
_start:
	xor %ebx, %ebx
	mov $0x200000, %edi
	movq $0, (%rdi)
	mov $'a', %ecx
1:	cmp %rbx, (%rdi)
	jne 2f
	inc %rbx
	mov %rbx, (%rdi)
	test $63, %bl
	jnz 1b
	mov %ecx, %eax
	mov $0xe9, %edx
	out %al, %dx
	inc %ecx
	cmp $'z', %ecx
	jbe 1b
	mov $'a', %ecx
	jmp 1b
2:	lidt empty(%rip)
	ud2
	.section .rodata
empty:	.word 0
	.quad 0
	.section .note.GNU-stack, "", @progbits
