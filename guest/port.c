/* Port writes to the monitor; see port.h. */
#include "port.h"
#include "lane.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/io.h>
#include <sys/reboot.h>
#include <unistd.h>

#define LOG_LINE_BYTES_MAX 512
#define PORT_BYTES	   4 /* of one OUT */

static bool is_open;

int port_open(void)
{
	if (ioperm(HUTCH_PORT_POWER, 8, 1) || ioperm(HUTCH_PORT_LOG, 1, 1) ||
	    ioperm(HUTCH_PORT_LANE_RING, PORT_BYTES, 1) ||
	    ioperm(HUTCH_PORT_LANE_PAGE, PORT_BYTES, 1))
		return -errno;
	is_open = true;
	return 0;
}

void port_close(void)
{
	if (!is_open)
		return;
	is_open = false;
	if (ioperm(HUTCH_PORT_POWER, 8, 0) || ioperm(HUTCH_PORT_LOG, 1, 0) ||
	    ioperm(HUTCH_PORT_LANE_RING, PORT_BYTES, 0) ||
	    ioperm(HUTCH_PORT_LANE_PAGE, PORT_BYTES, 0))
		_exit(1); /* never go on with ports that must be gone */
}

void port_mark(uint32_t mark)
{
	if (is_open)
		outl(mark, HUTCH_PORT_MARK);
}

void port_lane_page(uint64_t frame, uint32_t lane)
{
	if (is_open)
		outl((uint32_t)(frame << 4) | lane, HUTCH_PORT_LANE_PAGE);
}

void port_lane_ring(uint32_t lane)
{
	if (is_open)
		outl(lane, HUTCH_PORT_LANE_RING);
}

void port_log(const char *fmt, ...)
{
	char line[LOG_LINE_BYTES_MAX];
	va_list ap;
	int n, room = (int)sizeof(line) - 1;

	n = snprintf(line, sizeof(line), "hutch-init: ");
	va_start(ap, fmt);
	n += vsnprintf(line + n, (size_t)(room - n), fmt, ap);
	va_end(ap);
	if (n > room - 1)
		n = room - 1;
	line[n++] = '\n';
	if (is_open)
		outsb(HUTCH_PORT_LOG, line, (unsigned long)n);
	else if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void port_power_off(void)
{
	if (is_open)
		outl(HUTCH_POWER_OFF, HUTCH_PORT_POWER);
	/* Another monitor, which does not know the port. */
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
