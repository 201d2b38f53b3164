/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Gets several objects at once, and returns them in the order in which they were started. It belongs to one thread and
 * is not moved while requests are in flight.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier.h"
#include "store/tier/tier_format.h"

#define TIER_GETS_MAX 16u
#define TIER_GETS_BYTES ((size_t)32 << 20) /* in flight, unless there is only one get */

struct tier_got {
	struct tier_request q; /* result, got and size are for the caller */
	struct tier_object_name name;
	uint8_t *bytes;
	uint32_t tag; /* of the caller */
	bool is_completed;
};

struct tier_gets {
	struct tier_queue *queue;
	struct tier_got v[TIER_GETS_MAX]; /* a ring */
	unsigned first, nr; /* the returned one included */
	size_t bytes;
	bool is_returned; /* the first one */
};

int tier_gets_init(struct tier *t, struct tier_gets *ret);
/* Waits for the requests in flight. */
void tier_gets_release(struct tier_gets *g);
/* Another get of this length has to wait until tier_gets_next() is called. */
bool tier_gets_is_full(const struct tier_gets *g, size_t len);
/* Up to `len` bytes of an object. Only while it is not full. -ENOMEM */
int tier_gets_start(struct tier_gets *g, struct tier_object_name name, uint64_t off, size_t len, uint32_t tag);
/* Waits for the oldest one. Borrowed until the next call. NULL: none is left. */
struct tier_got *tier_gets_next(struct tier_gets *g);
