#pragma once

#include "store/engine/segment.h"
#include "store/engine/shift.h"

struct content;
struct engine;
struct job;

/* Bytes of a job that are some of a champion's. */
struct shifted {
	struct extent_list extents; /* relative to the job, in order; where the champion has a hole, none */
	struct shift_range found[SHIFT_MATCHES_MAX]; /* the bytes, in order */
	unsigned nr_found;
};
void shifted_free(struct shifted *s); /* NULL is fine */

/*
 * Look for the bytes of a job that are in none of the places asked before, anywhere in the champions.
 * 1: some are there, *ret is the caller's; 0: none; <0. Inside e->users.
 */
int shifted_find(struct content *c, const struct job *j, const struct shift_range *runs, unsigned nr,
		 struct shifted **ret);
/* Those before it had bytes that have moved: look for that first. */
bool shifted_is_likely(struct content *c);
void shifted_unmap(struct content *c); /* if nobody has it as a champion any more */
void shifted_release(struct engine *e); /* memory that is kept for the next job */
