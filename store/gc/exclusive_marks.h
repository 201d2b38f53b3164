/*
 * A frame of which it is found out whether some files alone refer to its chunks (exclusive.c): marks of theirs, and
 * marks of all others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine/gc_window.h"
#include "store/engine/referrers.h"

struct marked {
	frame_id id;
	uint32_t chunk_len, nr_chunks;
	uint32_t *ends; /* of chunks of varied lengths */
	/* chunks that the files, and that others refer to; `others` has those that are gone too */
	struct gc_bits mine, others;
	bool decided; /* nothing more to learn of it */
	/* Of the first frame of a group: */
	uint64_t next_ino, next_segments; /* referrers before have been found */
	bool found_all;
};

int marked_init(struct marked *m, frame_id id, const struct pack_frame_rec *rec); /* NULL: its chunks are not known */
void marked_release(struct marked *m);

/* All chunks of which any byte of [off, off+len) is. */
void marked_set(const struct marked *m, struct gc_bits *bits, uint32_t off, uint32_t len);

struct gc_bits marked_alone(const struct marked *m); /* the files' and nobody else's */
bool marked_is_shared(const struct marked *m); /* there are none of these */
uint32_t marked_chunk_len(const struct marked *m, uint32_t chunk);
