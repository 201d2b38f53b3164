/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "index/fingerprint_filter.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The bits inside a block come from the key's low 48: the others must be enough to choose the block. */
#define BLOCK_BITS_MAX 30u

int fingerprint_filter_init(struct fingerprint_filter *f, unsigned block_bits)
{
	size_t bytes = sizeof(*f->blocks) << block_bits;

	assert(block_bits > 0 && block_bits <= BLOCK_BITS_MAX);
	f->blocks = aligned_alloc(sizeof(*f->blocks), bytes);
	if (!f->blocks)
		return -ENOMEM;
	memset(f->blocks, 0, bytes);
	f->shift = 64 - block_bits;
	return 0;
}

void fingerprint_filter_release(struct fingerprint_filter *f)
{
	free(f->blocks);
	*f = (struct fingerprint_filter){ 0 };
}

size_t fingerprint_filter_bytes(const struct fingerprint_filter *f)
{
	return f->blocks ? sizeof(*f->blocks) << (64 - f->shift) : 0;
}
