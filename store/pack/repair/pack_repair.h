/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Repairing packs, for fsck and scrub: headers and tables can be rebuilt, since other sources contain the same
 * information.
 *
 * A header repeats the name of the file and the superblock. A table lists fingerprints of data that still exists: where
 * most bytes of an entry match the fingerprint of the data, both are right, since they do not match by chance. How the
 * frame was compressed also follows from the data (pack_coding.h), and is right if the result matches the
 * fingerprints. Nothing is accepted without such a proof or one by the caller: a chunk without proof keeps its entry,
 * and reads as damaged.
 *
 * Thread rule: one thread. Other threads may read and write meanwhile, since they cannot use what is damaged, but must
 * not free space. `p` may be open read-only if no other process has the store open; files are written without using it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack.h"

/* Write the header of a pack, durably. `p` uses it after the next packs_open(). */
int packs_repair_header(struct packs *p, uint32_t pack, enum pack_stream stream);

/* Reconstruction of a frame with a damaged table. */
struct pack_salvage {
	uint32_t pack, frame;
	uint32_t chunk_len, nr_chunks; /* chunk_len PACK_VARIED: they differ */
	uint32_t ends[PACK_FRAME_BLOCKS]; /* of each chunk in the frame's data */
	unsigned codec; /* of the data, as encoded in the table */
	struct pack_parts parts;
	struct fp fps[PACK_FRAME_BLOCKS]; /* from the table, or as proved */
	struct fp bytes[PACK_FRAME_BLOCKS]; /* of the data on disk */
	bool proved[PACK_FRAME_BLOCKS]; /* fps[i] matches the data */
};
/* 1: at least one chunk is proved; 0: none; <0. */
int packs_salvage_table(struct packs *p, uint32_t pack, uint32_t frame, struct pack_salvage *ret);
/* Write the table with fps[], durably. */
int packs_repair_table(struct packs *p, const struct pack_salvage *s);
/* Write the cached table instead: 1/0 not cached/<0. */
int packs_restore_table(struct packs *p, uint32_t pack, uint32_t frame);
/* Wipe the table of a frame without referenced chunks, so that the frame does not exist any more. Durable. */
int packs_wipe_table(struct packs *p, uint32_t pack, uint32_t frame);
