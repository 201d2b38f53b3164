/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * State of a recoding run, shared by recode*.c. recode.c gives the order that makes it safe.
 */
#pragma once

#include "store/codec/matching.h"
#include "store/recode/recode_steps.h"
#include "store/gc/gc_copy.h"

#define COMPACT_SAMPLE MiB(4) /* of a variable, to choose the smaller coding */

/* Layout of a frame that holds rounded (narrow) elements together with the (wide) elements they were rounded from. */
struct compact_twins {
	uint32_t narrow_len; /* bytes of all narrow versions; wide ones follow. 0: there are none */
	uint32_t wide_row, narrow_row; /* bytes of each version */
	uint32_t before; /* bytes that a wide version would have before it, if it began where the narrow one does */
	struct code_type wide, narrow;
};

/* Codings for frames with both. */
struct compact_twin_coding {
	struct coding narrow, against; /* narrow: by itself, and against another version */
	struct coding widened; /* wide, against the narrow one */
};

/* Sizes of one version in a sample: plain, coded with the others, and coded by itself. levels: bytes of it, in whole
 * blocks, that are read to decode others by levels. */
struct compact_sample {
	uint64_t plain, coded, alone, levels;
};

struct compact_narrow; /* recode_narrow.c */

struct compact {
	const struct compact_conf *conf;
	struct gc g;
	struct gc_conf gc_conf;
	struct gc_report gc_report;
	struct compact_report report;
	struct gc_copy copy;
	uint64_t freed_before; /* pack bytes freed since the mount, when this compaction began */
	uint64_t disk_repointed; /* size of the new frames that files refer to by now */
	struct layer_set seen; /* chunks, by seen_key() */
	uint8_t *stored; /* a coded frame, and room for a block that is larger than its part */
	uint8_t *matched; /* likewise, with repeats removed */
	struct code_work *work;

	/* By variable: 1 + number of another; 0: none. */
	size_t *next; /* the next step */
	size_t *narrow_of; /* the variable that was rounded from it */

	/* The variable that is being coded. */
	struct coding coding, against; /* by itself, and against another version */
	enum compact_fold { FOLD_UNKNOWN, FOLD_NO, FOLD_YES } fold; /* decided once for all steps */
	struct matching matching; /* by itself, with repeats removed; zeros while parts lie in rows */
	uint8_t *base; /* for coding against rounded elements: one part */
	struct compact_result *result, *narrow_result;
	bool is_sample;
	uint64_t sampled, sample_coded; /* bytes, plain and coded */
	struct compact_sample of_version[STEPS_MAX]; /* of rows, the newest first */
	unsigned nr_together; /* steps that are coded against one another, */
	unsigned nr_most; /* and the largest number possible */
	unsigned nr_even; /* steps per group if all groups have about the same size, */
	unsigned nr_took; /* and steps coded; the others join the next group */
	bool by_levels; /* all others are coded against the levels of the newest, */
	struct coder_spec levels; /* with this coder */
	/* The row that becomes the next frame. */
	uint32_t back; /* bytes from one version to the next, if they are coded against one another; else 0 */
	unsigned nr_row; /* chunks */
	struct compact_steps *steps; /* source of the rows */
	struct compact_narrow *narrow; /* variable that is stored along with them; NULL: none */
	struct compact_twins twins;
	struct compact_twin_coding *twin_coding; /* for `twins`; borrowed from `narrow` */
};

/* recode_code.c: a gc_code */
int compact_code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret);

/* recode.c */
void compact_add_up(struct compact_result *sum, const struct compact_result *r);
void compact_yield(struct compact *c); /* sleeps while writers wait, or memory or processors are short */
/* Repoints files to the copies made so far. `w`: iterator still in use, or NULL. */
int compact_repoint(struct compact *c, struct compact_walk *w);
bool compact_is_full(const struct compact *c); /* repoint before the next frame */
bool compact_may_move(const struct compact *c, const struct pack_chunk_info *info);
void compact_leave(struct compact *c, const struct pack_chunk_info *info); /* counts it as unchanged */
int compact_move(struct compact *c, const struct compact_chunk *chunk); /* with the next frame */
int compact_set_seen(struct compact *c, struct addr a); /* 1: for the first time; <0 */
void compact_begin_sample(struct compact *c);
/* Chooses the order, and starts c->coding. *ret: bytes after which parts alternate, or 0. */
int compact_choose_order(struct compact *c, const struct compact_variable *v, uint64_t *ret);
int compact_code_variable(struct compact *c, const struct compact_variable *v, uint64_t block);
int compact_one(struct compact *c, size_t number); /* recodes a variable by itself */

/* recode_rest.c: also moves chunks that would keep space allocated in the frames that others leave */
int compact_take_rest(struct compact *c);

/* recode_narrow.c: variables stored along with those that they were rounded from */
int compact_narrow_new(struct compact *c, const struct compact_variable *const *v, const struct compact_variable *wide,
		       unsigned nr, uint64_t block, struct compact_narrow **ret);
void compact_narrow_free(struct compact_narrow *n); /* NULL is fine */
void compact_narrow_forget(struct compact_narrow *n); /* recipes may have changed; NULL is fine */
/* Does the rest of the narrow variable begin after this byte of the wide one? */
bool compact_narrow_is_behind(const struct compact_narrow *n, int64_t wide_at);
/* Takes the narrow pages of a row, if all of them are there: 1, with the layout in c->twins, or 0. */
int compact_narrow_take(struct compact *c, const struct step_row *row, unsigned nr_versions);
int compact_narrow_move(struct compact *c, unsigned nr_versions); /* moves the pages taken, before the row */
int compact_narrow_rest(struct compact *c); /* moves all that is left */

/* recode_together.c */
int compact_emit_row(void *compact, const struct step_row *row, unsigned nr_versions);
/* The versions of a place that may be coded, the newest first, and the step of each. Returns their number; <0. */
int compact_take_versions(struct compact *c, const struct compact_place *place, unsigned nr_steps,
			  const struct compact_chunk **ret, unsigned *ret_step);
/* Finds the variables that are steps of others; caller frees *ret_follows: those that are not the first. */
int compact_find_chains(struct compact *c, bool **ret_follows);
/* Recodes a variable and all its later steps. */
int compact_chain(struct compact *c, size_t first);
