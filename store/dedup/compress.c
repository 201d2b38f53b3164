/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Compression of new data: the options, and for compress=auto whether there is time for it. */
#include "store/dedup/compress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/buffers.h"
#include "store/dedup/compress_pace.h"

/* In spare time, a frame waits this long for other work before it is compressed. A file of 1 MiB is synced or closed
 * sooner, and the next frame of a larger one arrives sooner. */
#define GRACE_NS (1000 * 1000ull)
#define LEVEL_MAX 19 /* higher levels need memory that is not accounted for, and gain nothing on 64 KiB */

struct pacer {
	struct mutex lock; /* leaf; dropped while a frame waits for company */
	struct pace pace GUARDED_BY(lock);
	unsigned nr_jobs GUARDED_BY(lock); /* submitted but not in the log */
	unsigned nr_waiters GUARDED_BY(lock); /* threads waiting for jobs or a commit */
	uint64_t busy_ns GUARDED_BY(lock); /* accumulated time with jobs or waiters, up to since_ns */
	uint64_t since_ns GUARDED_BY(lock);
	unsigned nr_idle GUARDED_BY(lock); /* threads waiting to see whether more jobs arrive */
	struct cond more_cond;
	unsigned nr_spare; /* up to this many jobs leave a processor free for compression; constant */
};

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

static uint64_t busy_ns(const struct engine *e, uint64_t now_ns) REQUIRES(e->pacer->lock)
{
	return e->pacer->busy_ns + (e->pacer->nr_jobs + e->pacer->nr_waiters > 0 ? now_ns - e->pacer->since_ns : 0);
}

/* Read the clock under the lock, so that it never appears to go back. */
static void change_count(struct engine *e, unsigned *what, int more)
{
	uint64_t now;

	mutex_lock(&e->pacer->lock);
	now = monotonic_ns();
	e->pacer->busy_ns = busy_ns(e, now);
	e->pacer->since_ns = now;
	*what += (unsigned)more;
	if (more > 0 && e->pacer->nr_idle > 0)
		cond_broadcast(&e->pacer->more_cond);
	mutex_unlock(&e->pacer->lock);
}

void compress_job_begins(struct engine *e)
{
	change_count(e, &e->pacer->nr_jobs, 1);
}

void compress_job_ends(struct engine *e)
{
	change_count(e, &e->pacer->nr_jobs, -1);
}

void compress_wait_begins(struct engine *e)
{
	change_count(e, &e->pacer->nr_waiters, 1);
}

void compress_wait_ends(struct engine *e)
{
	change_count(e, &e->pacer->nr_waiters, -1);
}

/* Something waits for a job or a commit, will soon wait for memory, or needs a processor. A writer at full speed keeps
 * two processors busy, including the kernel's copies; with more jobs than half of the processors none is left. */
static bool is_behind(const struct engine *e, bool is_short) REQUIRES(e->pacer->lock)
{
	return is_short || e->pacer->nr_waiters > 0 || e->pacer->nr_jobs > e->pacer->nr_spare;
}

/* Wait for a grace period. True: nothing started to wait meanwhile. */
static bool stays_calm(struct engine *e) REQUIRES(e->pacer->lock)
{
	uint64_t now = monotonic_ns(), end = now + GRACE_NS;

	e->pacer->nr_idle++;
	while (now < end && !is_behind(e, false)) {
		cond_wait_for(&e->pacer->more_cond, &e->pacer->lock, end - now);
		now = monotonic_ns();
	}
	e->pacer->nr_idle--;
	if (!is_behind(e, false))
		return true;
	pace_disturbed(&e->pacer->pace, now, busy_ns(e, now));
	return false;
}

enum pack_time compress_time_for(void *engine, uint32_t bytes)
{
	struct engine *e = engine;
	bool is_short = buffers_are_short(e->buffers);
	enum pack_time time;
	uint64_t now;

	mutex_lock(&e->pacer->lock);
	now = monotonic_ns();
	time = pace_step(&e->pacer->pace, is_behind(e, is_short), now, busy_ns(e, now), bytes);
	if (time == PACK_TIME_SPARE && !stays_calm(e))
		time = PACK_TIME_NONE;
	mutex_unlock(&e->pacer->lock);
	return time;
}

bool compress_is_disturbed(void *engine)
{
	struct engine *e = engine;
	bool is_short = buffers_are_short(e->buffers), behind;
	uint64_t now;

	mutex_lock(&e->pacer->lock);
	behind = is_behind(e, is_short);
	if (behind) {
		now = monotonic_ns();
		pace_disturbed(&e->pacer->pace, now, busy_ns(e, now));
	}
	mutex_unlock(&e->pacer->lock);
	return behind;
}

bool engine_is_busy(struct engine *e)
{
	return compress_is_disturbed(e);
}

struct pacer *pacer_new(void)
{
	struct pacer *p = calloc(1, sizeof(*p));
	unsigned nr = nr_processors();

	if (!p)
		return NULL;
	mutex_init(&p->lock);
	cond_init(&p->more_cond);
	p->nr_spare = nr > 2 ? nr / 2 : 1;
	return p;
}

void pacer_free(struct pacer *p)
{
	if (!p)
		return;
	cond_release(&p->more_cond);
	mutex_release(&p->lock);
	free(p);
}
