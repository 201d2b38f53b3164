/*
 * The scrub's own: what scrub*.c share.
 */
#pragma once

#include "store/engine/engine_internal.h"

struct buf;

/* places with damage that are kept: 48 bytes each. More are counted, not mended nor named */
#define SCRUB_BAD_MAX 65536u

enum bad_kind {
	BAD_CHUNK,
	BAD_TABLE, /* nothing is known of the frame's chunks */
	BAD_ABSENT, /* there is no frame; no damage unless a file refers to it */
	BAD_HEADER, /* of a pack that is there */
	BAD_PACK, /* it is missing */
};

/* A place with damage. Those of a scrub are in order of pack and offset. */
struct bad {
	struct fp fp; /* of a chunk */
	uint32_t pack, off, len;
	enum bad_kind kind;
	bool mended, used;
};

struct scrub {
	struct engine *e;
	const struct scrub_conf *conf;
	struct scrub_report *report;
	struct io_rate *rate;
	uint64_t deadline_ns, saved_ns;
	bool stopped, timed_out; /* by the caller, by the clock */
	struct pack_marks marks; /* what is committed: no more is looked at */
	struct scrub_state state; /* of the round; where to go on */
	struct scrub_state before_bad; /* the same when the first of `bad` was met */
	struct pack_scrub *found;
	struct bad *bad;
	size_t nr_bad, size_bad;
	uint64_t nr_too_many;
};

bool scrub_goes_on(struct scrub *s); /* call it often */
void scrub_pace(struct scrub *s, uint64_t bytes); /* read, or about to be: waits as the rate says */
/* Committed frames of a pack; 0: it is not there any more. */
int scrub_nr_frames(struct scrub *s, uint32_t pack, uint32_t *ret);

/* scrub_mend.c */
int scrub_mend_header(struct scrub *s, uint32_t pack); /* 1: mended, 0: cannot be, <0 */
int scrub_mend_table(struct scrub *s, uint32_t pack, uint32_t frame); /* the same */
int scrub_mend_chunks(struct scrub *s); /* from second copies */

/* scrub_hits.c */
int scrub_tell_files(struct scrub *s);

/* scrub_format.c: the engine's note about scrubbing. Trusts nothing: -EBADMSG. */
void scrub_state_encode(const struct scrub_state *st, struct buf *ret);
int scrub_state_decode(const void *p, size_t len, struct scrub_state *ret);
