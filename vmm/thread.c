/* See thread.h. */
#include "thread.h"
#include "vcpu.h"
#include <signal.h>

int thread_create(pthread_t *ret, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int r;

	sigfillset(&all);
	sigdelset(&all, VCPU_KICK_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	r = pthread_create(ret, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}
