/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Fingerprint -> possible address of a chunk. These are hints: the caller checks the full fingerprint in the pack's
 * table, so a stale entry or a match of a truncated key costs a lookup but never shares wrong data.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"

struct db;
struct db_ingestion;

struct fingerprint_entry {
	struct fp fp;
	uint32_t pack;
	uint32_t block; /* logical offset / 4096, below 2^20 */
};

/* The key of a fingerprint in the index, as a number of the same order: its first eight bytes. */
uint64_t fingerprint_key(struct fp fp);
/* The pack that an entry points into; 0: not a valid entry. */
uint32_t fingerprint_pack(const void *value, size_t len);
/* Up to `max` keys from `from` on, in order; fewer: there are no more. Bypasses the cache. */
int fingerprints_scan(struct db *db, uint64_t from, uint64_t *ret, size_t max, size_t *ret_nr);
/* The same with their addresses. */
struct fingerprint_hint {
	uint64_t key;
	struct addr addr;
};
int fingerprints_scan_hints(struct db *db, uint64_t from, struct fingerprint_hint *ret, size_t max, size_t *ret_nr);

/* ret[i] is the address of a likely match of fps[i], or ADDR_NONE. One batched look-up. */
int fingerprints_find(struct db *db, const struct fp *fps, size_t n, struct addr *ret);
/* Add entries in bulk. Sorts `entries` in place; of equal keys the last one given stays. Durable on return. */
int fingerprints_ingest(struct db *db, struct fingerprint_entry *entries, size_t n);
/* The same for one part of an ingestion: all its keys are larger than those of the part before it. */
int fingerprints_add(struct db_ingestion *in, struct fingerprint_entry *entries, size_t n);
