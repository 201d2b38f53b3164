/*
 * Several steps of a variable side by side: what each of them has at the same place, and rows of that, which become
 * frames. For compact.c alone. Belongs to one thread.
 *
 * A row has the same places of some versions, whole pages, one version behind the other: so what a page is coded
 * against lies as far before it as all others of the row do. Places that have fewer versions than others, as dedup has
 * found that they did not change, go to rows of their own.
 *
 * The newest version comes first, and the others are coded against newer ones. It is what a restart reads, and
 * it needs no other; and the oldest, which go first, are needed by none.
 */
#pragma once

#include "store/engine/compact.h"

#define STEPS_MAX (COMPACT_CHAIN_MAX + 1)

struct compact_steps {
	struct compact_walk walk[STEPS_MAX]; /* by step, the oldest first */
	struct compact_chunk next[STEPS_MAX]; /* of each, */
	bool has[STEPS_MAX], told[STEPS_MAX]; /* if there is one; and it was given last */
	unsigned nr;
};

/* What the steps have at one place. */
struct compact_place {
	const struct compact_chunk *chunk[STEPS_MAX]; /* by step; NULL: none. Valid until the next one */
};

/* Steps of the same parts; -ENOMEM. */
int compact_steps_init(struct compact_steps *s, struct engine *e, const struct compact_variable *const *v, unsigned nr,
		       const uint64_t *inos, uint64_t block);
void compact_steps_release(struct compact_steps *s); /* of zeros, too */
int compact_steps_next(struct compact_steps *s, struct compact_place *ret); /* 1/0/<0 */
void compact_steps_forget(struct compact_steps *s); /* recipes may have changed */

struct step_row {
	struct compact_chunk *chunk; /* version v of place i: v * max + i */
	uint32_t nr, max; /* places */
	uint32_t chunk_len;
};

struct step_rows {
	/* A row is full, or the last one: `nr` places of `nr_versions`, the newest first. */
	int (*emit)(void *userdata, const struct step_row *row, unsigned nr_versions);
	void *userdata;
	bool is_wide; /* another variable comes along, of elements half as wide */
	struct step_row together[STEPS_MAX + 1]; /* by the number of versions */
	struct step_row alone[STEPS_MAX]; /* by step: chunks that have no other version */
};

void step_rows_release(struct step_rows *r); /* of zeros, too */
/* Versions of a place, the newest first; `step` of each. Those that cannot be coded against one another, by their
 * lengths, go alone. */
int step_rows_add(struct step_rows *r, const struct compact_chunk *const *chunk, const unsigned *step, unsigned nr);
int step_rows_flush(struct step_rows *r); /* the last ones */
