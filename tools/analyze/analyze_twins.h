/*
 * Which variables of a file are another one of it, rounded (store/codec/twin.h). Found once for each file of a set: a
 * read of some hundred bytes for each variable of floats.
 */
#pragma once

#include "store/codec/twin.h"
#include "tools/analyze/analyze_sets.h"

struct twin {
	uint32_t narrow, wide; /* variables of the member */
};

struct twins {
	struct twin *twin; /* by narrow */
	size_t nr;
};

/* -ENOMEM, or another after a complaint. */
int twins_find(struct twins *t, const struct set_member *m);
void twins_release(struct twins *t);
/* The wide variable of this one: 1, 0. */
int twins_of(const struct twins *t, uint32_t narrow, uint32_t *ret);
