/* Records that only the store knows, and bounds of the stored forms. */
#ifndef HUTCHD_RECORD_CBOR_H
#define HUTCHD_RECORD_CBOR_H

#include "record.h"
#include "store.h"

#define RECORD_ENV_NAMES_BYTES_MAX (128u << 10)
#define RECORD_ARGV_BYTES_MAX	   (128u << 10)

/* One change of a status; which thing it was stands in the row. */
struct event_rec {
	uint32_t from, to; /* enum sandbox_status or command_status; 0 = new */
	enum end_reason reason;
	char reason_text[REASON_BYTES_MAX];
};

int key_rec_encode(const struct key_info *r, struct bytes *out);
int key_rec_decode(struct key_info *r, const void *cbor, size_t len);
int event_rec_encode(const struct event_rec *r, struct bytes *out);
int event_rec_decode(struct event_rec *r, const void *cbor, size_t len);

#endif
