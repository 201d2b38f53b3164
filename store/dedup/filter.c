/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An in-memory filter over the keys in RocksDB, so that most new pages need no lookup there.
 *
 * The background thread builds it when the store is opened if the index is empty, which costs nothing, else once enough
 * lookups have failed, scanning the index in small steps; and rebuilds it with twice the room when it becomes too small. During and after the build, every key is added to the filter before it
 * enters RocksDB. Keys removed from RocksDB stay in the filter and cost a lookup each.
 *
 *   wanted ─ scan some keys per tick ─▶ all scanned: in use ─ too full, and memory for a larger one ─▶ wanted
 *
 * The filter is lost when the process ends: lookup results never depend on it.
 */
#include "store/dedup/filter.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"
#include "store/dedup/dedup_tables.h"

#define IN_VAIN_MIN 65536 /* failed lookups since the mount that a filter would have saved */
#define SCAN_KEYS 16384u /* per scan of RocksDB */
#define SCAN_NS (50 * 1000000ull) /* per tick */
#define BLOCK_BITS_MIN 12u /* 256 KiB */
#define KEYS_PER_BLOCK_GOOD 51u /* 10 bits per key */
#define KEYS_PER_BLOCK_MAX 102u /* 5 bits per key: worse is not worth the memory */

static unsigned block_bits_for(uint64_t nr, unsigned keys_per_block)
{
	unsigned bits = BLOCK_BITS_MIN;

	while ((uint64_t)keys_per_block << bits < nr)
		bits++;
	return bits;
}

static unsigned block_bits_max(const struct engine *e)
{
	unsigned bits = 0;

	while (UINT64_C(64) << (bits + 1) <= e->conf.cache / 8)
		bits++;
	return bits;
}

static uint64_t nr_keys(struct engine *e)
{
	struct db_stats s;

	db_stats(e->db, &s);
	return s.fingerprints_nr;
}

/* Size of the filter to build now, as bits of its number of blocks; 0: none. Twice the room needed, as memory
 * allows. */
static unsigned wanted_bits(struct engine *e)
{
	uint64_t nr = nr_keys(e), in_vain_min = e->conf.ingest_entries ? e->conf.ingest_entries : IN_VAIN_MIN;
	unsigned max = block_bits_max(e), bits;

	if (block_bits_for(nr, KEYS_PER_BLOCK_MAX) > max)
		return 0;
	bits = MIN(block_bits_for(2 * nr, KEYS_PER_BLOCK_GOOD), max);
	if (!e->dedup->filter.in_use.blocks)
		return nr == 0 || atomic_load(&e->count.in_vain) >= in_vain_min ? bits : 0;
	return nr > e->dedup->filter.nr_good && 64 - e->dedup->filter.in_use.shift < bits ? bits : 0;
}

static int start_next_filter(struct engine *e, unsigned bits)
{
	struct fingerprint_filter f;
	int r = fingerprint_filter_init(&f, bits);

	if (r < 0)
		return r;
	mutex_lock(&e->dedup->filter.lock);
	e->dedup->filter.next = f;
	mutex_unlock(&e->dedup->filter.lock);
	e->dedup->filter.scan_from = 0;
	return 0;
}

static void install_next_filter(struct engine *e)
{
	struct fingerprint_filter old;

	dedup_lock(e);
	mutex_lock(&e->dedup->filter.lock);
	old = e->dedup->filter.in_use;
	e->dedup->filter.in_use = e->dedup->filter.next;
	e->dedup->filter.next = (struct fingerprint_filter){ 0 };
	mutex_unlock(&e->dedup->filter.lock);
	dedup_unlock(e);
	e->dedup->filter.nr_good = (uint64_t)KEYS_PER_BLOCK_GOOD << (64 - e->dedup->filter.in_use.shift);
	fingerprint_filter_release(&old);
}

/* 1: all keys are in, 0: more remain. */
static int scan(struct engine *e)
{
	_cleanup_(freep) uint64_t *keys = calloc(SCAN_KEYS, sizeof(*keys));
	uint64_t until = monotonic_ns() + SCAN_NS;
	size_t n = SCAN_KEYS;
	int r;

	if (!keys)
		return -ENOMEM;
	while (n == SCAN_KEYS && monotonic_ns() < until) {
		r = fingerprints_scan(e->db, e->dedup->filter.scan_from, keys, SCAN_KEYS, &n);
		if (r < 0)
			return r;
		mutex_lock(&e->dedup->filter.lock);
		for (size_t i = 0; i < n; i++)
			fingerprint_filter_add(&e->dedup->filter.next, keys[i]);
		mutex_unlock(&e->dedup->filter.lock);
		if (n == SCAN_KEYS)
			e->dedup->filter.scan_from = keys[n - 1]; /* that key again: there may be no next number */
	}
	return n < SCAN_KEYS;
}

int filter_tend(struct engine *e)
{
	unsigned bits;
	int r = 0;

	if (!e->dedup->filter.next.blocks) {
		bits = wanted_bits(e);
		if (bits == 0)
			return 0;
		r = start_next_filter(e, bits);
	}
	if (r == 0)
		r = scan(e);
	if (r > 0)
		install_next_filter(e);
	return MIN(r, 0);
}

static void add_key(struct engine *e, uint64_t key) REQUIRES(e->dedup->filter.lock)
{
	if (e->dedup->filter.in_use.blocks)
		fingerprint_filter_add(&e->dedup->filter.in_use, key);
	if (e->dedup->filter.next.blocks)
		fingerprint_filter_add(&e->dedup->filter.next, key);
}

void filter_add(struct engine *e, const struct fingerprint_entry *entries, size_t n)
{
	mutex_lock(&e->dedup->filter.lock);
	for (size_t i = 0; i < n; i++)
		add_key(e, fingerprint_key(entries[i].fp));
	mutex_unlock(&e->dedup->filter.lock);
}
