/* Messages of Protocol Buffers, field by field: as much as images of CRIU need. Pure; nothing is allocated. */
#pragma once

#include <stdint.h>

struct protobuf {
	const uint8_t *at, *end;
};

struct protobuf_field {
	uint32_t number;
	uint64_t value; /* of an integer; of bytes 0 */
	const uint8_t *bytes; /* of a text or message, in the message; NULL of integers */
	uint64_t len;
};

/* The next field: 1, 0 there is none, -EBADMSG. */
int protobuf_next(struct protobuf *m, struct protobuf_field *ret);
