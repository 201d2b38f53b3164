/*
 * A compaction that is under way: what compact*.c share. compact.c tells the order that makes it safe.
 */
#pragma once

#include "store/code/matching.h"
#include "store/engine/compact_steps.h"
#include "store/engine/gc_copy.h"

#define COMPACT_SAMPLE MiB(4) /* of a variable, to find out which way it is smaller */

/* Where in a frame the elements lie that others in it were rounded to. */
struct compact_twins {
	uint32_t narrow_len; /* bytes of all narrow versions; wide ones follow. 0: there are none */
	uint32_t wide_row, narrow_row; /* of each version */
	uint32_t before; /* bytes that a wide version would have before it, if it began where the narrow one does */
	struct code_type wide, narrow;
};

/* The ways that pay for frames with both. */
struct compact_twin_coding {
	struct coding narrow, against; /* the narrow one by itself, and against another version */
	struct coding widened; /* the wide one against the narrow one */
};

/* What a version has in a sample: plain, coded with the others, and by itself. By levels: what is read of it for others,
 * in whole blocks. */
struct compact_sample {
	uint64_t plain, coded, alone, levels;
};

struct compact_narrow; /* compact_narrow.c */

struct compact {
	const struct compact_conf *conf;
	struct gc g;
	struct gc_conf gc_conf;
	struct gc_report gc_report;
	struct compact_report report;
	struct gc_copy copy;
	struct layer_set seen; /* chunks, by place_of() */
	uint32_t *left; /* packs that chunks have moved from */
	size_t nr_left, size_left;
	uint8_t *stored; /* a frame as coded, and room for a block that is larger than its part */
	uint8_t *matched; /* likewise, without what repeats in it */
	struct code_work *work;

	/* By variable, 1 more than a number; 0: none. */
	size_t *next; /* that of the step after it */
	size_t *narrow_of; /* that was rounded from it */

	/* The variable that is being coded. */
	struct coding coding, against; /* by itself, and against another version */
	struct matching matching; /* by itself, without what repeats; of zeros where parts lie in rows */
	uint8_t *base; /* of what is coded against what it was rounded to: a part */
	struct compact_result *result, *narrow_result;
	bool is_sample;
	uint64_t sampled, sample_coded; /* plain bytes, and as they would be */
	struct compact_sample of_version[STEPS_MAX]; /* of rows, the newest first */
	unsigned nr_together; /* steps that are coded one against the other, */
	unsigned nr_most; /* of as many as can be */
	unsigned nr_even; /* steps of each group, if all groups are to have about as many, */
	unsigned nr_took; /* and those that were coded; the others come with the next ones */
	bool by_levels; /* all others against the levels of the newest, */
	struct coder_spec levels; /* in this way */
	/* The row that becomes the next frame. */
	uint32_t back; /* bytes from a version to the next, if they are coded against one another; else 0 */
	unsigned nr_row; /* chunks */
	struct compact_steps *steps; /* that rows are of */
	struct compact_narrow *narrow; /* what comes along with them; NULL: nothing does */
	struct compact_twins twins;
	struct compact_twin_coding *twin_coding; /* for those; borrowed from `narrow` */
};

/* compact_code.c: a gc_code */
int compact_code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret);

/* compact.c */
void compact_add_up(struct compact_result *sum, const struct compact_result *r);
void compact_yield(struct compact *c); /* until nobody who writes waits */
/* What has been copied becomes what files refer to. `w`: walks on, or NULL. */
int compact_repoint(struct compact *c, struct compact_walk *w);
bool compact_may_move(const struct compact *c, const struct pack_chunk_info *info);
void compact_leave(struct compact *c, const struct pack_chunk_info *info); /* it stays as it is */
int compact_move(struct compact *c, const struct compact_chunk *chunk); /* with the next frame */
int compact_set_seen(struct compact *c, struct addr a); /* 1: for the first time; <0 */
void compact_begin_sample(struct compact *c);
/* Which order, and coding that has begun to learn. The block to take turns with, or 0, is *ret. */
int compact_choose_order(struct compact *c, const struct compact_variable *v, uint64_t *ret);
int compact_code_variable(struct compact *c, const struct compact_variable *v, uint64_t block);
int compact_one(struct compact *c, size_t number); /* a variable by itself */

/* compact_narrow.c: variables that come along with those that they were rounded from */
int compact_narrow_new(struct compact *c, const struct compact_variable *const *v, const struct compact_variable *wide,
		       unsigned nr, uint64_t block, struct compact_narrow **ret);
void compact_narrow_free(struct compact_narrow *n); /* NULL is fine */
void compact_narrow_forget(struct compact_narrow *n); /* recipes may have changed; NULL is fine */
/* Does what is left of the narrow ones begin behind this byte of the wide one? */
bool compact_narrow_is_behind(const struct compact_narrow *n, int64_t wide_at);
/* To go with a row, if all is there that belongs to it: 1, and c->twins tells how, or 0. */
int compact_narrow_take(struct compact *c, const struct step_row *row, unsigned nr_versions);
int compact_narrow_move(struct compact *c, unsigned nr_versions); /* what was taken, before the row */
int compact_narrow_rest(struct compact *c); /* all that is left */

/* compact_together.c */
int compact_emit_row(void *compact, const struct step_row *row, unsigned nr_versions);
/* What may be coded of a place, the newest first, and of which step each is: how many; <0. */
int compact_take_versions(struct compact *c, const struct compact_place *place, unsigned nr_steps,
			  const struct compact_chunk **ret, unsigned *ret_step);
/* Which variables are steps of which; caller frees *ret_follows: those that are not the first. */
int compact_find_chains(struct compact *c, bool **ret_follows);
/* A variable, and all that are later steps of it. */
int compact_chain(struct compact *c, size_t first);
