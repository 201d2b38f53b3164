/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A process that ends at one of its requests to any back end: that one takes effect or not, and none after it. Those
 * that are in flight take effect. It belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/tier/tier.h"

struct mortal {
	struct tier tier; /* for the process */
	struct tier *back_end;
	struct tier_queue *queue;
	uint64_t nr_requests;
	uint64_t end_at; /* the request of this number, from 1; 0: never */
	bool after; /* it takes effect */
	bool has_ended;
};
/* Borrows the back end. */
void mortal_init(struct mortal *m, struct tier *back_end, uint64_t end_at, bool after);
void mortal_release(struct mortal *m); /* waits for the requests in flight */
