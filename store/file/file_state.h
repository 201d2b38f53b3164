/* SPDX-License-Identifier: GPL-3.0-or-later */
/* State of the set of files in memory. For the files of store/file alone. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

struct content;
struct engine;

#define CONTENT_BUCKETS 16384
#define NR_WARM 16 /* lineages that grow concurrently */

struct file_table {
	struct mutex lock; /* leaf */
	struct content *buckets[CONTENT_BUCKETS] GUARDED_BY(lock);
	struct content *dirty, **dirty_end GUARDED_BY(lock);
	struct content *staged_first, *staged_last GUARDED_BY(lock); /* oldest first */
	/* most recent lineages, referenced while memory allows; NULL: none */
	struct content *warm[NR_WARM] GUARDED_BY(lock);
	unsigned next_warm GUARDED_BY(lock);

	/* bytes of all segments in memory; of those that the view lacks; and the limit set by files_set_limit() */
	_Atomic uint64_t segment_memory, dirty_segment_memory, segment_limit;
	_Atomic int64_t logical; /* mapped bytes of all files */
};

/* Takes up to `max` dirty contents off the list, those longest on it first, with the references of the list. */
unsigned files_take_dirty(struct engine *e, struct content **ret, unsigned max);
void files_put_back_dirty(struct engine *e, struct content *c);
size_t files_nr_dirty(struct engine *e);
/* The list of dirty contents, which holds a reference to each. */
void dirty_append(struct file_table *t, struct content *c) REQUIRES(t->lock);
void dirty_remove(struct file_table *t, struct content *c) REQUIRES(t->lock);
