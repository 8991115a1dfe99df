/*
 * A runner and its lane (api/lane.h), without an operating system around it:
 * registers lane 0, then goes to user mode and waits for requests there.  The
 * first byte of a request says what to do before it is echoed:
 *
 *   d  count down the 32-bit number at byte 4
 *   l  wait until it is adopted
 *   n  answer, with a length that is too large
 *   v  ring with a wrong version in the head
 *   w  one of each port write that breaks the rules: five
 *   s  ring without end, which means nothing
 *   p  register without end
 *   b  tell the second processor to ring, too
 *
 * On the log port: C resumed without a request, A adopted.
 *
 * A second processor, when there is one, counts in real mode until it is told
 * to ring; its lane is 1, in the first page of memory, and answers nothing.
 */
	.equ RING, 0x520
	.equ PAGE, 0x524
	.equ LOG, 0xe9
	.equ LANE, 0x800000
	.equ VERSION, 2
	.equ STATE, 4
	.equ REQUEST_LEN, 8
	.equ ANSWER_LEN, 12
	.equ REQUEST, 4096
	.equ ANSWER, 0x100000
	.equ ANSWER_MAX, 0x100000
	.equ CLOSED, 0
	.equ READY, 1
	.equ GIVEN, 2
	.equ FINISHING, 3
	.equ ANSWERED, 4
	.equ ADOPTED, 5
	.equ TOLD, 0x600	/* a byte: 1 = the second processor rings */
	.equ SECOND, 0x10000	/* its code */

	.section .text
	.globl _start
_start:
	/* user mode may use all that is mapped */
	orq $4, 0x9000
	orq $4, 0xa000
	mov $0xb000, %edi
	mov $512, %ecx
1:	orq $4, (%rdi)
	add $8, %edi
	dec %ecx
	jnz 1b
	mov %cr3, %rax
	mov %rax, %cr3
	lgdt gdtr(%rip)
	mov $PAGE, %edx
	mov $(LANE >> 21 << 4), %eax
	out %eax, %dx

	lea second(%rip), %rsi
	mov $SECOND, %edi
	mov $(second_end - second), %ecx
	rep movsb
	movb $0, TOLD
	mov $0x1b, %ecx		/* x2APIC */
	rdmsr
	or $0xc00, %eax
	wrmsr
	mov $0x830, %ecx	/* to processor 1: INIT, SIPI */
	mov $1, %edx
	mov $0x4500, %eax
	wrmsr
	mov $(0x4600 | SECOND >> 12), %eax
	wrmsr

	pushq $0x23
	pushq $0x300000
	pushq $0x3002		/* ports are allowed */
	pushq $0x2b
	lea user(%rip), %rax
	push %rax
	iretq

user:	mov $LANE, %ebx
	movl $VERSION, (%rbx)
ready:	movl $READY, STATE(%rbx)
	call ring
	mov STATE(%rbx), %eax	/* adopted already is given, too */
	cmp $READY, %eax
	je closed
	movzbl REQUEST(%rbx), %eax
	cmp $'d', %al
	je delay
	cmp $'l', %al
	je linger
	cmp $'n', %al
	je too_long
	cmp $'v', %al
	je version
	cmp $'w', %al
	je wrong
	cmp $'s', %al
	je storm
	cmp $'p', %al
	je pages
	cmp $'b', %al
	je both
echo:	mov $GIVEN, %eax
	mov $FINISHING, %ecx
	lock cmpxchg %ecx, STATE(%rbx)
	jne adopted
	mov REQUEST_LEN(%rbx), %ecx
	mov %ecx, ANSWER_LEN(%rbx)
	lea REQUEST(%rbx), %rsi
	lea ANSWER(%rbx), %rdi
	rep movsb
answer:	movl $ANSWERED, STATE(%rbx)
	call ring
	jmp ready

closed:	movl $CLOSED, STATE(%rbx)
	mov $'C', %eax
	jmp say
adopted:
	mov $'A', %eax
say:	mov $LOG, %edx
	out %al, %dx
	jmp ready

ring:	mov $RING, %edx
	xor %eax, %eax
	out %eax, %dx
	ret

delay:	mov REQUEST + 4(%rbx), %ecx
1:	dec %ecx
	jns 1b
	jmp echo

linger:	pause
	cmpl $ADOPTED, STATE(%rbx)
	jne linger
	jmp adopted

too_long:
	movl $FINISHING, STATE(%rbx)
	movl $(ANSWER_MAX + 1), ANSWER_LEN(%rbx)
	jmp answer

version:
	movl $(VERSION + 1), (%rbx)
	movl $READY, STATE(%rbx)
	call ring
	movl $VERSION, (%rbx)
	movl $GIVEN, STATE(%rbx)
	jmp echo

wrong:	mov $RING, %edx
	xor %eax, %eax
	out %al, %dx
	out %ax, %dx
	mov $4, %eax		/* no such lane */
	out %eax, %dx
	mov $PAGE, %edx
	out %ax, %dx
	mov $(LANE >> 21 << 4), %eax
	out %eax, %dx
	jmp echo

storm:	call ring
	jmp storm

pages:	mov $PAGE, %edx
	mov $0xffffffff, %eax
1:	out %eax, %dx
	jmp 1b

both:	movb $1, TOLD
	jmp echo

	/* The second processor's; copied to SECOND. */
	.code16
second:	xor %ax, %ax
	mov %ax, %ds
	mov $PAGE, %dx
	mov $1, %eax		/* page 0, lane 1 */
	out %eax, %dx
2:	incl TOLD + 4
	cmpb $1, TOLD
	jne 2b
	movl $VERSION, 0
	movl $READY, STATE
	mov $RING, %dx
	mov $1, %eax
	out %eax, %dx
	cmpl $GIVEN, STATE
	jne 3f
	movl $0, ANSWER_LEN
	movl $ANSWERED, STATE
	out %eax, %dx
3:	movl $CLOSED, STATE
	movb $0, TOLD
	jmp 2b
second_end:
	.code64

	.section .rodata
	.balign 8
gdt:	.quad 0, 0
	.quad 0x00af9b000000ffff	/* 0x10, 0x18: as at the start */
	.quad 0x00cf93000000ffff
	.quad 0x00cff3000000ffff	/* 0x20, 0x28: user mode's */
	.quad 0x00affb000000ffff
gdtr:	.word 47
	.quad gdt
	.section .note.GNU-stack, "", @progbits
