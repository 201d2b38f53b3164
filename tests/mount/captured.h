/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What captured.c has in its memory, and captured_check.c finds in its checkpoints. All of it hangs on one pointer.
 *
 * A ring's thread writes numbers, one after the other, each to the page that is its remainder. So at any moment pages
 * hold the last RING_PAGES numbers; memory that is not of one moment has others. Pages of a ring are in turn of several
 * mappings, which are regions of their own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define NR_RINGS 3
#define RING_PAGES 200u
#define RING_STEP 4096u
#define NR_BLOCKS 2000u

#define RING_PARTS 8u

struct ring {
	uint8_t *part[RING_PARTS];
};

/* A block that its thread takes and gives back. */
struct block {
	uint8_t *p;
	uint32_t len;
	uint8_t fill;
	volatile bool changing; /* at most one */
};

struct root {
	uint64_t magic;
	struct ring ring[NR_RINGS]; /* of malloc(), of posix_memalign(), of mmap() */
	struct block *blocks;
	uint8_t *guarded; /* 128 KiB, which could not be read for a while */
};
#define ROOT_MAGIC UINT64_C(0x636b707466732121)

static inline volatile uint64_t *ring_page(const struct ring *r, uint64_t page)
{
	return (volatile uint64_t *)(r->part[page % RING_PARTS] + page / RING_PARTS * RING_STEP);
}

static inline uint64_t ring_at(const struct ring *r, uint32_t page)
{
	return *ring_page(r, page);
}

/* NULL: it is memory of one moment. */
static inline const char *root_wrong(const struct root *root)
{
	unsigned changing = 0;

	for (uint32_t i = 0; root->magic == ROOT_MAGIC && i < 2 * 65536; i++)
		if (root->guarded[i] != 'g')
			return "memory that could not be read for a while is not there";
	if (root->magic != ROOT_MAGIC)
		return "no root";
	for (int k = 0; k < NR_RINGS; k++) {
		uint64_t most = 0;

		for (uint32_t i = 0; i < RING_PAGES; i++)
			most = ring_at(&root->ring[k], i) > most ? ring_at(&root->ring[k], i) : most;
		for (uint32_t i = 0; i < RING_PAGES; i++) {
			uint64_t n = ring_at(&root->ring[k], i);

			if (n % RING_PAGES != i || most - n >= RING_PAGES)
				return "pages of different moments";
		}
	}
	for (uint32_t i = 0; i < NR_BLOCKS; i++) {
		const struct block *b = &root->blocks[i];

		changing += b->changing;
		for (uint32_t at = 0; b->p && !b->changing && at < b->len; at++)
			if (b->p[at] != b->fill)
				return "a block with other bytes";
	}
	return changing > 1 ? "more than one block is being changed" : 0;
}
