/*
 * A daemon of our own, when none runs.
 *
 * `hutch run` on a fresh machine must work by itself, so it starts hutchd on
 * the state folder, without a TCP port.  It lives as long as some `hutch`
 * uses it: each holds a shared lock on STATE/users.lock, and the last one ends
 * it (SIGTERM, then waits), unless a command has not ended: whoever started
 * that one was killed, and the next `hutch` ends the daemon.  Records stay in
 * the folder; the next command starts it again, which takes some milliseconds.
 * A daemon that a person started (`hutch serve`, systemd) is never ended here.
 *
 * STATE/started-by-hutch names the pid of a daemon of ours; it counts only
 * when the socket's peer has this pid.  STATE/hutchd.log has its log.
 */
#ifndef HUTCH_CLI_DAEMON_H
#define HUTCH_CLI_DAEMON_H

#include "client.h"

/* Connect c->http to STATE/admin.sock, starting a daemon if there is none. */
int daemon_connect(struct cli *c, enum cli_need need, struct err *e);
void daemon_release(struct cli *c);

/* mkdir -p of the state folder, mode 0700 for the last one. */
int daemon_make_state(const struct cli *c, struct err *e);

/* The folder that this program is in. */
int daemon_folder(char dst[CLI_PATH_BYTES_MAX], struct err *e);
/* Path of a program of this build ("hutchd"): beside our own, or below
 * ../libexec/hutch.  0 or -1 with `e`. */
int daemon_program(const char *name, char *dst, size_t cap, struct err *e);

#endif
