/*
 * A compaction that is under way: what compact*.c share. compact.c tells the order that makes it safe.
 */
#pragma once

#include "store/engine/compact_steps.h"
#include "store/engine/gc_copy.h"

#define COMPACT_SAMPLE MiB(4) /* of a variable, to find out which way it is smaller */

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
	struct code_work *work;

	size_t *next; /* by variable: 1 more than that of the step after it; 0: none */

	/* The variable that is being coded. */
	struct coding coding, against; /* by itself, and against another version */
	struct compact_result *result;
	bool is_sample;
	uint64_t sampled, sample_coded, sample_alone; /* as it would be, and if each version were coded by itself */
	/* The row that becomes the next frame. */
	uint32_t back; /* bytes from a version to the one that it is coded against; 0: there is none */
	unsigned nr_row; /* chunks */
	struct compact_steps *steps; /* that rows are of */
};

/* compact_code.c: a gc_code */
int compact_code_frame(void *userdata, const struct gc_copy *copy, const uint8_t **ret_stored, struct pack_parts *ret);

/* compact.c */
void compact_add_up(struct compact_result *sum, const struct compact_result *r);
void compact_yield(struct compact *c); /* until nobody who writes waits */
/* What has been copied becomes what files refer to. `w`: walks on, or NULL. */
int compact_repoint(struct compact *c, struct compact_walk *w);
void compact_leave(struct compact *c, const struct pack_chunk_info *info); /* it stays as it is */
int compact_move(struct compact *c, const struct compact_chunk *chunk); /* with the next frame */
int compact_set_seen(struct compact *c, struct addr a); /* 1: for the first time; <0 */
void compact_begin_sample(struct compact *c);
/* Which order, and coding that has begun to learn. The block to take turns with, or 0, is *ret. */
int compact_choose_order(struct compact *c, const struct compact_variable *v, uint64_t *ret);
int compact_code_variable(struct compact *c, const struct compact_variable *v, uint64_t block);
int compact_one(struct compact *c, size_t number); /* a variable by itself */

/* compact_together.c */
/* Which variables are steps of which; caller frees *ret_follows: those that are not the first. */
int compact_find_chains(struct compact *c, bool **ret_follows);
/* A variable, and all that are later steps of it. */
int compact_chain(struct compact *c, size_t first);
