/*
 * What compression would make of new chunks: they are put together in blocks as in a pack, and each block is compressed
 * to see how small it gets. A block that does not shrink by 5 % counts as it is. Belongs to one thread.
 */
#pragma once

#include "tools/analyze_figures.h"

struct ZSTD_CCtx_s;

#define BLOCK_SIZE 65536u
#define BLOCK_CHUNK_MAX (1u << 20) /* a larger chunk than a block is a block */
#define BLOCK_SHARES 256u

struct block {
	struct ZSTD_CCtx_s *zstd;
	uint8_t *data, *out;
	size_t len;
	/* Whose bytes they are; figures are borrowed until block_flush(). */
	struct block_share {
		struct figures *to;
		uint64_t bytes; /* times what they stand for */
	} share[BLOCK_SHARES];
	size_t nr_shares;
};

int block_init(struct block *b);
void block_release(struct block *b);
/* `len` bytes that stand for `weight` times as many. -ENOMEM, -EIO. */
int block_add(struct block *b, const void *p, size_t len, uint64_t weight, struct figures *to);
/* Account for what is left. */
int block_flush(struct block *b);
