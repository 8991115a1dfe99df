/*
 * --trace: what the VM does, as NDJSON, one object a line.
 *
 *   {"t":NS,"ev":"io","vcpu":0,"port":1288,"len":4,"out":1}
 *   {"t":NS,"ev":"mmio","vcpu":0,"addr":3489660928,"len":4,"out":0}
 *   {"t":NS,"ev":"exit","vcpu":0,"reason":8}
 *   {"t":NS,"ev":"mark","vcpu":0,"value":7,"exits":1234}
 *   {"t":NS,"ev":"irq","line":5}
 *   {"t":NS,"ev":"ring","vcpu":0,"lane":0,"state":1,"taken":1}
 *   {"t":NS,"ev":"park","vcpus":2}              all of them have
 *   {"t":NS,"ev":"lane","lane":0,"what":"run","len":42}   ready answer adopt
 *   {"t":NS,"ev":"kick","devices":2}            bit per device, with work
 *   {"t":NS,"ev":"channel","port":1024,"up":1,"len":42}   bytes passed
 *   {"t":NS,"ev":"rule_break","text":"blk0: ..."}
 *   {"t":NS,"ev":"dropped","n":17}
 *
 * t: CLOCK_MONOTONIC.  Callers append to a buffer and never wait for the
 * file: a full buffer drops lines and counts them.  A thread of its own
 * writes.  Every call is a NULL check when tracing is off.
 */
#ifndef HUTCH_TRACE_H
#define HUTCH_TRACE_H

#include <stddef.h>
#include <stdint.h>

#define TRACE_BUFFER_BYTES   (256u << 10)
#define TRACE_LINE_BYTES_MAX 512

struct trace;

int trace_create(struct trace **ret, int fd); /* fd: borrowed */
/* Start the writer thread; confines itself. */
int trace_start(struct trace *t);
/* Wait, at most a second, until all is written. */
void trace_flush(struct trace *t);

void trace_line(struct trace *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static inline void trace_io(struct trace *t, unsigned vcpu, uint16_t port,
			    uint32_t len, int is_out)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"io\",\"vcpu\":%u,\"port\":%u,\"len\":%u,"
			   "\"out\":%d",
			   vcpu, port, len, is_out);
}

static inline void trace_mmio(struct trace *t, unsigned vcpu, uint64_t addr,
			      uint32_t len, int is_out)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"mmio\",\"vcpu\":%u,\"addr\":%llu,"
			   "\"len\":%u,\"out\":%d",
			   vcpu, (unsigned long long)addr, len, is_out);
}

static inline void trace_exit(struct trace *t, unsigned vcpu, uint32_t reason)
{
	if (t)
		trace_line(t, "\"ev\":\"exit\",\"vcpu\":%u,\"reason\":%u", vcpu,
			   reason);
}

static inline void trace_mark(struct trace *t, unsigned vcpu, uint32_t value,
			      uint64_t exits)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"mark\",\"vcpu\":%u,\"value\":%u,"
			   "\"exits\":%llu",
			   vcpu, value, (unsigned long long)exits);
}

static inline void trace_irq(struct trace *t, unsigned line)
{
	if (t)
		trace_line(t, "\"ev\":\"irq\",\"line\":%u", line);
}

static inline void trace_kick(struct trace *t, unsigned devices)
{
	if (t)
		trace_line(t, "\"ev\":\"kick\",\"devices\":%u", devices);
}

static inline void trace_channel(struct trace *t, uint32_t port, int is_up,
				 uint32_t len)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"channel\",\"port\":%u,\"up\":%d,"
			   "\"len\":%u",
			   port, is_up, len);
}

static inline void trace_ring(struct trace *t, unsigned vcpu, uint32_t lane,
			      uint32_t state, int is_taken)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"ring\",\"vcpu\":%u,\"lane\":%u,"
			   "\"state\":%u,\"taken\":%d",
			   vcpu, lane, state, is_taken);
}

static inline void trace_park(struct trace *t, unsigned n_vcpus)
{
	if (t)
		trace_line(t, "\"ev\":\"park\",\"vcpus\":%u", n_vcpus);
}

/* what: a word of ours. */
static inline void trace_lane(struct trace *t, uint32_t lane, const char *what,
			      uint32_t len)
{
	if (t)
		trace_line(t,
			   "\"ev\":\"lane\",\"lane\":%u,\"what\":\"%s\","
			   "\"len\":%u",
			   lane, what, len);
}

/* `text` is escaped. */
void trace_text(struct trace *t, const char *ev, const char *text);

#endif
