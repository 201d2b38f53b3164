/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Iterates over several steps of a variable in parallel: the chunks of all steps at the same place, and rows of them,
 * which become frames. Used by recode*.c only. Belongs to one thread.
 *
 * A row holds the same places of some versions, in whole pages, one version after another. So every page of the row has
 * its base at the same distance before it. Places with fewer versions than others, because deduplication has found that
 * they did not change, go to rows of their own.
 *
 * The newest version comes first, and the others are coded against newer ones. A restart reads the newest, which needs
 * no other; no version needs the oldest ones, which are deleted first.
 *
 * In arrays the same place is the same offset. In data of unknown type, bytes may have been inserted and removed before
 * it. There, places are those of the newest step, as far as shared chunks reveal them (recode_align.h).
 */
#pragma once

#include "store/recode/recode.h"
#include "store/recode/recode_align.h"

#define STEPS_MAX (COMPACT_CHAIN_MAX + 1)

struct compact_steps {
	struct compact_walk walk[STEPS_MAX]; /* by step, the oldest first */
	struct compact_chunk next[STEPS_MAX]; /* of each step, */
	bool has[STEPS_MAX], returned[STEPS_MAX]; /* if there is one; it was returned by the last call */
	struct compact_align align[STEPS_MAX]; /* to the next step */
	int64_t place[STEPS_MAX]; /* of `next`, in the newest step; never decreases */
	bool is_apart[STEPS_MAX]; /* the place would decrease: the chunk is returned by itself */
	unsigned nr;
};

/* The chunks of all steps at one place. */
struct compact_place {
	const struct compact_chunk *chunk[STEPS_MAX]; /* by step; NULL: none. Valid until the next call */
};

/* The steps must have the same parts, or be of bytes; -ENOMEM and others. */
int compact_steps_init(struct compact_steps *s, struct engine *e, const struct compact_variable *const *v, unsigned nr,
		       const uint64_t *inos, uint64_t block);
void compact_steps_release(struct compact_steps *s); /* zeros are fine */
int compact_steps_next(struct compact_steps *s, struct compact_place *ret); /* 1/0/<0 */
void compact_steps_forget(struct compact_steps *s); /* drops cached recipes, which may have changed */

struct step_row {
	struct compact_chunk *chunk; /* version v of place i: v * max + i */
	uint32_t nr, max; /* places */
	uint32_t chunk_len;
};

struct step_rows {
	/* Called for a full row, or the last one: `nr` places of `nr_versions` versions, the newest first. */
	int (*emit)(void *userdata, const struct step_row *row, unsigned nr_versions);
	void *userdata;
	bool is_wide; /* another variable is stored along, with elements half as wide */
	struct step_row together[STEPS_MAX + 1]; /* by number of versions */
	struct step_row alone[STEPS_MAX]; /* by step: chunks without another version */
};

void step_rows_release(struct step_rows *r); /* zeros are fine */
/* Adds the versions of a place, the newest first; `step` of each. Versions that cannot be coded against one another,
 * because of their lengths or phases, are stored alone. */
int step_rows_add(struct step_rows *r, const struct compact_chunk *const *chunk, const unsigned *step, unsigned nr);
int step_rows_flush(struct step_rows *r); /* emits the last rows */
