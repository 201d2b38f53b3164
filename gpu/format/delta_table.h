/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hash table of a record: maps the digest of a chunk to a version with such a chunk, and its place. Versions never
 * change, so an entry is valid as long as the file exists.
 *
 * Grows by doubling as far as the limit allows, which counts the old table beside the new one while it grows. One
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/format/leaf_hash.h"

struct delta_entry {
	struct digest digest;
	uint32_t version; /* 0: empty */
	uint32_t chunk;
};

struct delta_table {
	struct delta_entry *slots; /* linear probing from where the digest points */
	uint64_t nr_slots, nr_slots_max;
	uint64_t nr_used; /* at most 7/8 of the slots, so that probes end */
};

void delta_table_init(struct delta_table *t, uint64_t limit_bytes);
void delta_table_release(struct delta_table *t);

/* NULL: not there. Valid until the table changes. */
const struct delta_entry *delta_table_find(const struct delta_table *t, struct digest d);
/* How many more may be entered. */
uint64_t delta_table_room(const struct delta_table *t);
/* The digest must not be there, and there must be room. */
int delta_table_enter(struct delta_table *t, struct digest d, uint32_t version, uint32_t chunk);
/* Drops the entries for which `keep` returns false. It may change the entry's version, and may see a changed entry
 * again. */
typedef bool delta_keep_fn(void *userdata, struct delta_entry *e);
void delta_table_sweep(struct delta_table *t, delta_keep_fn *keep, void *userdata);
