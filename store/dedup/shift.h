/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finding moved bytes: which parts of new data occur anywhere in old data. Pure: no I/O, no allocation, no lock.
 *
 * Both are chunked by content (base/cdc.h). The bytes before a boundary are an anchor. Where new and old data have the
 * same anchor, they are compared from there in both directions, so that a match ends exactly at the first differing
 * byte. Boundaries only select where to compare; equality is established by comparison.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cdc.h"

#define SHIFT_BYTES_MAX ((uint32_t)1 << 20) /* maximum length of the new data */
#define SHIFT_MATCH_MIN 2048u /* shorter matches are not worth an extent each */
#define SHIFT_MATCHES_MAX (SHIFT_BYTES_MAX / SHIFT_MATCH_MIN)
#define SHIFT_WANT_MAX (2 * SHIFT_MATCHES_MAX)
#define SHIFT_ENDS_MAX 4096u /* boundaries if all chunks have the minimum length */
#define SHIFT_SLOTS (2 * SHIFT_ENDS_MAX) /* a power of two */

struct shift_range {
	uint32_t start, end;
};

struct shift_match {
	uint32_t at, len; /* in the new data */
	uint64_t from; /* offset in the old data */
};

struct shift {
	const struct cdc *cdc;
	const uint8_t *p;
	bool is_cut; /* the anchors have been computed, which happens on first use */
	uint32_t ends[SHIFT_ENDS_MAX]; /* ends of the anchors in p, ascending */
	unsigned nr_ends;
	uint32_t slots[SHIFT_SLOTS]; /* hash table of the anchors by their bytes; 0: free */
	struct shift_range want[SHIFT_WANT_MAX]; /* ranges not found so far, ascending */
	unsigned nr_want;
	struct shift_match matches[SHIFT_MATCHES_MAX]; /* in the order found */
	unsigned nr_matches;
	uint32_t nr_bytes; /* total length of `want` */
};

/* `cdc` and `p` are borrowed while it is in use. */
void shift_init(struct shift *s, const struct cdc *cdc, const uint8_t *p);
/* Add a range to search for, after all earlier ranges and within SHIFT_BYTES_MAX. */
void shift_want(struct shift *s, uint32_t start, uint32_t end);
/* Search for the wanted ranges in old data, which starts at offset `base` of something longer. `delta` is the expected
 * offset in the old data minus that in the new data; this place is tried first. Returns the number of matches added. */
unsigned shift_look(struct shift *s, const uint8_t *old, uint32_t len, uint64_t base, int64_t delta);
/* The wanted range that contains the byte before `at`; NULL: none. */
const struct shift_range *shift_wants(const struct shift *s, uint32_t at);

/* Map of anchors to offsets in a long file. A hint only: some anchors are left out to bound memory. */
struct shift_map {
	uint64_t nr_slots, nr_max, nr; /* slots (a power of two); limit of entries; entries */
	uint64_t mask; /* anchors with any of these bits set in their hash are left out */
	struct shift_map_slot {
		uint64_t hash, end; /* hash 0: free slot */
	} slots[];
};
/* The nr_slots for `len` bytes, at most `max`. */
uint64_t shift_map_slots(const struct cdc *cdc, uint64_t len, uint64_t max);
/* For the anchors of `len` bytes in total. `m` has room for nr_slots. */
void shift_map_init(struct shift_map *m, uint64_t nr_slots, const struct cdc *cdc, uint64_t len);
void shift_map_add(struct shift_map *m, const struct cdc *cdc, const uint8_t *p, uint32_t len, uint64_t base);

struct shift_place {
	uint32_t at;
	uint64_t from;
};
/* Likely locations of the wanted bytes, at most `max`. Neighbours that moved by the same distance count as one. */
unsigned shift_map_find(const struct shift_map *m, struct shift *s, unsigned max, struct shift_place *ret);
