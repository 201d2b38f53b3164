/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A running scrub: shared by scrub*.c.
 */
#pragma once

#include "store/engine_state.h"

struct buf;

/* damaged places kept: 40 bytes each. More are counted, but neither repaired nor named */
#define SCRUB_BAD_MAX 65536u

enum bad_kind {
	BAD_CHUNK,
	BAD_TABLE, /* the frame's chunks are unknown */
	BAD_ABSENT, /* there is no frame; no damage unless a file refers to it */
	BAD_HEADER, /* of an existing pack */
	BAD_PACK, /* the pack is missing */
};

/* A damaged place. Those of a scrub are sorted by pack and offset. */
struct bad {
	struct fp fp; /* of a chunk */
	uint32_t pack, off, len;
	enum bad_kind kind;
	bool repaired, used;
};

struct scrub {
	struct engine *e;
	const struct scrub_conf *conf;
	struct scrub_report *report;
	struct io_rate *rate;
	uint64_t deadline_ns, saved_ns;
	bool stopped, timed_out; /* by the caller, by the clock */
	struct pack_marks marks; /* only committed frames are examined */
	struct scrub_state state; /* sums of the round; where to continue */
	struct scrub_state before_bad; /* the same when the first of `bad` was found */
	struct pack_scrub *found;
	struct bad *bad;
	size_t nr_bad, size_bad;
	uint64_t nr_too_many;
};

bool scrub_goes_on(struct scrub *s); /* false: stop soon. Call it often */
void scrub_pace(struct scrub *s, uint64_t bytes); /* before or after reading: waits for the rate limit */
/* Number of committed frames of a pack; 0: it has been removed. */
int scrub_nr_frames(struct scrub *s, uint32_t pack, uint32_t *ret);

/* scrub_repair.c */
int scrub_repair_header(struct scrub *s, uint32_t pack); /* 1: repaired, 0: cannot be, <0 */
int scrub_repair_table(struct scrub *s, uint32_t pack, uint32_t frame); /* the same */
int scrub_repair_chunks(struct scrub *s); /* from second copies */

/* scrub_hits.c */
int scrub_report_files(struct scrub *s);

/* scrub_format.c: the scrub record of the engine. Trusts nothing: -EBADMSG. */
void scrub_state_encode(const struct scrub_state *st, struct buf *ret);
int scrub_state_decode(const void *p, size_t len, struct scrub_state *ret);
