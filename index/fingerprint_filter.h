/*
 * Which keys of the index may be there: a Bloom filter in blocks of one cache line, one bit in each of its eight words.
 *
 * RocksDB has filters too, but asking them costs a microsecond and more for every page that is new, and this a cache
 * miss. The block is chosen by the top bits of the key, so that adding keys in order goes through memory in order.
 * At 10 bits a key 1 in 100 absent ones seem to be there, at 5 bits 1 in 7. No lock inside.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fingerprint_filter {
	uint64_t (*blocks)[8]; /* NULL: there is none */
	unsigned shift; /* a key's top bits tell the block */
};

int fingerprint_filter_init(struct fingerprint_filter *f, unsigned block_bits); /* 64 bytes << block_bits */
void fingerprint_filter_release(struct fingerprint_filter *f);
size_t fingerprint_filter_bytes(const struct fingerprint_filter *f);

static inline uint64_t *fingerprint_filter_block(const struct fingerprint_filter *f, uint64_t key)
{
	return f->blocks[key >> f->shift];
}

static inline void fingerprint_filter_add(struct fingerprint_filter *f, uint64_t key)
{
	uint64_t *block = fingerprint_filter_block(f, key);

	for (unsigned i = 0; i < 8; i++, key >>= 6)
		block[i] |= UINT64_C(1) << (key & 63);
}

/* false: certainly not added. */
static inline bool fingerprint_filter_has(const struct fingerprint_filter *f, uint64_t key)
{
	const uint64_t *block = fingerprint_filter_block(f, key);
	uint64_t all = 1;

	for (unsigned i = 0; i < 8; i++, key >>= 6)
		all &= block[i] >> (key & 63);
	return all;
}
