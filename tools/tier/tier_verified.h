/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunks that were verified, as a bit for each chunk in the packs of a tier: 2 KiB for a full pack. Memory is bounded:
 * after 32768 packs, 2 TiB of data, all bits are dropped, and chunks are read again. Any thread.
 */
#pragma once

#include <stdbool.h>

#include "base/mutex.h"
#include "store/tier/tier_format.h"

#define TIER_VERIFIED_BUCKETS 4096u
#define TIER_VERIFIED_PACKS_MAX 32768u

struct tier_verified {
	struct mutex lock; /* a leaf */
	struct tier_verified_pack *buckets[TIER_VERIFIED_BUCKETS] GUARDED_BY(lock);
	size_t nr GUARDED_BY(lock);
};

void tier_verified_init(struct tier_verified *v);
void tier_verified_release(struct tier_verified *v);
/* true: all chunks of the run, in this pack, were verified. */
bool tier_verified_has(struct tier_verified *v, const struct tier_footer *pack, const struct tier_run *run);
/* Without memory for it, the chunks are verified again. */
void tier_verified_add(struct tier_verified *v, const struct tier_footer *pack, const struct tier_run *run);
