/*
 * All segments of a file as the layers that they are, for whoever clones the whole file: one reference, however many
 * segments there are. It does not change, and counts its references; the file forgets it with the next change.
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
	size_t nr; /* segments, from 0 on */
	struct layer *v[]; /* referenced */
};

/* Of `nr` segments, from 0 on: 1. 0: not all are there, or some do not share what they have. -ENOMEM */
int run_new(const struct segment_tree *t, size_t nr, struct run **ret);
struct run *run_get(struct run *r);
void run_put(struct run *r); /* NULL is fine */
