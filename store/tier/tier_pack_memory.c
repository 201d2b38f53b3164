/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_pack_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/util.h"
#include "store/pack/pack_format.h"

#define HUGE_PAGE ((size_t)MiB(2))

void tier_pack_reserve(struct buf *b, uint64_t pack_bytes)
{
	size_t tables = (size_t)(pack_bytes / PACK_FRAME_BYTES + 1) * PACK_BLOCK; /* of full frames */
	size_t size = (size_t)round_up(pack_bytes + PACK_FRAME_BYTES + tables + PACK_BLOCK, HUGE_PAGE);

	if (b->size > 0 || pack_bytes < HUGE_PAGE)
		return;
	b->data = aligned_alloc(HUGE_PAGE, size);
	if (!b->data)
		return;
	b->size = size;
	madvise(b->data, size, MADV_HUGEPAGE); /* a failure costs speed only */
}
