/*
 * The states of sandboxes and commands, as tables.
 *
 *   sandbox   starting --bound--> running --destroy--> destroying
 *                |  |                |                     |
 *                |  +--destroy--------------> destroying   +-gone-> destroyed
 *                |  +--gone--> lost  +--gone--> lost
 *                +--cannot start--> failed
 *
 *             running --stop--> stopping --stopped--> stopped
 *             running <--go on--    |                    |
 *                                   |   starting <--resume
 *                                   |   starting --cannot resume--> stopped
 *             stopping, stopped --destroy--> destroying, --gone--> lost
 *
 *   command   queued --start--> running --succeed--> succeeded
 *                                       --fail-----> failed
 *                                       --time out-> timed_out
 *             queued, running           --cancel---> cancelled
 *             queued, running           --lose-----> lost
 *             queued                    --fail-----> failed (cannot start)
 *
 * A pair that is not in the table is refused (-EINVAL) and changes nothing; in
 * particular nothing leaves a final state.  sandbox_set and command_set are
 * the only writers of `status`.
 */
#ifndef HUTCHD_STATE_H
#define HUTCHD_STATE_H

#include "../store/record.h"

enum sandbox_event {
	SBX_EV_BOUND,	     /* the guest has its identity */
	SBX_EV_CANNOT_START, /* it never got that far */
	SBX_EV_DESTROY,	     /* its work is done, or someone asked */
	SBX_EV_GONE,	     /* its VM is no more */
	SBX_EV_STOP,	     /* someone asked, or it was idle */
	SBX_EV_STOPPED,	     /* all is in files, its VM is no more */
	SBX_EV_GO_ON,	     /* it cannot be stopped */
	SBX_EV_RESUME,
	SBX_EV_CANNOT_RESUME, /* its files are as they were */
	SBX_EV_N,
};

enum command_event {
	CMD_EV_START,
	CMD_EV_SUCCEED,
	CMD_EV_FAIL,
	CMD_EV_TIME_OUT,
	CMD_EV_CANCEL,
	CMD_EV_LOSE,
	CMD_EV_N,
};

/* 0, or -EINVAL: no such transition.  `text` (may be NULL, any bytes) is cut
 * and made printable; `now_ms` goes where the transition says. */
int sandbox_set(struct sandbox_rec *r, enum sandbox_event ev,
		enum end_reason why, const char *text, int64_t now_ms);
int command_set(struct command_rec *r, enum command_event ev,
		enum end_reason why, const char *text, int64_t now_ms);

#endif
