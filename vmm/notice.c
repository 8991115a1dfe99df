/* Mail boxes to the main thread; see notice.h. */
#include "notice.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int notice_init(struct notice *n)
{
	*n = (struct notice){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (n->fd < 0)
		return -errno;
	pthread_mutex_init(&n->lock, NULL);
	return 0;
}

void notice_wake(struct notice *n)
{
	uint64_t one = 1;

	/* A full counter is a wake that is already there. */
	(void)!write(n->fd, &one, sizeof(one));
}

void notice_clear(struct notice *n)
{
	uint64_t count;

	(void)!read(n->fd, &count, sizeof(count));
}

void notice_end(struct notice *n, enum vmm_why why, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&n->lock);
	if (!n->has_end) {
		n->has_end = true;
		n->end.why = why;
		va_start(ap, fmt);
		vsnprintf(n->end.text, sizeof(n->end.text), fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&n->lock);
	notice_wake(n);
}

void notice_started(struct notice *n, uint64_t ns)
{
	pthread_mutex_lock(&n->lock);
	if (!n->started_ns) {
		n->has_started = true;
		n->started_ns = ns;
	}
	pthread_mutex_unlock(&n->lock);
	notice_wake(n);
}

bool notice_open(struct notice *n, uint32_t conn, uint32_t port)
{
	bool is_room;

	pthread_mutex_lock(&n->lock);
	is_room = n->n_opens < NOTICE_OPENS_MAX;
	if (is_room)
		n->open[n->n_opens++] =
			(struct notice_open){.conn = conn, .port = port};
	pthread_mutex_unlock(&n->lock);
	notice_wake(n);
	return is_room;
}

void notice_device(struct notice *n, const char *text)
{
	struct vmm_exit *d;

	pthread_mutex_lock(&n->lock);
	if (n->n_devices < NOTICE_DEVICES_MAX) {
		d = &n->device[n->n_devices++];
		*d = (struct vmm_exit){.why = VMM_WHY_DEVICE};
		snprintf(d->text, sizeof(d->text), "%s", text);
	} else {
		n->n_devices_lost++;
	}
	pthread_mutex_unlock(&n->lock);
	notice_wake(n);
}

bool notice_take_open(struct notice *n, struct notice_open *ret)
{
	bool is_there;

	pthread_mutex_lock(&n->lock);
	is_there = n->n_opens > 0;
	if (is_there) {
		*ret = n->open[0];
		n->n_opens--;
		memmove(n->open, n->open + 1, n->n_opens * sizeof(n->open[0]));
	}
	pthread_mutex_unlock(&n->lock);
	return is_there;
}

bool notice_take_device(struct notice *n, struct vmm_exit *ret)
{
	bool is_there;

	pthread_mutex_lock(&n->lock);
	is_there = n->n_devices > 0;
	if (is_there) {
		*ret = n->device[0];
		n->n_devices--;
		memmove(n->device, n->device + 1,
			n->n_devices * sizeof(n->device[0]));
	}
	pthread_mutex_unlock(&n->lock);
	return is_there;
}

bool notice_take_started(struct notice *n, uint64_t *ret_ns)
{
	bool is_there;

	pthread_mutex_lock(&n->lock);
	is_there = n->has_started;
	n->has_started = false;
	*ret_ns = n->started_ns;
	pthread_mutex_unlock(&n->lock);
	return is_there;
}

bool notice_get_end(struct notice *n, struct vmm_exit *ret)
{
	bool is_there;

	pthread_mutex_lock(&n->lock);
	is_there = n->has_end;
	if (is_there)
		*ret = n->end;
	pthread_mutex_unlock(&n->lock);
	return is_there;
}
