/* Threads with small stacks: a VM's own memory is counted. */
#ifndef HUTCH_VMM_THREAD_H
#define HUTCH_VMM_THREAD_H

#include <pthread.h>

#define THREAD_STACK_BYTES (128u << 10)

/* 0 or -errno.  All signals are blocked in it but the vCPU kick. */
int thread_create(pthread_t *ret, void *(*fn)(void *), void *arg);

#endif
