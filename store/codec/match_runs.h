/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Encoding of the runs that are removed from a part (match.h). Three streams hold, for each run, the number of
 * left-over elements before it, its length, and the distance to its source. Three more streams are stored if any run
 * differs from its source: the kind of each run, and the differences of its elements. docs/format.md section 12 changes
 * with this. Pure except for the working memory.
 */
#pragma once

#include <endian.h>
#include <string.h>

#include "store/codec/match.h"

#define MATCH_NR_RECENT 3u

/* Streams of a block, in this order; with equal runs only, those before KINDS. */
enum match_stream {
	MATCH_LEFT,
	MATCH_LENGTHS,
	MATCH_DISTANCES,
	MATCH_KINDS,
	MATCH_LOW, /* bytes of differences */
	MATCH_HIGH,
	MATCH_NR_STREAMS
};

/* How a run is derived from its source, a byte of MATCH_KINDS. 0: equal elements in the same order. */
#define MATCH_KIND_BACKWARDS 1u /* the source is read from its first element towards the start: a mirrored row */
#define MATCH_KIND_NEGATED 2u /* the highest bit of each element is inverted: the sign of a float */
#define MATCH_KIND_NEAR 4u /* a difference is added to each element, as an integer */
#define MATCH_KIND_MAX 7u
#define MATCH_NEAR_MAX 0xffffu /* of a difference with its sign in the lowest bit */

/* Behind the header, before the stored bytes of the streams and the block of left-over elements. */
struct match_disk {
	struct le32 place; /* CODE_PLACE_MATCHED and the parts referred to */
	struct {
		struct le32 plain_len, word; /* word: as of a section */
	} stream[];
};
static inline unsigned match_nr_streams(bool near)
{
	return near ? MATCH_NR_STREAMS : MATCH_KINDS;
}
static inline uint32_t match_disk_len(bool near)
{
	return (uint32_t)(sizeof(struct le32) + match_nr_streams(near) * 2 * sizeof(struct le32));
}

struct match_run {
	uint32_t nr; /* elements, at least 1 */
	uint32_t distance; /* bytes from its first element back to the first one of its source */
	unsigned kind;
};
static inline uint64_t match_load(const uint8_t *p, bool big_endian)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return big_endian ? be64toh(x) : le64toh(x);
}
static inline void match_store(uint8_t *p, uint64_t x, bool big_endian)
{
	x = big_endian ? htobe64(x) : htole64(x);
	memcpy(p, &x, sizeof(x));
}

struct match_runs {
	const uint8_t *plain; /* of the part; borrowed */
	uint32_t plain_len, lead, skipped, parts;
	unsigned kinds; /* kind bits used by any run */
	uint32_t recent[MATCH_NR_RECENT]; /* distances, most recent first */
	uint8_t *stream[MATCH_NR_STREAMS];
	uint32_t len[MATCH_NR_STREAMS];
	struct code_entropy_work *entropy;
};

int match_runs_init(struct match_runs *r); /* -ENOMEM */
void match_runs_release(struct match_runs *r);
bool match_runs_is_recent(const struct match_runs *r, uint32_t distance);
void match_runs_start(struct match_runs *r, const uint8_t *plain, uint32_t plain_len, uint32_t lead);
void match_runs_skip(struct match_runs *r); /* count a left-over element */
/* parts: a bit for the part that contains the source, unless it is this one. */
void match_runs_add(struct match_runs *r, const struct match_run *run, uint32_t parts);
/* For each element of a NEAR run, after match_runs_add(). */
void match_runs_add_difference(struct match_runs *r, uint32_t difference);
/* As match_encode(). */
int match_runs_encode(struct match_runs *r, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		      uint32_t *ret_place);
