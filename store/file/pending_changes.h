/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Changes of a recipe that are in the log, but not yet applied to the segments in memory. */
#pragma once

#include "store/file/content_state.h"

/* content_log() for patches, changes that all keep what lies between their extents: queues them instead of applying
 * them to the segments, and takes the list `x` that holds their extents. 1; 0: not possible, nothing was done. */
int content_log_pending(struct content *c, const struct replace *rp, size_t nr, struct extent_list *x) REQUIRES(c->lock);
/* The same for clones of a whole file into an empty `to`: 1. 0: not possible. */
int content_clone_pending(struct content *from, struct content *to, const struct clone *cl, size_t nr)
	REQUIRES(from->lock, to->lock);
int content_catch_up(struct content *c, size_t max) REQUIRES(c->lock); /* apply up to `max` of them; -ENOMEM */
void content_forget_pending(struct content *c); /* discard them */
/* For a hole that the log has and that cannot be applied now. The memory is allocated before it is logged. */
struct pending_change *pending_for_hole(void);
void content_queue_hole(struct content *c, struct pending_change *l, const struct replace *rp) REQUIRES(c->lock);
