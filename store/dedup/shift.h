/*
 * Bytes that have moved: which of some new bytes stand anywhere in old ones. Pure: no I/O, no allocation, no lock.
 *
 * Both are cut by content (base/cdc.h). What stands before a cut is an anchor: where new and old bytes have the same
 * one, they are compared from there on in both directions, so a match ends at the very byte that differs. Cutting only
 * says where to compare; that they are equal has been seen.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cdc.h"

#define SHIFT_BYTES_MAX ((uint32_t)1 << 20) /* of new bytes */
#define SHIFT_MATCH_MIN 2048u /* shorter ones are not worth an extent each */
#define SHIFT_MATCHES_MAX (SHIFT_BYTES_MAX / SHIFT_MATCH_MIN)
#define SHIFT_WANT_MAX (2 * SHIFT_MATCHES_MAX)
#define SHIFT_ENDS_MAX 4096u /* the shortest chunks of as many bytes */
#define SHIFT_SLOTS (2 * SHIFT_ENDS_MAX) /* a power of two */

struct shift_range {
	uint32_t start, end;
};

struct shift_match {
	uint32_t at, len; /* of the new bytes */
	uint64_t from; /* counted as the old ones are */
};

struct shift {
	const struct cdc *cdc;
	const uint8_t *p;
	bool is_cut; /* the anchors are known; not before they are asked for */
	uint32_t ends[SHIFT_ENDS_MAX]; /* where they end in p, in order */
	unsigned nr_ends;
	uint32_t slots[SHIFT_SLOTS]; /* by their bytes; 0: free */
	struct shift_range want[SHIFT_WANT_MAX]; /* not found so far, in order */
	unsigned nr_want;
	struct shift_match matches[SHIFT_MATCHES_MAX]; /* in the order they were found */
	unsigned nr_matches;
	uint32_t nr_bytes; /* still wanted */
};

/* `cdc` and `p` are borrowed as long as it is used. */
void shift_init(struct shift *s, const struct cdc *cdc, const uint8_t *p);
/* These bytes are looked for: behind all that are wanted already, and within SHIFT_BYTES_MAX. */
void shift_want(struct shift *s, uint32_t start, uint32_t end);
/*
 * Look for them in old bytes, which are those from `base` on of something longer. `delta`: where they are supposed, by
 * how much further than in the new ones; it is looked there first. Returns how many matches were added.
 */
unsigned shift_look(struct shift *s, const uint8_t *old, uint32_t len, uint64_t base, int64_t delta);
/* The wanted range that has the byte before `at`; NULL: it is not wanted. */
const struct shift_range *shift_wants(const struct shift *s, uint32_t at);

/* Which anchors are where in something long: hints only, some are left out so that the memory is bounded. */
struct shift_map {
	uint64_t nr_slots, nr_max, nr; /* a power of two; how many are taken at most, and are */
	uint64_t mask; /* anchors with one of these bits in their hash are left out */
	struct shift_map_slot {
		uint64_t hash, end; /* hash 0: free */
	} slots[];
};
/* The nr_slots for `len` bytes, `max` at most. */
uint64_t shift_map_slots(const struct cdc *cdc, uint64_t len, uint64_t max);
/* For anchors of `len` bytes in all. `m` has room for nr_slots. */
void shift_map_init(struct shift_map *m, uint64_t nr_slots, const struct cdc *cdc, uint64_t len);
void shift_map_add(struct shift_map *m, const struct cdc *cdc, const uint8_t *p, uint32_t len, uint64_t base);

struct shift_place {
	uint32_t at;
	uint64_t from;
};
/* Where some of the wanted bytes may be, `max` places at most; neighbours that moved together are one. */
unsigned shift_map_find(const struct shift_map *m, struct shift *s, unsigned max, struct shift_place *ret);
