/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The data of a pack is divided into groups: the chunks of a frame that begin in the same 64 KiB. A span is a run of
 * groups that one request fetches. It is freed as a whole. Each group of a pack points to its span. Sequential reads
 * create spans of 4 MiB, reads of scattered chunks small ones.
 *
 * States of a span:
 *
 *   being planned ──▶ FETCHING ──▶ READY    in use, or in the idle list, from which the oldest are dropped
 *   by one call            └─────▶ FAILED   removed from its pack; the waiting calls return the error
 *
 * A call plans all spans of its range under the lock, with one request for adjacent groups. It waits until they are
 * ready, and returns references to their memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/mutex.h"
#include "store/tier/reading/tier_cache.h"

#define SPAN_MAX MiB(4)
#define SPARE_MAX 16u
#define BUCKETS 4096u

enum state { NONE, FETCHING, READY, FAILED };

struct link {
	struct link *next, *prev;
};
static inline void link_init(struct link *l)
{
	l->next = l->prev = l;
}

/* Of a job that repeats its request. */
struct retry {
	uint64_t until_ns; /* 0: not begun */
	unsigned pause_ms;
};

struct pack {
	struct tier_job job;
	struct retry retry; /* used by the job */
	struct tier_cache *cache;
	struct tier_footer f; /* constant, like the next three */
	const struct fp_key *key;
	struct tier_object_name name;
	struct pack *next; /* in its bucket */
	/* All below are guarded by the cache's lock; tables are constant while READY and used. */
	enum state state; /* of the tables; never FAILED */
	bool is_again; /* READY, and the job requests them again; it is a user then */
	uint64_t fetched_ns; /* when the last request that succeeded began */
	int error; /* of the last attempt */
	unsigned nr_attempts; /* ended */
	struct tier_tables tables;
	struct span **spans; /* of each group; NULL: none */
	unsigned nr_users; /* spans and calls */
	unsigned nr_sources; /* that refer to it */
	struct link idle; /* READY and without users */
};

struct span {
	struct tier_job job;
	struct retry retry; /* used by the job */
	struct pack *pack;
	uint64_t off, len; /* in the pack's data */
	uint8_t *bytes;
	uint64_t fetched_ns;
	/* Chunks that do not match: ranges of the pack's data. Constant once READY. */
	struct bad {
		uint64_t from, to;
	} * bad;
	size_t nr_bad, bad_room;
	/* All below are guarded by the cache's lock. */
	enum state state;
	int error;
	unsigned nr_users; /* parts of calls, and the running job */
	bool is_listed; /* in pack->spans */
	bool is_ahead; /* not used yet */
	struct link idle; /* READY, listed and without users */
};

struct key {
	struct key *next;
	uint8_t id[TIER_ID_LEN];
	struct fp_key key;
};

struct tier_cache {
	struct tier *tier; /* constant, like the next two */
	struct tier_pool *pool;
	struct tier_cache_conf conf;
	struct mutex lock;
	struct cond changed; /* a span or tables became ready or failed */
	bool stop GUARDED_BY(lock);
	struct pack *buckets[BUCKETS] GUARDED_BY(lock);
	struct key *keys GUARDED_BY(lock);
	struct link idle_spans GUARDED_BY(lock), idle_packs GUARDED_BY(lock); /* the oldest first */
	uint64_t used GUARDED_BY(lock), tables_used GUARDED_BY(lock), ahead GUARDED_BY(lock);
	/* Memory of dropped spans of SPAN_MAX, counted in `used`: new memory costs a page fault for each page. */
	uint8_t *spare[SPARE_MAX] GUARDED_BY(lock);
	unsigned nr_spare GUARDED_BY(lock);
	uint64_t nr_requests GUARDED_BY(lock), nr_bytes GUARDED_BY(lock), nr_damaged GUARDED_BY(lock);
};

struct tier_source {
	struct tier_cache *cache;
	const struct tier_manifest *m;
	const struct key *key;
	struct pack **packs; /* by number in the manifest; NULL: not used yet */
	uint64_t since_ns; /* monotonic; tables requested earlier are requested again */
};

/* The caller of these functions holds the lock of the cache, unless noted otherwise. */

struct group {
	uint32_t number; /* in the pack */
	uint64_t from, to; /* in the pack's data */
};

/* The group of the chunk with byte `pos` of the data. `pos` must be within the data. */
struct group tier_group_at(const struct tier_tables *t, uint64_t pos);
void tier_pack_get(struct pack *p);
void tier_pack_put(struct pack *p); /* it may be freed */
void tier_span_get(struct span *s);
void tier_span_put(struct span *s); /* likewise */
void tier_span_unlist(struct span *s);
void tier_span_mark_used(struct span *s);
void tier_span_run(struct tier_job *job); /* of a span; without the lock */
uint8_t *tier_cache_allocate(struct tier_cache *c, uint64_t bytes); /* of a span; NULL: no memory */
/* Pack number i of the manifest. It is kept until the source is freed. NULL: no memory, or the reference is invalid. */
struct pack *tier_source_pack(struct tier_source *s, uint32_t i);

struct call {
	const struct tier_waiter *w;
	uint64_t until_ns;
	uint64_t since_ns; /* of the source */
};

static inline bool tier_call_must_not_wait(const struct call *call)
{
	return call && call->w && call->w->must_not_wait;
}

int tier_cache_await(struct tier_cache *c, const struct call *call); /* a change, for a while, without the lock */
void tier_pack_start_tables(struct pack *p, enum tier_urgency urgency);
/* Waits until the tables are in memory. On success the caller calls tier_pack_put() later. */
int tier_pack_await_tables(struct pack *p, const struct call *call);
