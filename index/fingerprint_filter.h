/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A Bloom filter over the keys of the index, in blocks of one cache line with one bit in each of its eight words.
 *
 * RocksDB has filters too, but a lookup there costs a microsecond or more for every new page, and here a cache miss.
 * The block is chosen by the top bits of the key, so that adding keys in order accesses memory in order. The rate of
 * false positives is 1 in 100 at 10 bits per key, and 1 in 7 at 5 bits. Not locked: one thread at a time adds keys, while
 * others look up.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fingerprint_filter {
	_Atomic uint64_t (*blocks)[8]; /* NULL: there is none */
	unsigned shift; /* a key's top bits select the block */
};

int fingerprint_filter_init(struct fingerprint_filter *f, unsigned block_bits); /* 64 bytes << block_bits */
void fingerprint_filter_release(struct fingerprint_filter *f);
size_t fingerprint_filter_bytes(const struct fingerprint_filter *f);

static inline _Atomic uint64_t *fingerprint_filter_block(const struct fingerprint_filter *f, uint64_t key)
{
	return f->blocks[key >> f->shift];
}

static inline void fingerprint_filter_add(struct fingerprint_filter *f, uint64_t key)
{
	_Atomic uint64_t *block = fingerprint_filter_block(f, key);

	for (unsigned i = 0; i < 8; i++, key >>= 6) {
		uint64_t bits = atomic_load_explicit(&block[i], memory_order_relaxed) | UINT64_C(1) << (key & 63);

		atomic_store_explicit(&block[i], bits, memory_order_relaxed);
	}
}

/* false: certainly not added. */
static inline bool fingerprint_filter_has(const struct fingerprint_filter *f, uint64_t key)
{
	_Atomic uint64_t *block = fingerprint_filter_block(f, key);
	uint64_t all = 1;

	for (unsigned i = 0; i < 8; i++, key >>= 6)
		all &= atomic_load_explicit(&block[i], memory_order_relaxed) >> (key & 63);
	return all;
}
