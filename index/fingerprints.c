/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/fingerprints.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"

#define FIND_BATCH 256 /* look-ups per call into RocksDB: a 1 MiB segment of pages */
#define BLOCK_SIZE 4096
#define PACK_BITS (8 * FINGERPRINT_VALUE_LEN - FINGERPRINT_BLOCK_BITS)

static void key_put(struct fp fp, uint8_t ret[FINGERPRINT_KEY_LEN])
{
	uint8_t bytes[FP_LEN];

	fp_encode(fp, bytes);
	memcpy(ret, bytes, FINGERPRINT_KEY_LEN);
}

static void value_put(const struct fingerprint_entry *e, uint8_t ret[FINGERPRINT_VALUE_LEN])
{
	struct le64 v = le64_put((uint64_t)e->pack << FINGERPRINT_BLOCK_BITS | e->block);

	memcpy(ret, v.b, FINGERPRINT_VALUE_LEN);
}

static struct addr value_get(const uint8_t p[FINGERPRINT_VALUE_LEN])
{
	struct le64 v = { { 0 } };
	uint64_t n;

	memcpy(v.b, p, FINGERPRINT_VALUE_LEN);
	n = le64_get(v);
	return (struct addr){
		.pack = (uint32_t)(n >> FINGERPRINT_BLOCK_BITS),
		.off = (uint32_t)(n & ((1u << FINGERPRINT_BLOCK_BITS) - 1)) * BLOCK_SIZE,
	};
}

int fingerprints_find(struct db *db, const struct fp *fps, size_t n, struct addr *ret)
{
	uint8_t keys[FIND_BATCH][FINGERPRINT_KEY_LEN], values[FIND_BATCH][FINGERPRINT_VALUE_LEN], found[FIND_BATCH];
	int r;

	for (size_t done = 0; done < n; done += FIND_BATCH) {
		size_t nr = MIN(n - done, (size_t)FIND_BATCH);

		for (size_t i = 0; i < nr; i++)
			key_put(fps[done + i], keys[i]);
		r = db_get_many(db, DB_FINGERPRINTS, keys, FINGERPRINT_KEY_LEN, nr, values, FINGERPRINT_VALUE_LEN,
				found);
		if (r < 0)
			return r;
		for (size_t i = 0; i < nr; i++)
			ret[done + i] = found[i] ? value_get(values[i]) : ADDR_NONE;
	}
	return 0;
}

uint32_t fingerprint_pack(const void *value, size_t len)
{
	return len == FINGERPRINT_VALUE_LEN ? value_get(value).pack : 0;
}

uint64_t fingerprint_key(struct fp fp)
{
	uint8_t key[FINGERPRINT_KEY_LEN];

	static_assert(FINGERPRINT_KEY_LEN == 8, "a number");
	key_put(fp, key);
	return be64_get(key);
}

int fingerprints_scan(struct db *db, uint64_t from, uint64_t *ret, size_t max, size_t *ret_nr)
{
	uint8_t first[FINGERPRINT_KEY_LEN];
	int r;

	be64_put(first, from);
	r = db_scan(db, DB_FINGERPRINTS, first, ret, sizeof(first), NULL, 0, max, ret_nr);
	for (size_t i = 0; r == 0 && i < *ret_nr; i++)
		ret[i] = be64_get((const uint8_t *)&ret[i]);
	return r;
}

int fingerprints_scan_hints(struct db *db, uint64_t from, struct fingerprint_hint *ret, size_t max, size_t *ret_nr)
{
	_cleanup_(freep) uint8_t *keys = malloc(max * (FINGERPRINT_KEY_LEN + FINGERPRINT_VALUE_LEN));
	uint8_t first[FINGERPRINT_KEY_LEN], *values;
	int r;

	if (!keys)
		return -ENOMEM;
	values = keys + max * FINGERPRINT_KEY_LEN;
	be64_put(first, from);
	r = db_scan(db, DB_FINGERPRINTS, first, keys, sizeof(first), values, FINGERPRINT_VALUE_LEN, max, ret_nr);
	for (size_t i = 0; r == 0 && i < *ret_nr; i++)
		ret[i] = (struct fingerprint_hint){ be64_get(keys + i * FINGERPRINT_KEY_LEN),
						    value_get(values + i * FINGERPRINT_VALUE_LEN) };
	return r;
}

/*
 * Stable, least significant digit first, in an even number of passes, so the result is in `e` again. Digits have 16 bits,
 * or 8 if there are fewer entries than such digits: counting them would take longer than sorting.
 * Stable because of equal keys the last one given must win, which qsort() cannot promise.
 */
static int sort_entries(struct fingerprint_entry *e, struct fingerprint_entry *scratch, size_t n)
{
	unsigned bits = n < 1u << 14 ? 8 : 16;
	size_t nr_digits = (size_t)1 << bits;
	_cleanup_(freep) size_t *start = malloc(sizeof(*start) << bits);
	struct fingerprint_entry *from = e, *to = scratch, *other;

	if (!start)
		return -ENOMEM;
	for (unsigned shift = 0; shift < 64; shift += bits) {
		size_t sum = 0;

		memset(start, 0, sizeof(*start) << bits);
		for (size_t i = 0; i < n; i++)
			start[fingerprint_key(from[i].fp) >> shift & (nr_digits - 1)]++;
		for (size_t d = 0; d < nr_digits; d++) {
			size_t nr = start[d];

			start[d] = sum;
			sum += nr;
		}
		for (size_t i = 0; i < n; i++)
			to[start[fingerprint_key(from[i].fp) >> shift & (nr_digits - 1)]++] = from[i];
		other = from;
		from = to;
		to = other;
	}
	return 0;
}

int fingerprints_add(struct db_ingestion *in, struct fingerprint_entry *entries, size_t n)
{
	_cleanup_(freep) struct fingerprint_entry *scratch = NULL;
	uint8_t *keys, *values;
	size_t nr = 0;
	int r;

	if (n == 0)
		return 0;
	scratch = calloc(n, sizeof(*scratch));
	if (!scratch)
		return -ENOMEM;
	r = sort_entries(entries, scratch, n);
	if (r < 0)
		return r;
	/* The scratch space is done with: keys and values fit into it. */
	static_assert(sizeof(*scratch) >= FINGERPRINT_KEY_LEN + FINGERPRINT_VALUE_LEN, "room for both");
	keys = (uint8_t *)scratch;
	values = keys + n * FINGERPRINT_KEY_LEN;
	for (size_t i = 0; i < n; i++) {
		assert(entries[i].pack > 0 && entries[i].pack >> PACK_BITS == 0);
		assert(entries[i].block >> FINGERPRINT_BLOCK_BITS == 0);
		if (i + 1 < n && fingerprint_key(entries[i].fp) == fingerprint_key(entries[i + 1].fp))
			continue;
		key_put(entries[i].fp, keys + nr * FINGERPRINT_KEY_LEN);
		value_put(&entries[i], values + nr * FINGERPRINT_VALUE_LEN);
		nr++;
	}
	return db_ingestion_add(in, keys, FINGERPRINT_KEY_LEN, values, FINGERPRINT_VALUE_LEN, nr);
}

int fingerprints_ingest(struct db *db, struct fingerprint_entry *entries, size_t n)
{
	_cleanup_(db_ingestion_freep) struct db_ingestion *in = NULL;
	int r;

	if (n == 0)
		return 0;
	r = db_ingestion_new(db, &in);
	if (r == 0)
		r = fingerprints_add(in, entries, n);
	return r < 0 ? r : db_ingestion_commit(in);
}
