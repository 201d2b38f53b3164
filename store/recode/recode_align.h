/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Maps chunks of a step to their place in the next step, when content before them has grown or shrunk: process images
 * are the same memory with pages inserted and removed. Deduplication has found the chunks that both have; others have
 * the same shift as the shared chunks around them. Only for recode_steps.c. Belongs to one thread.
 */
#pragma once

#include "store/recode/recode.h"

struct compact_shift {
	int64_t from; /* chunks of the older step from here up to the next entry */
	int64_t by; /* are this many bytes further on in the newer one */
};

/* Sorted by `from`; nothing before the first entry is shifted. */
struct compact_align {
	struct compact_shift *shift;
	size_t nr, room;
};

/* Walks through both steps. Temporarily takes 16 bytes of memory per chunk of the newer one. -ENOMEM and others. */
int compact_align_init(struct compact_align *a, struct engine *e, const struct compact_variable *older,
		       const struct compact_variable *newer, const uint64_t *inos, uint64_t block);
void compact_align_release(struct compact_align *a); /* zeros are fine */
int64_t compact_align_place(const struct compact_align *a, int64_t at);
