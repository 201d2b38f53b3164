/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parallel reads of a scattered range.
 *
 * A file that changed a little at every step is spread over as many frames as there were steps, with a few chunks in
 * each. A request for one MiB then needs fifty to a hundred reads. These functions submit the reads of a request together
 * (base/io.h, struct io_queue), so that the request takes little longer than its slowest read.
 *
 * Only the simple case is handled: whole, intact chunks of uncompressed frames, read directly into the caller's memory.
 * The caller reads everything else frame by frame, and reports errors.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

struct packs;
struct pack_gather;

/* A piece of a request, located by frame. */
struct want {
	uint32_t pack, frame;
	uint32_t in, len; /* bytes of the frame's data */
	uint8_t *buf;
};

struct pack_gathers {
	struct mutex lock; /* leaf */
	struct pack_gather *idle GUARDED_BY(lock);
	unsigned nr_idle GUARDED_BY(lock);
	atomic_bool refused; /* the kernel refused a queue: some requests were read sequentially */
};

void pack_gathers_init(struct pack_gathers *gs);
void pack_gathers_release(struct pack_gathers *gs);
/* Reads those of `wants`, sorted by pack, frame and offset, that it can handle. Moves the others to the front, in the same
 * order, and returns their number. */
size_t packs_gather(struct packs *p, struct want *wants, size_t nr);
