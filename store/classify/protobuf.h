/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parses messages of Protocol Buffers field by field, as far as images of CRIU need it. Pure; allocates nothing. */
#pragma once

#include <stdint.h>

struct protobuf {
	const uint8_t *at, *end;
};

struct protobuf_field {
	uint32_t number;
	uint64_t value; /* of an integer; 0 for bytes */
	const uint8_t *bytes; /* of a text or message, in the message; NULL for integers */
	uint64_t len;
};

/* The next field: 1; 0: no more; -EBADMSG. */
int protobuf_next(struct protobuf *m, struct protobuf_field *ret);
