/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Marks of one frame for exclusive.c: chunks that the given files refer to, and chunks that other files refer to.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/gc/gc_window.h"
#include "store/gc/backrefs.h"

struct marked {
	frame_id id;
	uint32_t chunk_len, nr_chunks;
	uint32_t *ends; /* of chunks of varied lengths */
	/* chunks that the given files refer to; chunks that others refer to, and freed chunks */
	struct gc_bits own, others;
	bool decided; /* the result is known */
	/* In the first frame of a group: */
	uint64_t next_ino, next_segments; /* back-references before this one have been read */
	bool found_all;
};

int marked_init(struct marked *m, frame_id id, const struct pack_frame_rec *rec); /* NULL: its chunks are unknown */
void marked_release(struct marked *m);

/* Sets all chunks that overlap [off, off+len). */
void marked_set(const struct marked *m, struct gc_bits *bits, uint32_t off, uint32_t len);

struct gc_bits marked_alone(const struct marked *m); /* chunks of the given files only */
bool marked_is_shared(const struct marked *m); /* there are none of these */
uint32_t marked_chunk_len(const struct marked *m, uint32_t chunk);
