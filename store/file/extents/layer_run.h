/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The top layers of all segments of a file, as one reference-counted object. Cloning the whole file takes one
 * reference, however many segments there are. A run is immutable; the file drops its own with the next change.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct layer;
struct segment_tree;

struct run {
	_Atomic unsigned refs;
	uint64_t mapped; /* bytes */
	size_t nr; /* segments, starting at 0 */
	struct layer *v[]; /* referenced */
};

/* Build a run of segments 0 to nr - 1: 1. 0: some are missing, or do not share their extents. -ENOMEM */
int run_new(const struct segment_tree *t, size_t nr, struct run **ret);
struct run *run_get(struct run *r);
void run_put(struct run *r); /* NULL is fine */
