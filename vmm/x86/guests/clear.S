/*
 * Asks for zeroed pages, a line of the log each, and says what it finds in the
 * first two and the last page of 2 MiB and in the one that follows them.
 * 'z' is zero, 'k' is kept, '?' is anything else.
 */
	.equ LOG, 0xe9
	.equ CLEAR, 0x518
	.equ AT, 0x400000
	.section .text
	.globl _start
_start:
	lea requests(%rip), %rsi
1:	mov (%rsi), %ebx
	test %ebx, %ebx
	jz 9f
	/* 4 MiB with a pattern in each page's first and last word */
	mov $AT, %edi
	movabs $0x5a5a5a5a5a5a5a5a, %rcx
2:	mov %rcx, (%rdi)
	mov %rcx, 0xff8(%rdi)
	add $0x1000, %edi
	cmp $(AT + 0x400000), %edi
	jb 2b
	mov %ebx, %eax
	mov $CLEAR, %edx
	out %eax, %dx
	/* first and last page of the first 2 MiB, the page that follows */
	mov $AT, %edi
	call say
	mov $(AT + 0x1000), %edi
	call say
	mov $(AT + 0x1ff000), %edi
	call say
	mov $(AT + 0x200000), %edi
	call say
	mov $'\n', %eax
	mov $LOG, %edx
	out %al, %dx
	add $4, %rsi
	jmp 1b
9:	hlt
	jmp 9b

say:	mov (%rdi), %rax
	mov 0xff8(%rdi), %rdx
	cmp %rax, %rdx
	jne 3f
	mov $'z', %ebp
	test %rax, %rax
	jz 4f
	mov $'k', %ebp
	cmp %rax, %rcx
	je 4f
3:	mov $'?', %ebp
4:	mov %ebp, %eax
	mov $LOG, %edx
	out %al, %dx
	ret

	.section .rodata
	.balign 4
requests:
	.long 0x4000		/* the page at 4 MiB */
	.long 0x4009		/* 2 MiB there */
	.long 0x401 << 4 | 9	/* not at a multiple of its size */
	.long 0x400 << 4 | 10	/* too large */
	.long 0x400 << 4 | 15
	.long 0xffffff << 4	/* no RAM */
	.long 0xfffff << 4 | 9
	.long 0xfffffff << 4 | 9
	.long 0
	.section .note.GNU-stack, "", @progbits
