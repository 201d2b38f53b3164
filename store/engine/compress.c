/* How new data is compressed: what the setting says, and whether there is time for it. */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"

#define LEVEL_MAX 19 /* more would need memory that nobody has counted, and gains nothing on 64 KiB */

static const char *const names[] = {
	[COMPRESS_NONE] = "none",
	[COMPRESS_LZ4] = "lz4",
	[COMPRESS_ZSTD] = "zstd",
	[COMPRESS_AUTO] = "auto",
};

static int level_parse(const char *s, size_t len, int *ret)
{
	int level = 0;

	if (len == 0 || len > 2)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		level = level * 10 + (s[i] - '0');
	}
	if (level < 1 || level > LEVEL_MAX)
		return -EINVAL;
	*ret = level;
	return 0;
}

int compress_parse(const char *s, size_t len, struct compress *ret)
{
	const char *colon = memchr(s, ':', len);
	size_t name_len = colon ? (size_t)(colon - s) : len;
	struct compress c = { 0 };

	while (c.kind < ARRAY_SIZE(names) &&
	       (strlen(names[c.kind]) != name_len || memcmp(names[c.kind], s, name_len) != 0))
		c.kind++;
	if (c.kind == ARRAY_SIZE(names) || (colon && c.kind != COMPRESS_ZSTD))
		return -EINVAL;
	if (colon && level_parse(colon + 1, len - name_len - 1, &c.level) < 0)
		return -EINVAL;
	*ret = c;
	return 0;
}

struct pack_compression compress_for_pack(struct compress c)
{
	static const enum pack_compress kinds[] = {
		[COMPRESS_NONE] = PACK_COMPRESS_NONE,
		[COMPRESS_LZ4] = PACK_COMPRESS_LZ4,
		[COMPRESS_ZSTD] = PACK_COMPRESS_ZSTD,
		[COMPRESS_AUTO] = PACK_COMPRESS_AUTO,
	};

	return (struct pack_compression){ .kind = kinds[c.kind], .level = c.level };
}

void content_set_compress(struct content *c, const struct compress *how)
{
	mutex_lock(&c->lock);
	c->compress = how ? *how : c->e->conf.compress;
	mutex_unlock(&c->lock);
}

/* Data is waiting: for a thread, or soon for memory. */
static bool is_behind(struct engine *e)
{
	bool behind;

	mutex_lock(&e->queue.lock);
	behind = e->queue.first != NULL;
	mutex_unlock(&e->queue.lock);
	if (behind)
		return true;
	mutex_lock(&e->buffers.lock);
	behind = e->buffers.nr - e->buffers.nr_free > e->buffers.max / 2;
	mutex_unlock(&e->buffers.lock);
	return behind;
}

bool compress_is_busy(void *engine, uint32_t bytes)
{
	struct engine *e = engine;
	bool behind = is_behind(e), compress;

	mutex_lock(&e->pace.lock);
	compress = pace_step(&e->pace.pace, behind, monotonic_ns(), bytes);
	mutex_unlock(&e->pace.lock);
	return !compress;
}
