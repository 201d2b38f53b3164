/*
 * The runs that are taken out of a part (match.h), as bytes: three streams that tell how many elements are left before
 * each run, how many it has, and how far before it they lie. docs/format.md section 12 changes with this. Pure but for
 * the working memory.
 */
#pragma once

#include "store/code/match.h"

#define MATCH_NR_RECENT 3u

/* Behind the header, before the streams' stored bytes and the block of what is left. */
struct match_disk {
	struct le32 place; /* CODE_PLACE_MATCHED and the parts that are named */
	struct {
		struct le32 plain_len, word; /* as a section's */
	} stream[MATCH_NR_STREAMS];
};
static_assert(sizeof(struct match_disk) == 28, "on disk");

struct match_runs {
	const uint8_t *plain; /* of the part; borrowed */
	uint32_t plain_len, lead, skipped, parts;
	uint32_t last; /* distance */
	uint32_t recent[MATCH_NR_RECENT]; /* the last one first */
	uint8_t *stream[MATCH_NR_STREAMS];
	uint32_t len[MATCH_NR_STREAMS];
	struct code_entropy_work *entropy;
};

int match_runs_init(struct match_runs *r); /* -ENOMEM */
void match_runs_release(struct match_runs *r);
void match_runs_start(struct match_runs *r, const uint8_t *plain, uint32_t plain_len, uint32_t lead);
void match_runs_skip(struct match_runs *r); /* an element is left */
/* parts: a bit for the one that the run is in, unless it is in this one. */
void match_runs_add(struct match_runs *r, uint32_t nr, uint32_t distance, uint32_t parts);
/* As match_encode(). */
int match_runs_encode(struct match_runs *r, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		      uint32_t *ret_place);
