/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The index of a tier: places of chunks in its packs, in files of the local store. It holds what does not fit into
 * memory. It is disposable: an index that is damaged, or belongs to another store or tier, is removed, and rebuilt from
 * the tier.
 *
 * An index belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/index/tier_index_format.h"

#define TIER_INDEX_FOLDER "tier" /* in the store */

struct tier_index;

/*
 * Opens the index in the folder of `dirfd`, or makes an empty one. filter_max: bytes of memory for filters and first
 * fingerprints of blocks; runs beyond it have no filter. <0: the files cannot be used, which has been logged.
 */
int tier_index_open(int dirfd, const struct tier_index_owner *owner, uint64_t filter_max, struct tier_index **ret);
/* Removes the runs that were not committed. NULL is fine. */
void tier_index_close(struct tier_index *ix);
/* The packs that places refer to, as of the last commit: valid until the next one. */
uint32_t tier_index_nr_packs(const struct tier_index *ix);
int tier_index_pack(const struct tier_index *ix, uint32_t i, struct tier_footer *ret); /* -EBADMSG */

/*
 * The place of a chunk in a pack that is not gone; is_gone[] has nr_packs elements. 1; 0: none; -EIO: the index was
 * damaged and has been removed; nothing is found any more.
 */
int tier_index_find(struct tier_index *ix, struct fp fp, uint32_t len, const bool *is_gone, uint32_t nr_packs,
		    struct tier_place *ret, bool *ret_is_own);
/* Sorts the entries and writes a run of them. It is searched from now on, and counts after the next commit. */
int tier_index_add(struct tier_index *ix, struct tier_index_entry *v, size_t nr, bool is_own);
/*
 * Makes all runs count. Before that, runs of own chunks are merged until each is several times as large as the next
 * one; entries in packs that are gone are left out. Of the other runs the oldest ones are removed, until they have at
 * most `others_max` entries. `packs`: nr_packs references (struct tier_pack_ref_disk).
 */
int tier_index_commit(struct tier_index *ix, const void *packs, uint32_t nr_packs, const bool *is_gone,
		      uint64_t others_max);
uint64_t tier_index_nr_entries(const struct tier_index *ix, bool is_own);
