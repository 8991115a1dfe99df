/*
 * Limits of the guest's init: one place, units last.
 */
#ifndef HUTCH_GUEST_LIMITS_H
#define HUTCH_GUEST_LIMITS_H

#define USER_ID 1000 /* uid and gid of user code: "sandbox" */

/* Commands that init knows at once: running, or ended and not yet acked. */
#define COMMANDS_MAX 64
/* Control groups, made before the snapshot: for commands, and for what of
 * Python waits beside them. */
#define SLOTS_COMMANDS 12
#define SLOTS_MAX      (SLOTS_COMMANDS + 6)

/* Output: a stream is sent when this much waits, or this long after. */
#define OUTPUT_BATCH_BYTES (32u << 10)
#define OUTPUT_BATCH_MS	   25
/* The kept tail of a stream that passed its head is sent this often. */
#define OUTPUT_TAIL_MS 1000
/* Caps of one stream whatever the host asks for. */
#define OUTPUT_HEAD_BYTES_MAX	 (4u << 20)
#define OUTPUT_TAIL_BYTES_MAX	 (1u << 20)
#define OUTPUT_CAP_BYTES_DEFAULT (48u << 10)
/* Pipes of user code: a large one makes a flood cheap. */
#define PIPE_BYTES (1u << 20)
/* A flooding pipe is visited after 4 times the length of the last visit. */
#define FLOOD_PAUSE_MS_MIN 5
#define FLOOD_PAUSE_MS_MAX 100

/* Processes that outlive their command's first one may hold its pipes. */
#define PIPE_HOLDERS_MS 500
/* A killed tree runs no instruction any more.  Its end is told when it is gone,
 * or after this long: what remains is the kernel's freeing of memory. */
#define TREE_DEATH_MS 1000
/* A running process is asked after for an end that wait(2) does not tell yet
 * (dying.h): after the first of these, each next time half as long again. */
#define PROBE_MS_MIN	250
#define PROBE_MS_MAX	2000
#define PROBE_KILLED_MS 50

#define TIMEOUT_MS_DEFAULT 60000

/* Runner channel: request written in one go up to this many bytes. */
#define CHANNEL_BYTES (4u << 20)

/* Between attempts to reach the host. */
#define LINK_RETRY_MS_MIN 50
#define LINK_RETRY_MS_MAX 1000
/* Receive window of the channel to the host. */
#define LINK_WINDOW_BYTES (4u << 20)
#define LINK_READ_BYTES	  (256u << 10)

/* Memory that user code never gets: kernel and init. */
#define RESERVE_BYTES_MIN (12u << 20)
#define RESERVE_SHARE	  64 /* and 1/64 of the RAM */

/* Before READY the kernel finishes what it put off: a snapshot would have each
 * of its clones do it in the path of their run. */
#define PREPARE_SETTLE_MS  2000
#define PREPARE_PROGRAM_MS 600000
#define PREPARE_RUNNER_MS  3600000

#define PATH_DEFAULT                                                           \
	"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Where a waiting runner finds its channel. */
#define RUNNER_FD 15
/* And with an express lane: its page, and the read ends of its own standard
 * output and error. */
#define LANE_PAGE_FD	14
#define LANE_STREAMS_FD 12 /* and 13 */

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define NS_PER_MS    1000000ull
#define NS_PER_S     1000000000ull

#endif
