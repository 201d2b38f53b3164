/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading many places at once.
 *
 * A file that changed a little at every step lies in as many frames as there were steps, with a few chunks in each. One
 * request for a MiB of it is then fifty to a hundred reads, and read one after the other each would wait for the disk.
 * Here the reads of one request are submitted together (base/io.h, struct io_queue), so that the disk works on all of
 * them, and one request takes little longer than its slowest read.
 *
 * Only what is simple is gathered: whole chunks of uncompressed frames, read straight into the caller's memory, that
 * are there and intact. All else, and everything that fails, is left to the caller, who reads it frame by frame and
 * reports what is wrong.
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
	atomic_bool refused; /* the kernel refused a queue, so some requests were read one place after the other */
};

void pack_gathers_init(struct pack_gathers *gs);
void pack_gathers_release(struct pack_gathers *gs);
/* Read of `wants`, which are ordered by pack, frame and place, what can be gathered. The rest is moved to the front in the
 * same order; returns its number. */
size_t packs_gather(struct packs *p, struct want *wants, size_t nr);
