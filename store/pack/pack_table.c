/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_table.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"

#define NR_SHARDS 16u
#define FIRST_BUCKETS 64u

struct table {
	uint32_t pack, frame, chunk_len; /* constant once in a shard */
	unsigned nr_max;
	_Atomic uint32_t nr_chunks; /* grows while pinned: stored after the fingerprint that it counts */

	/* guarded by the shard's lock */
	struct table *next_in_bucket;
	struct table *prev, *next; /* the clock; only cached ones are on it */
	struct pack_frame *pinned_by;
	unsigned nr_users; /* readers of pinned_by */
	int error; /* < 0: lost */
	bool used; /* since the clock hand passed */
	struct pack_coding coding; /* valid once written */
	uint64_t remote[PACK_GONE_WORDS];

	struct fp fps[]; /* nr_max; if chunk lengths differ, followed by nr_max uint32_t: where each chunk ends */
};

struct shard {
	struct mutex lock; /* leaf */
	struct cond no_user; /* a table that is being unpinned has no readers any more */
	struct table **buckets GUARDED_BY(lock); /* a power of two of them, at least as many as tables */
	size_t nr_buckets GUARDED_BY(lock), nr_tables GUARDED_BY(lock);
	struct table *hand GUARDED_BY(lock); /* NULL: nothing is cached */
	uint64_t memory GUARDED_BY(lock), hits GUARDED_BY(lock), misses GUARDED_BY(lock);
};

struct pack_tables {
	_Atomic uint64_t shard_limit;
	struct shard shards[NR_SHARDS];
};

static uint64_t hash(uint32_t pack, uint32_t frame)
{
	uint64_t h = ((uint64_t)pack << 32 | frame) * 0x9e3779b97f4a7c15;

	return h ^ h >> 32;
}

static struct shard *shard_of(struct pack_tables *ts, uint32_t pack, uint32_t frame)
{
	return &ts->shards[hash(pack, frame) % NR_SHARDS];
}

static size_t table_bytes(uint32_t chunk_len, unsigned nr_max)
{
	return sizeof(struct table) + nr_max * (sizeof(struct fp) + (chunk_len ? 0 : sizeof(uint32_t)));
}

static uint32_t *ends_of(const struct table *t)
{
	return (uint32_t *)(t->fps + t->nr_max);
}

int pack_tables_new(uint64_t limit, struct pack_tables **ret)
{
	struct pack_tables *ts = calloc(1, sizeof(*ts));

	if (!ts)
		return -ENOMEM;
	pack_tables_set_limit(ts, limit);
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *s = &ts->shards[i];

		mutex_init(&s->lock);
		cond_init(&s->no_user);
		s->buckets = calloc(FIRST_BUCKETS, sizeof(*s->buckets));
		s->nr_buckets = FIRST_BUCKETS;
	}
	for (unsigned i = 0; i < NR_SHARDS; i++)
		if (!ts->shards[i].buckets) {
			pack_tables_free(ts);
			return -ENOMEM;
		}
	*ret = ts;
	return 0;
}

void pack_tables_set_limit(struct pack_tables *ts, uint64_t limit)
{
	atomic_store_explicit(&ts->shard_limit, limit / NR_SHARDS, memory_order_relaxed);
}

void pack_tables_free(struct pack_tables *ts)
{
	if (!ts)
		return;
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *s = &ts->shards[i];

		for (size_t b = 0; s->buckets && b < s->nr_buckets; b++)
			for (struct table *t = s->buckets[b], *next; t; t = next) {
				next = t->next_in_bucket;
				free(t);
			}
		free(s->buckets);
		cond_release(&s->no_user);
		mutex_release(&s->lock);
	}
	free(ts);
}

static struct table **bucket_of(struct shard *s, uint32_t pack, uint32_t frame) REQUIRES(s->lock)
{
	return &s->buckets[hash(pack, frame) / NR_SHARDS & (s->nr_buckets - 1)];
}

static struct table *shard_find(struct shard *s, uint32_t pack, uint32_t frame) REQUIRES(s->lock)
{
	struct table *t = *bucket_of(s, pack, frame);

	while (t && (t->pack != pack || t->frame != frame))
		t = t->next_in_bucket;
	return t;
}

/* Without memory the chains just grow longer. */
static void shard_grow(struct shard *s) REQUIRES(s->lock)
{
	size_t nr_old = s->nr_buckets;
	struct table **old = s->buckets, **bucket;

	s->buckets = calloc(2 * nr_old, sizeof(*s->buckets));
	if (!s->buckets) {
		s->buckets = old;
		return;
	}
	s->nr_buckets = 2 * nr_old;
	for (size_t b = 0; b < nr_old; b++)
		for (struct table *t = old[b], *next; t; t = next) {
			next = t->next_in_bucket;
			bucket = bucket_of(s, t->pack, t->frame);
			t->next_in_bucket = *bucket;
			*bucket = t;
		}
	free(old);
}

static void shard_add(struct shard *s, struct table *t) REQUIRES(s->lock)
{
	struct table **bucket;

	if (s->nr_tables >= s->nr_buckets)
		shard_grow(s);
	bucket = bucket_of(s, t->pack, t->frame);
	t->next_in_bucket = *bucket;
	*bucket = t;
	s->nr_tables++;
	s->memory += table_bytes(t->chunk_len, t->nr_max);
}

static void shard_remove(struct shard *s, struct table *t) REQUIRES(s->lock)
{
	struct table **at = bucket_of(s, t->pack, t->frame);

	while (*at != t)
		at = &(*at)->next_in_bucket;
	*at = t->next_in_bucket;
	s->nr_tables--;
	s->memory -= table_bytes(t->chunk_len, t->nr_max);
}

/* New tables are inserted right behind the hand, which reaches them last. */
static void clock_add(struct shard *s, struct table *t) REQUIRES(s->lock)
{
	if (!s->hand) {
		t->prev = t->next = t;
		s->hand = t;
		return;
	}
	t->next = s->hand;
	t->prev = s->hand->prev;
	t->prev->next = t->next->prev = t;
}

static void clock_remove(struct shard *s, struct table *t) REQUIRES(s->lock)
{
	if (s->hand == t)
		s->hand = t->next == t ? NULL : t->next;
	t->prev->next = t->next;
	t->next->prev = t->prev;
}

static void shard_evict(struct shard *s, uint64_t limit, const struct table *keep) REQUIRES(s->lock)
{
	while (s->memory > limit && s->hand && !(s->hand == keep && keep->next == keep)) {
		struct table *t = s->hand;

		s->hand = t->next;
		if (t == keep)
			continue;
		if (t->used) {
			t->used = false;
			continue;
		}
		clock_remove(s, t);
		shard_remove(s, t);
		free(t);
	}
}

struct table *table_new(uint32_t chunk_len)
{
	unsigned nr_max = pack_nr_chunks_max(chunk_len);
	struct table *t = calloc(1, table_bytes(chunk_len, nr_max));

	if (!t)
		return NULL;
	t->chunk_len = chunk_len;
	t->nr_max = nr_max;
	return t;
}

void table_free(struct table *t)
{
	free(t);
}

void pack_tables_pin(struct pack_tables *ts, struct table *t, uint32_t pack, uint32_t frame, struct pack_frame *f)
{
	struct shard *s = shard_of(ts, pack, frame);

	t->pack = pack;
	t->frame = frame;
	t->pinned_by = f;
	mutex_lock(&s->lock);
	assert(!shard_find(s, pack, frame)); /* places are never reused */
	shard_add(s, t);
	shard_evict(s, ts->shard_limit, NULL);
	mutex_unlock(&s->lock);
}

uint32_t table_nr_chunks(const struct table *t)
{
	return atomic_load_explicit(&t->nr_chunks, memory_order_acquire);
}

struct fp table_fp(const struct table *t, uint32_t i)
{
	return t->fps[i];
}

struct pack_cuts table_cuts(const struct table *t)
{
	return (struct pack_cuts){ t->chunk_len, table_nr_chunks(t), ends_of(t) };
}

uint32_t table_total(const struct table *t)
{
	struct pack_cuts cuts = table_cuts(t);

	return pack_cut_total(&cuts);
}

void table_add(struct table *t, struct fp fp, uint32_t len)
{
	uint32_t n = atomic_load_explicit(&t->nr_chunks, memory_order_relaxed);

	assert(n < t->nr_max);
	t->fps[n] = fp;
	if (t->chunk_len == 0)
		ends_of(t)[n] = table_total(t) + len;
	atomic_store_explicit(&t->nr_chunks, n + 1, memory_order_release);
}

void table_copy(const struct table *t, struct pack_table *ret)
{
	ret->chunk_len = t->chunk_len;
	ret->nr_chunks = table_nr_chunks(t);
	ret->coding = (struct pack_coding){ 0 };
	memset(ret->remote, 0, sizeof(ret->remote));
	memcpy(ret->fps, t->fps, ret->nr_chunks * sizeof(*t->fps));
	if (t->chunk_len == 0)
		memcpy(ret->ends, ends_of(t), ret->nr_chunks * sizeof(*ret->ends));
}

static void unpin(struct shard *s, struct table *t) REQUIRES(s->lock)
{
	assert(t->pinned_by);
	t->pinned_by = NULL;
	while (t->nr_users > 0)
		cond_wait(&s->no_user, &s->lock);
}

void pack_tables_written(struct pack_tables *ts, struct table *t, const struct pack_coding *coding,
			 const uint64_t remote[PACK_GONE_WORDS])
{
	struct shard *s = shard_of(ts, t->pack, t->frame);

	mutex_lock(&s->lock);
	t->coding = *coding; /* first: unpinning may drop the lock */
	memcpy(t->remote, remote, sizeof(t->remote));
	unpin(s, t);
	clock_add(s, t);
	shard_evict(s, ts->shard_limit, NULL);
	mutex_unlock(&s->lock);
}

void pack_tables_lost(struct pack_tables *ts, struct table *t, int error)
{
	struct shard *s = shard_of(ts, t->pack, t->frame);
	struct table *small;

	assert(error < 0);
	mutex_lock(&s->lock);
	t->error = error; /* first: unpinning may drop the lock */
	unpin(s, t);
	/* Its fingerprints are void; only the place is kept. */
	shard_remove(s, t);
	t->nr_max = 0;
	atomic_store_explicit(&t->nr_chunks, 0, memory_order_relaxed);
	small = realloc(t, table_bytes(t->chunk_len, 0));
	shard_add(s, small ? small : t);
	mutex_unlock(&s->lock);
}

void pack_tables_drop(struct pack_tables *ts, struct table *t)
{
	struct shard *s = shard_of(ts, t->pack, t->frame);

	mutex_lock(&s->lock);
	unpin(s, t);
	shard_remove(s, t);
	mutex_unlock(&s->lock);
	free(t);
}

static void view_fill(const struct table *t, uint32_t from, uint32_t len, struct table_view *ret)
{
	struct pack_cuts cuts = table_cuts(t);
	uint32_t first = pack_cut_at(&cuts, from), end = len > 0 ? pack_cut_at(&cuts, from + len - 1) + 1 : 0;

	if (pack_has_bases(&t->coding)) { /* chunks of bases are verified, too */
		first = 0;
		end = cuts.nr_chunks;
	}
	ret->chunk_len = t->chunk_len;
	ret->nr_chunks = cuts.nr_chunks;
	if (t->chunk_len == 0)
		memcpy(ret->ends, cuts.ends, cuts.nr_chunks * sizeof(*cuts.ends));
	if (t->coding.codec == PACK_CODEC_NONE)
		ret->coding.codec = PACK_CODEC_NONE;
	else
		ret->coding = t->coding;
	memcpy(ret->remote, t->remote, sizeof(ret->remote));
	ret->error = t->error;
	ret->frame = NULL;
	ret->table = NULL;
	end = MIN(end, ret->nr_chunks);
	if (first < end)
		memcpy(&ret->fps[first], &t->fps[first], (end - first) * sizeof(*t->fps));
}

bool pack_tables_get(struct pack_tables *ts, uint32_t pack, uint32_t frame, uint32_t from, uint32_t len,
		     struct table_view *ret)
{
	struct shard *s = shard_of(ts, pack, frame);
	struct table *t;

	mutex_lock(&s->lock);
	t = shard_find(s, pack, frame);
	if (t) {
		s->hits++;
		t->used = true;
		view_fill(t, from, len, ret);
		if (t->pinned_by) {
			ret->frame = t->pinned_by;
			ret->table = t;
			t->nr_users++;
		}
	} else {
		s->misses++;
	}
	mutex_unlock(&s->lock);
	return t != NULL;
}

void pack_tables_put(struct pack_tables *ts, struct table_view *v)
{
	struct table *t = v->table;
	struct shard *s;

	if (!t)
		return;
	s = shard_of(ts, t->pack, t->frame);
	mutex_lock(&s->lock);
	if (--t->nr_users == 0)
		cond_broadcast(&s->no_user);
	mutex_unlock(&s->lock);
	v->frame = NULL;
	v->table = NULL;
}

void pack_tables_insert(struct pack_tables *ts, uint32_t pack, uint32_t frame, const struct pack_table *from)
{
	struct table *t = malloc(table_bytes(from->chunk_len, from->nr_chunks));
	struct shard *s = shard_of(ts, pack, frame);

	if (!t)
		return;
	*t = (struct table){ .pack = pack, .frame = frame, .chunk_len = from->chunk_len, .nr_max = from->nr_chunks,
			       .coding = from->coding };
	atomic_store_explicit(&t->nr_chunks, from->nr_chunks, memory_order_relaxed);
	memcpy(t->fps, from->fps, from->nr_chunks * sizeof(*t->fps));
	memcpy(t->remote, from->remote, sizeof(t->remote));
	if (t->chunk_len == 0)
		memcpy(ends_of(t), from->ends, from->nr_chunks * sizeof(*from->ends));
	mutex_lock(&s->lock);
	if (!shard_find(s, pack, frame)) { /* else another reader was faster */
		shard_add(s, t);
		clock_add(s, t);
		shard_evict(s, ts->shard_limit, t);
		t = NULL;
	}
	mutex_unlock(&s->lock);
	free(t);
}

void pack_tables_forget(struct pack_tables *ts, uint32_t pack, uint32_t frame)
{
	struct shard *s = shard_of(ts, pack, frame);
	struct table *t;

	mutex_lock(&s->lock);
	t = shard_find(s, pack, frame);
	if (t && !t->pinned_by && t->nr_users == 0 && t->error == 0) {
		clock_remove(s, t);
		shard_remove(s, t);
	} else {
		t = NULL;
	}
	mutex_unlock(&s->lock);
	free(t);
}

void pack_tables_stats(struct pack_tables *ts, struct pack_tables_stats *ret)
{
	struct pack_tables_stats sum = { 0 };

	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *s = &ts->shards[i];

		mutex_lock(&s->lock);
		sum.memory += s->memory;
		sum.hits += s->hits;
		sum.misses += s->misses;
		mutex_unlock(&s->lock);
	}
	*ret = sum;
}
