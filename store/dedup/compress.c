/* Compression of new data: the options, and for compress=auto whether there is time for it. */
#include "store/dedup/compress.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "store/engine_internal.h"
#include "store/file/content.h"

/* In spare time, a frame waits this long for other work before it is compressed. A file of 1 MiB is synced or closed
 * sooner, and the next frame of a larger one arrives sooner. */
#define GRACE_NS (1000 * 1000ull)
#define LEVEL_MAX 19 /* higher levels need memory that is not accounted for, and gain nothing on 64 KiB */

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

static uint64_t busy_ns(const struct engine *e, uint64_t now_ns) REQUIRES(e->pace.lock)
{
	return e->pace.busy_ns + (e->pace.nr_jobs + e->pace.nr_waiters > 0 ? now_ns - e->pace.since_ns : 0);
}

/* Read the clock under the lock, so that it never appears to go back. */
static void change_count(struct engine *e, unsigned *what, int more)
{
	uint64_t now;

	mutex_lock(&e->pace.lock);
	now = monotonic_ns();
	e->pace.busy_ns = busy_ns(e, now);
	e->pace.since_ns = now;
	*what += (unsigned)more;
	if (more > 0 && e->pace.nr_idle > 0)
		cond_broadcast(&e->pace.more_cond);
	mutex_unlock(&e->pace.lock);
}

void compress_job_begins(struct engine *e)
{
	change_count(e, &e->pace.nr_jobs, 1);
}

void compress_job_ends(struct engine *e)
{
	change_count(e, &e->pace.nr_jobs, -1);
}

void compress_wait_begins(struct engine *e)
{
	change_count(e, &e->pace.nr_waiters, 1);
}

void compress_wait_ends(struct engine *e)
{
	change_count(e, &e->pace.nr_waiters, -1);
}

static bool memory_is_short(struct engine *e)
{
	bool is_short;

	mutex_lock(&e->buffers.lock);
	is_short = e->buffers.nr - e->buffers.nr_free > e->buffers.max / 2;
	mutex_unlock(&e->buffers.lock);
	return is_short;
}

/* Something waits for a job or a commit, will soon wait for memory, or needs a processor. A writer at full speed keeps
 * two processors busy, including the kernel's copies; with more jobs than half of the processors none is left. */
static bool is_behind(const struct engine *e, bool is_short) REQUIRES(e->pace.lock)
{
	return is_short || e->pace.nr_waiters > 0 || e->pace.nr_jobs > e->pace.nr_spare;
}

/* Wait for a grace period. True: nothing started to wait meanwhile. */
static bool stays_calm(struct engine *e) REQUIRES(e->pace.lock)
{
	uint64_t now = monotonic_ns(), end = now + GRACE_NS;

	e->pace.nr_idle++;
	while (now < end && !is_behind(e, false)) {
		cond_wait_for(&e->pace.more_cond, &e->pace.lock, end - now);
		now = monotonic_ns();
	}
	e->pace.nr_idle--;
	if (!is_behind(e, false))
		return true;
	pace_disturbed(&e->pace.pace, now, busy_ns(e, now));
	return false;
}

enum pack_time compress_time_for(void *engine, uint32_t bytes)
{
	struct engine *e = engine;
	bool is_short = memory_is_short(e);
	enum pack_time time;
	uint64_t now;

	mutex_lock(&e->pace.lock);
	now = monotonic_ns();
	time = pace_step(&e->pace.pace, is_behind(e, is_short), now, busy_ns(e, now), bytes);
	if (time == PACK_TIME_SPARE && !stays_calm(e))
		time = PACK_TIME_NONE;
	mutex_unlock(&e->pace.lock);
	return time;
}

bool compress_is_disturbed(void *engine)
{
	struct engine *e = engine;
	bool is_short = memory_is_short(e), behind;
	uint64_t now;

	mutex_lock(&e->pace.lock);
	behind = is_behind(e, is_short);
	if (behind) {
		now = monotonic_ns();
		pace_disturbed(&e->pace.pace, now, busy_ns(e, now));
	}
	mutex_unlock(&e->pace.lock);
	return behind;
}

bool engine_is_busy(struct engine *e)
{
	return compress_is_disturbed(e);
}

void compress_init(struct engine *e)
{
	long nr = sysconf(_SC_NPROCESSORS_ONLN);

	mutex_init(&e->pace.lock);
	cond_init(&e->pace.more_cond);
	e->pace.nr_spare = nr > 2 ? (unsigned)nr / 2 : 1;
}

void compress_release(struct engine *e)
{
	cond_release(&e->pace.more_cond);
	mutex_release(&e->pace.lock);
}
