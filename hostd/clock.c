/* The daemon's clocks; see clock.h.  This is the build that cannot be moved. */
#include "clock.h"
#include <time.h>

static int64_t now_us(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
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
	return clock_wall_ms();
}

bool clock_is_movable(void)
{
	return false;
}
