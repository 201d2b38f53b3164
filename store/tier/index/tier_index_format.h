/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The index of a tier (tier_index.h) as bytes. docs/format.md, section 17, changes with this. Decoders are pure functions
 * of (bytes, length) and trust nothing.
 *
 *   tier/list            packs, and the runs that count
 *   tier/<16 hex>.run    entries in order of their fingerprints; behind them what is read when the run is opened
 *
 * A run consists of blocks. Each names its run and its number, so a block of an older file is not taken for one of this.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fp.h"
#include "base/le.h"
#include "store/tier/tier_format.h"
#include "store/tier/tier_known.h"

#define TIER_INDEX_MAGIC "ckptTIDX"
#define TIER_INDEX_RUNS_MAX 256u

struct tier_index_disk {
	uint8_t magic[8];
	struct le32 version, incompat; /* unknown bits: refuse */
	uint8_t store[TIER_ID_LEN];
	uint8_t key_id[TIER_ID_LEN];
	uint8_t where[TIER_ID_LEN]; /* the start of SHA-256 of the address of the tier */
	struct le32 nr_packs,
		nr_runs; /* then packs (struct tier_pack_ref_disk), runs, and crc32c of all bytes before it */
};
static_assert(sizeof(struct tier_index_disk) == 72, "in a store");

struct tier_index_run_disk {
	struct le64 id;
	struct le64 nr_entries; /* not 0 */
	struct le64 filter_len;
	struct le32 is_own, reserved;
};
static_assert(sizeof(struct tier_index_run_disk) == 32, "in a store");

/* The store and the tier that an index belongs to. */
struct tier_index_owner {
	uint8_t store[TIER_ID_LEN], key_id[TIER_ID_LEN], where[TIER_ID_LEN];
};

struct tier_index_run {
	uint64_t id, nr_entries;
	uint64_t filter_len; /* bytes, a multiple of TIER_FILTER_LINE */
	bool is_own; /* chunks of checkpoints of this store */
};

struct tier_index_list {
	struct tier_index_owner owner;
	/* Borrowed, from the decoded bytes or the caller that encodes. */
	const uint8_t *packs; /* struct tier_pack_ref_disk */
	uint32_t nr_packs;
	struct tier_index_run runs[TIER_INDEX_RUNS_MAX];
	uint32_t nr_runs;
};
void tier_index_list_encode(const struct tier_index_list *l, struct buf *ret); /* appends */
int tier_index_list_decode(const void *p, size_t len, struct tier_index_list *ret);

struct tier_index_name {
	char s[24];
};
struct tier_index_name tier_index_run_name(uint64_t id);

/* --- blocks of runs --- */

#define TIER_INDEX_BLOCK 4096u
#define TIER_INDEX_ENTRIES 145u /* in a block */
#define TIER_INDEX_TAIL 4072u /* bytes of the tail in a block */
#define TIER_FILTER_LINE 64u

struct tier_index_entry_disk {
	struct le64 lo, hi; /* the fingerprint */
	struct le32 len, pack, chunk;
};
static_assert(sizeof(struct tier_index_entry_disk) == 28, "in a store");

/*
 * The first blocks have entries. Then follows the tail, in blocks as well: the first fingerprint (lo, struct le64) of each
 * block of entries, and the filter.
 */
struct tier_index_block_disk {
	struct le64 run;
	struct le64 number; /* in the run */
	struct le32 nr; /* entries, or bytes of the tail */
	union {
		struct tier_index_entry_disk entries[TIER_INDEX_ENTRIES];
		uint8_t tail[TIER_INDEX_TAIL];
	};
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_index_block_disk) == TIER_INDEX_BLOCK, "in a store");

struct tier_index_entry {
	struct fp fp;
	uint32_t len;
	struct tier_place place;
};
int tier_index_entry_compare(const void *a, const void *b); /* struct tier_index_entry, without the place */
void tier_index_entry_encode(const struct tier_index_entry *e, struct tier_index_entry_disk *ret);
struct tier_index_entry tier_index_entry_decode(const struct tier_index_entry_disk *d);
/* Sets all but the content. */
void tier_index_block_seal(struct tier_index_block_disk *b, uint64_t run, uint64_t number, uint32_t nr);
/* Is this block of entries (or of the tail) intact, in its place, and in order? */
bool tier_index_block_is_intact(const struct tier_index_block_disk *b, uint64_t run, uint64_t number, bool is_tail);
/* The entry of a chunk; NULL: none. The block is intact. */
const struct tier_index_entry_disk *tier_index_block_find(const struct tier_index_block_disk *b, struct fp fp,
							  uint32_t len);

/* --- filters --- */

/* Bytes of a filter for up to this many entries. One of some 40 absent chunks passes. */
uint64_t tier_filter_len(uint64_t nr_entries);
void tier_filter_add(uint8_t *filter, uint64_t len, struct fp fp);
bool tier_filter_passes(const uint8_t *filter, uint64_t len, struct fp fp);
