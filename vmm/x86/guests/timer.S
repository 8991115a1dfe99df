/*
 * Sleeps by the TSC deadline timer, a tenth of 2^30 counts each time, and says
 * a letter at each tick.  A deadline that is lost or far off is silence.
 */
	.set LAPIC_BASE, 0x1b
	.set X2APIC_EOI, 0x80b
	.set X2APIC_SVR, 0x80f
	.set X2APIC_LVT_TIMER, 0x832
	.set TSC_DEADLINE, 0x6e0
	.set VECTOR, 0x40
	.set IDT, 0x201000
	.set DELTA, 100000000

	.section .text
	.globl _start
_start:
	mov $0x300000, %esp
	/* one gate: code segment 0x10, present, interrupt gate */
	mov $IDT + VECTOR * 16, %edi
	lea tick(%rip), %rax
	mov %ax, (%rdi)
	movw $0x10, 2(%rdi)
	movw $0x8e00, 4(%rdi)
	shr $16, %rax
	mov %ax, 6(%rdi)
	movq $0, 8(%rdi)
	lidt idtr(%rip)

	mov $LAPIC_BASE, %ecx
	rdmsr
	or $0xc00, %eax		/* enabled, x2APIC */
	wrmsr
	mov $X2APIC_SVR, %ecx
	mov $0x1ff, %eax
	xor %edx, %edx
	wrmsr
	mov $X2APIC_LVT_TIMER, %ecx
	mov $0x40000 | VECTOR, %eax	/* TSC deadline mode */
	wrmsr
	mov $'a', %ebx
	call arm
1:	sti
	hlt
	jmp 1b

arm:	rdtsc
	add $DELTA, %eax
	adc $0, %edx
	mov $TSC_DEADLINE, %ecx
	wrmsr
	ret

tick:	mov %ebx, %eax
	mov $0xe9, %edx
	out %al, %dx
	inc %ebx
	cmp $'z', %ebx
	jbe 1f
	mov $'a', %ebx
1:	call arm
	mov $X2APIC_EOI, %ecx
	xor %eax, %eax
	xor %edx, %edx
	wrmsr
	iretq

	.section .rodata
idtr:	.word 0xfff
	.quad IDT
	.section .note.GNU-stack, "", @progbits
