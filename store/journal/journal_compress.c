/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Compresses the records of a group. Apart from chunks and fingerprints, most of a store is recipes. Where files change
 * page by page, a commit contains many similar extents, which shrink to a quarter at this level and to two fifths at
 * level 1. Files written in one go have few extents, whatever the level. A group that would not save a block, like
 * those of small files and single fsyncs, is not compressed and costs nothing.
 */
#include <string.h>
#include <zstd.h>

#include "store/journal/journal_internal.h"

#define LEVEL 3
#define LEAST_BYTES 2048u /* less hardly saves a block */
#define KEPT_BYTES MiB(1) /* working memory kept from one group to the next */

void journal_coder_release(struct journal_coder *c)
{
	ZSTD_freeCCtx(c->zstd);
	free(c->payload);
	*c = (struct journal_coder){ 0 };
}

/* Lack of memory is not an error: the group is written uncompressed. */
static bool reserve(struct journal_coder *c, size_t room)
{
	if (!c->zstd)
		c->zstd = ZSTD_createCCtx();
	if (c->room < room) {
		free(c->payload);
		c->payload = malloc(room);
		c->room = c->payload ? room : 0;
	}
	return c->zstd && c->payload;
}

size_t journal_compress(struct journal_coder *c, struct journal_group *g, const void *records, size_t len,
			const void **ret)
{
	size_t room = len - MIN(len, (size_t)JOURNAL_BLOCK), n; /* a longer result would not save a block */

	*ret = records;
	if (c->room > KEPT_BYTES)
		journal_coder_release(c);
	if (len < LEAST_BYTES || !reserve(c, room))
		return len;
	n = ZSTD_compressCCtx(c->zstd, c->payload, room, records, len, LEVEL);
	if (ZSTD_isError(n))
		return len;
	g->flags |= JOURNAL_GROUP_ZSTD;
	g->records_len = (uint32_t)len;
	*ret = c->payload;
	return n;
}
