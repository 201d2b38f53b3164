/*
 * Mending packs, for fsck and scrub: headers and tables can be made anew, since what they say is known elsewhere too.
 *
 * A header repeats what the file's name and the superblock say. A table lists the fingerprints of bytes that are still
 * there: where most of an entry agrees with the bytes' own fingerprint, both are right, for no two agree by
 * chance. How they were compressed shows in the bytes as well (pack_coding.h), and is right where what comes out is.
 * Nothing is believed that is not proved so, or by the caller: a chunk without proof keeps its entry, and reads as
 * damaged.
 *
 * Thread rule: one thread. Others may read and write meanwhile, who know nothing of what is damaged anyway, but nobody
 * gives space back. `p` may be open read-only, if nobody else has the store open; files are written past it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack.h"

/* The header of a pack, durable. `p` knows of it after the next packs_open(). */
int packs_mend_header(struct packs *p, uint32_t pack, enum pack_stream stream);

/* What can be found out about a frame whose table is damaged. */
struct pack_salvage {
	uint32_t pack, frame;
	uint32_t chunk_len, nr_chunks; /* chunk_len PACK_VARIED: they differ */
	uint32_t ends[PACK_FRAME_BLOCKS]; /* of each chunk in the frame's data */
	unsigned codec; /* how the data are stored, as the table says it */
	struct pack_parts parts;
	struct fp fps[PACK_FRAME_BLOCKS]; /* as the table has them, or as proved */
	struct fp bytes[PACK_FRAME_BLOCKS]; /* of the bytes that are there */
	bool proved[PACK_FRAME_BLOCKS]; /* fps[i] is that of the bytes */
};
/* 1: at least one chunk is proved; 0: nothing is; <0. */
int packs_salvage_table(struct packs *p, uint32_t pack, uint32_t frame, struct pack_salvage *ret);
/* Write the table with fps[], durable. */
int packs_mend_table(struct packs *p, const struct pack_salvage *s);
/* The same with what memory still has of it: 1/0 it has nothing/<0. */
int packs_restore_table(struct packs *p, uint32_t pack, uint32_t frame);
/* Give a frame up whose chunks nobody refers to: no table, no frame. Durable. */
int packs_wipe_table(struct packs *p, uint32_t pack, uint32_t frame);
