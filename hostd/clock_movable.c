/*
 * The clocks of a test build: each reading adds the offset that stands in the
 * file named by HUTCH_TEST_CLOCK, so that a test can pass an hour in no time.
 * Never linked into the daemon that is installed.
 */
#include "clock.h"
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int64_t offset_ms(void)
{
	const char *path = getenv("HUTCH_TEST_CLOCK");
	char text[32];
	ssize_t n;
	int fd;

	if (!path)
		return 0;
	/* Opened each time: tests replace the file by rename. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	return strtoll(text, NULL, 10);
}

static int64_t now_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000 +
	       offset_ms() * 1000;
}

int64_t clock_wall_ms(void)
{
	return now_us(CLOCK_REALTIME) / 1000;
}

int64_t clock_mono_ms(void)
{
	return now_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_mono_us(void)
{
	return now_us(CLOCK_MONOTONIC);
}

int64_t clock_file_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool clock_is_movable(void)
{
	return true;
}
