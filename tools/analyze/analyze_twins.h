/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Finds variables of a file that are another one rounded (store/codec/twin.h). Costs a read of some hundred bytes for
 * each variable of floats.
 */
#pragma once

#include "store/codec/twin.h"
#include "tools/analyze/analyze_sets.h"

struct twin {
	uint32_t narrow, wide; /* numbers of variables of the file */
};

struct twins {
	struct twin *twin; /* sorted by `narrow` */
	size_t nr;
};

/* -ENOMEM; other errors are reported. */
int twins_find(struct twins *t, const struct set_member *m);
void twins_release(struct twins *t);
/* Gets the wide variable of a narrow one. 1; 0: none. */
int twins_of(const struct twins *t, uint32_t narrow, uint32_t *ret);
