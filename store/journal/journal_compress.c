/*
 * Compressing the records of a group. Recipes are most of what a store holds beside its chunks and their fingerprints.
 * Where files change page by page, a commit of them is many extents, one like the other, that shrink to a quarter at
 * this level and to two fifths at level 1; files written in one go have few, whatever the level. A group that would not
 * save a block, as those of small files and single fsyncs, is left alone and costs nothing.
 */
#include <string.h>
#include <zstd.h>

#include "store/journal/journal_internal.h"

#define LEVEL 3
#define LEAST_BYTES 2048u /* less hardly saves a block */
#define KEPT_BYTES MiB(1) /* of working memory from one group to the next */

void journal_coder_release(struct journal_coder *c)
{
	ZSTD_freeCCtx(c->zstd);
	free(c->payload);
	*c = (struct journal_coder){ 0 };
}

/* Memory that is not there is no error: the group is written as it is. */
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
	size_t room = len - MIN(len, (size_t)JOURNAL_BLOCK), n; /* more would not save a block */

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
