/*
 * Frames to the guest: header and CBOR payload, appended to a byte queue.
 *
 * All functions return 0, -ENOMEM, or -EMSGSIZE when the payload would pass
 * GP_DOWN_BYTES_MAX; on error the queue is as it was.
 */
#ifndef HUTCHD_GP_DOWN_H
#define HUTCHD_GP_DOWN_H

#include "bytes.h"
#include "guest_proto.h"
#include "vm.h"
#include <stdbool.h>

struct gp_identity {
	uint8_t entropy[GP_ENTROPY_BYTES];
	uint64_t wall_ns;
	char hostname[64];
	char machine_id[33];
	uint64_t mem_bytes, pids, disk_bytes;
};

int gp_down_welcome(struct bytes *out);
/* entropy: GP_ENTROPY_BYTES */
int gp_down_prepare(struct bytes *out, const char *runner, bool preload,
		    bool disk, const uint8_t *entropy);
int gp_down_bind(struct bytes *out, const struct gp_identity *id);
int gp_down_run(struct bytes *out, uint64_t cmd, const struct vm_run *run);
int gp_down_exec(struct bytes *out, uint64_t cmd, const struct vm_exec *exec);
int gp_down_kill(struct bytes *out, uint64_t cmd, uint32_t grace_ms);
/* timeout_ms: what is left of it */
int gp_down_adopt(struct bytes *out, uint64_t cmd, uint32_t timeout_ms);
/* With the first `first` bytes of a write. */
int gp_down_file(struct bytes *out, uint64_t number, const struct vm_file *f,
		 size_t first);
/* The next bytes of one; none: it is given up. */
int gp_down_file_piece(struct bytes *out, uint64_t number, const void *data,
		       size_t len);
/* A frame without a payload: ARM, ACK, PING, POWEROFF. */
int gp_down_plain(struct bytes *out, enum gp_type type, uint64_t cmd);

#endif
