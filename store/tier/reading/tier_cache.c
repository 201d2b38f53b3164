/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/reading/tier_cache.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/reading/tier_cache_state.h"
#include "store/tier/tier.h"

#define GROUP_BYTES ((uint32_t)KiB(64))
#define GROUPS (PACK_FRAME_BYTES / GROUP_BYTES) /* of a frame */
#define HUGE_PAGE ((size_t)MiB(2))
#define CHUNKS_AT_ONCE 64u
#define PAUSE_FIRST_MS 100u
#define PAUSE_MAX_MS 5000u

/* The caller of a function with a pack, a span or a plan holds the cache's lock, unless noted otherwise. */

/* --- idle lists --- */

static void link_remove(struct link *l)
{
	l->next->prev = l->prev;
	l->prev->next = l->next;
	link_init(l);
}

static void link_append(struct link *list, struct link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}

/* --- the groups of a pack --- */

static const struct tier_frame *frame_at(const struct tier_tables *t, uint64_t pos)
{
	uint32_t low = 0, high = t->nr_frames;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (t->frames[middle].off <= pos)
			low = middle;
		else
			high = middle;
	}
	return &t->frames[low];
}

/* The first chunk that begins at or after `in`. */
static uint32_t chunk_from(const struct pack_cuts *cuts, uint32_t in)
{
	uint32_t i = pack_cut_at(cuts, in);

	if (i < cuts->nr_chunks && pack_cut_start(cuts, i) < in)
		i++;
	return MIN(i, cuts->nr_chunks);
}

/* The group of the chunk with byte `pos` of the data. `pos` must be within the data. */
struct group tier_group_at(const struct tier_tables *t, uint64_t pos)
{
	const struct tier_frame *f = frame_at(t, pos);
	struct pack_cuts cuts = pack_table_cuts(&f->table);
	uint32_t chunk = pack_cut_at(&cuts, (uint32_t)(pos - f->off));
	uint32_t i = pack_cut_start(&cuts, chunk) / GROUP_BYTES;

	return (struct group){
		.number = (uint32_t)(f - t->frames) * GROUPS + i,
		.from = f->off + pack_cut_start(&cuts, chunk_from(&cuts, i * GROUP_BYTES)),
		.to = f->off + pack_cut_start(&cuts, chunk_from(&cuts, (i + 1) * GROUP_BYTES)),
	};
}

/* --- memory --- */

static uint64_t tables_bytes(const struct pack *p)
{
	return p->f.nr_frames * (sizeof(struct tier_frame) + GROUPS * sizeof(struct span *));
}

static unsigned bucket_of(const uint8_t id[TIER_ID_LEN])
{
	return (unsigned)(id[0] | id[1] << 8) % BUCKETS; /* a digest */
}

static void pack_free_unused(struct pack *p)
{
	struct pack **at = &p->cache->buckets[bucket_of(p->f.id)];

	if (p->nr_sources > 0 || p->nr_users > 0 || p->state != NONE)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

/* It may be freed. */
static void pack_drop_tables(struct pack *p)
{
	link_remove(&p->idle);
	tier_tables_release(&p->tables);
	free(TAKE(p->spans));
	p->state = NONE;
	p->cache->used -= tables_bytes(p);
	p->cache->tables_used -= tables_bytes(p);
	pack_free_unused(p);
}

void tier_pack_put(struct pack *p)
{
	if (--p->nr_users == 0 && p->state == READY)
		link_append(&p->cache->idle_packs, &p->idle);
	else
		pack_free_unused(p);
}

void tier_pack_get(struct pack *p)
{
	if (p->nr_users++ == 0)
		link_remove(&p->idle);
}

void tier_span_mark_used(struct span *s)
{
	if (s->is_ahead)
		s->pack->cache->ahead -= s->len;
	s->is_ahead = false;
}

static void span_free(struct span *s)
{
	struct tier_cache *c = s->pack->cache;

	tier_span_mark_used(s);
	link_remove(&s->idle);
	if (s->bytes && s->len == SPAN_MAX && c->nr_spare < SPARE_MAX) {
		c->spare[c->nr_spare++] = s->bytes;
	} else if (s->bytes) {
		c->used -= s->len;
		free(s->bytes);
	}
	tier_pack_put(s->pack);
	free(s->bad);
	free(s);
}

void tier_span_unlist(struct span *s)
{
	uint64_t pos = s->off;

	while (s->is_listed && pos < s->off + s->len) {
		struct group g = tier_group_at(&s->pack->tables, pos);

		assert(s->pack->spans[g.number] == s);
		s->pack->spans[g.number] = NULL;
		pos = g.to;
	}
	s->is_listed = false;
}

void tier_span_put(struct span *s)
{
	s->nr_users--;
	if (s->nr_users == 1 && s->state == FETCHING && tier_pool_withdraw(s->pack->cache->pool, &s->job)) {
		tier_span_unlist(s); /* all calls that wait for it were interrupted before its request began */
		s->nr_users--;
	}
	if (s->nr_users > 0)
		return;
	if (s->state == READY && s->is_listed)
		link_append(&s->pack->cache->idle_spans, &s->idle);
	else
		span_free(s);
}

void tier_span_get(struct span *s)
{
	if (s->nr_users++ == 0)
		link_remove(&s->idle);
}

static bool drop_span(struct tier_cache *c)
{
	struct span *s = container_of(c->idle_spans.next, struct span, idle);

	if (c->idle_spans.next == &c->idle_spans)
		return false;
	tier_span_unlist(s);
	span_free(s);
	return true;
}

static bool drop_tables(struct tier_cache *c)
{
	if (c->idle_packs.next == &c->idle_packs)
		return false;
	pack_drop_tables(container_of(c->idle_packs.next, struct pack, idle));
	return true;
}

static void make_room(struct tier_cache *c, uint64_t bytes)
{
	assert(mutex_held(&c->lock));
	while (c->used + bytes > c->conf.bytes && !(bytes == SPAN_MAX && c->nr_spare > 0)) {
		if (c->nr_spare > 0) {
			free(c->spare[--c->nr_spare]);
			c->used -= SPAN_MAX;
			continue;
		}
		if (c->tables_used > c->conf.bytes / 4 && drop_tables(c))
			continue;
		if (!drop_span(c) && !drop_tables(c))
			break; /* all of it is in use */
	}
}

/* Huge pages: 2 page faults instead of 1024, and the kernel copies replies from them in large pieces. */
static uint8_t *allocate_span(uint64_t bytes)
{
	uint8_t *p = bytes == SPAN_MAX ? aligned_alloc(HUGE_PAGE, bytes) : malloc(bytes);

	if (p && bytes == SPAN_MAX)
		madvise(p, bytes, MADV_HUGEPAGE); /* a failure costs speed only */
	return p;
}

uint8_t *tier_cache_allocate(struct tier_cache *c, uint64_t bytes)
{
	uint8_t *p;

	make_room(c, bytes);
	if (bytes == SPAN_MAX && c->nr_spare > 0)
		return c->spare[--c->nr_spare];
	p = allocate_span(bytes);
	c->used += p ? bytes : 0;
	return p;
}

/* --- requests, on a thread of the pool, without the lock --- */

/* true: a retry cannot change the result. */
static bool is_final(int r)
{
	return r == 0 || r == -ENOENT || r == -EACCES || r == -EPERM || r == -EINVAL || r == -EBADMSG ||
	       r == -EOPNOTSUPP;
}

/* Reads up to `len` bytes of an object. */
static int read_object(struct tier_cache *c, const char *name, uint64_t off, void *buf, size_t len, size_t *ret_got)
{
	struct tier_request q = { .op = TIER_GET, .name = name, .off = off, .buf = buf, .len = len };
	int r = tier_call(c->tier, &q);

	mutex_lock(&c->lock);
	c->nr_requests++;
	c->nr_bytes += r == 0 ? q.got : 0;
	mutex_unlock(&c->lock);
	*ret_got = q.got;
	return r;
}

/*
 * Submits the job again, with the lock. false: it has ended, with result `r`. A request that fails occupies no thread
 * between attempts, and is repeated while calls wait for it: requests to other objects may succeed.
 */
static bool repeat_job(struct tier_cache *c, struct tier_job *job, struct retry *retry, int r, bool is_awaited)
{
	uint64_t now = monotonic_ns();
	unsigned pause_ms = retry->until_ns == 0 ? PAUSE_FIRST_MS : retry->pause_ms;

	if (retry->until_ns == 0)
		retry->until_ns = now + c->conf.timeout_ns;
	if (is_final(r) || !is_awaited || tier_pool_is_stopping(c->pool) ||
	    now + pause_ms * UINT64_C(1000000) > retry->until_ns) {
		*retry = (struct retry){ 0 };
		return false;
	}
	retry->pause_ms = MIN(2 * pause_ms, PAUSE_MAX_MS);
	tier_pool_submit_later(c->pool, job, pause_ms);
	return true;
}

static bool is_uncompressed(const struct tier_tables *t)
{
	for (uint32_t i = 0; i < t->nr_frames; i++)
		if (t->frames[i].table.coding.codec != PACK_CODEC_NONE)
			return false;
	return true;
}

static int fetch_tables(struct pack *p, struct tier_tables *ret)
{
	size_t len = (size_t)p->f.nr_frames * PACK_BLOCK, got;
	_cleanup_(freep) uint8_t *bytes = malloc(len);
	int r = bytes ? read_object(p->cache, p->name.s, p->f.data_len, bytes, len, &got) : -ENOMEM;

	if (r == 0)
		r = got < len ? -EBADMSG : tier_tables_decode(bytes, len, &p->f, p->key, ret);
	if (r == 0 && !is_uncompressed(ret)) {
		tier_tables_release(ret);
		return log_errno(-EOPNOTSUPP, "tier %s: %s: cannot read compressed frames: not supported by this version",
				 tier_where(p->cache->tier), p->name.s);
	}
	return r;
}

static void end_tables(struct pack *p, bool is_ready, const struct tier_tables *tables, struct span ***spans)
{
	struct tier_cache *c = p->cache;

	p->state = is_ready ? READY : NONE;
	if (!is_ready) {
		pack_free_unused(p);
		return;
	}
	p->tables = *tables;
	p->spans = TAKE(*spans);
	c->used += tables_bytes(p);
	c->tables_used += tables_bytes(p);
	if (p->nr_users == 0)
		link_append(&c->idle_packs, &p->idle);
	make_room(c, 0);
}

/* The tables are those in memory, because the name of the pack has their digest. */
static void end_again(struct pack *p, struct tier_tables *tables)
{
	tier_tables_release(tables);
	p->is_again = false;
	tier_pack_put(p);
}

static void run_tables(struct tier_job *job)
{
	struct pack *p = container_of(job, struct pack, job);
	struct span **spans = calloc((size_t)p->f.nr_frames * GROUPS, sizeof(struct span *));
	struct tier_tables tables = { 0 };
	struct tier_cache *c = p->cache;
	uint64_t began_ns = monotonic_ns();
	int r = spans ? fetch_tables(p, &tables) : -ENOMEM;

	mutex_lock(&c->lock);
	if (repeat_job(c, job, &p->retry, r, p->nr_users > p->is_again)) {
		mutex_unlock(&c->lock);
		free(spans);
		return;
	}
	p->fetched_ns = r == 0 ? began_ns : p->fetched_ns;
	p->error = r;
	p->nr_attempts++;
	if (p->is_again)
		end_again(p, &tables);
	else
		end_tables(p, r == 0, &tables, &spans);
	cond_broadcast(&c->changed);
	mutex_unlock(&c->lock);
	free(spans);
}

static int add_bad(struct span *s, uint64_t from, uint64_t to)
{
	int r;

	if (s->nr_bad > 0 && s->bad[s->nr_bad - 1].to == from) {
		s->bad[s->nr_bad - 1].to = to;
		return 0;
	}
	r = list_grow(&s->bad, s->nr_bad, &s->bad_room, sizeof(*s->bad));
	if (r == 0)
		s->bad[s->nr_bad++] = (struct bad){ from, to };
	return r;
}

/* Verifies the chunks of one frame, beginning with the one at `pos`. Returns their end. */
static uint64_t check_frame(struct span *s, uint64_t pos, uint64_t got, int *ret_error)
{
	const struct tier_frame *f = frame_at(&s->pack->tables, pos);
	struct pack_cuts cuts = pack_table_cuts(&f->table);
	uint32_t first = pack_cut_at(&cuts, (uint32_t)(pos - f->off));
	uint32_t end = chunk_from(&cuts, (uint32_t)MIN(s->off + s->len - f->off, (uint64_t)PACK_FRAME_BYTES));
	struct fp fps[CHUNKS_AT_ONCE];

	for (uint32_t i = first; i < end && *ret_error == 0;) {
		uint32_t nr = cuts.chunk_len ? MIN(end - i, CHUNKS_AT_ONCE) : 1, len = pack_cut_len(&cuts, i);
		uint64_t from = f->off + pack_cut_start(&cuts, i);
		const uint8_t *p = s->bytes + (from - s->off);
		bool is_there = from + (uint64_t)nr * len <= s->off + got;

		if (is_there)
			fp_of_each(s->pack->key, p, len, nr, fps);
		for (uint32_t k = 0; k < nr && *ret_error == 0; k++, from += len, p += len)
			if ((!is_there && from + len > s->off + got) ||
			    ((!is_there || !fp_equal(fps[k], f->table.fps[i + k])) &&
			     !fp_is_of(s->pack->key, f->table.fps[i + k], p, len)))
				*ret_error = add_bad(s, from, from + len);
		i += nr;
	}
	return f->off + pack_cut_start(&cuts, end);
}

void tier_span_run(struct tier_job *job)
{
	struct span *s = container_of(job, struct span, job);
	struct tier_cache *c = s->pack->cache;
	size_t got = 0;
	int r;

	s->nr_bad = 0;
	s->fetched_ns = monotonic_ns(); /* not later than the request was sent */
	r = read_object(c, s->pack->name.s, s->off, s->bytes, s->len, &got);
	for (uint64_t pos = s->off; r == 0 && pos < s->off + s->len;)
		pos = check_frame(s, pos, got, &r);
	mutex_lock(&c->lock);
	if (repeat_job(c, job, &s->retry, r, s->nr_users > 1)) {
		mutex_unlock(&c->lock);
		return;
	}
	s->state = r == 0 ? READY : FAILED;
	s->error = r;
	c->nr_damaged += s->nr_bad;
	if (r < 0)
		tier_span_unlist(s);
	tier_span_put(s);
	cond_broadcast(&c->changed);
	mutex_unlock(&c->lock);
}

/* --- waiting --- */

/* Waits for a while. The lock is released meanwhile. */
int tier_cache_await(struct tier_cache *c, const struct call *call) NO_THREAD_SAFETY_ANALYSIS
{
	const struct tier_waiter *w = call->w;
	uint64_t now = monotonic_ns();
	bool is_interrupted = false;

	if (c->stop)
		return -EIO;
	if (now >= call->until_ns)
		return -ETIMEDOUT;
	cond_wait_for(&c->changed, &c->lock, MIN(call->until_ns - now, TIER_LOOK_NS));
	if (w && w->is_interrupted) {
		mutex_unlock(&c->lock);
		is_interrupted = w->is_interrupted(w->userdata);
		mutex_lock(&c->lock);
	}
	return is_interrupted ? -EINTR : 0;
}

void tier_pack_start_tables(struct pack *p, enum tier_urgency urgency)
{
	if (p->state != NONE)
		return;
	p->state = FETCHING;
	tier_pool_submit(p->cache->pool, &p->job, urgency);
}

static void start_again(struct pack *p)
{
	if (p->is_again)
		return;
	p->is_again = true;
	tier_pack_get(p);
	tier_pool_submit(p->cache->pool, &p->job, TIER_URGENT);
}

/* Waits until the tables are in memory. On success the caller calls tier_pack_put() later. */
int tier_pack_await_tables(struct pack *p, const struct call *call)
{
	unsigned nr_attempts = p->nr_attempts;
	int r = 0;

	tier_pack_get(p);
	while (r == 0 && (p->state != READY || p->fetched_ns < call->since_ns)) {
		if (tier_call_must_not_wait(call)) {
			r = -EINPROGRESS;
			break;
		}
		if (p->state != FETCHING && !p->is_again && p->nr_attempts != nr_attempts && p->error < 0) {
			r = p->error;
			break;
		}
		if (p->state == READY)
			start_again(p);
		else
			tier_pack_start_tables(p, TIER_URGENT);
		r = tier_cache_await(p->cache, call);
	}
	if (r < 0)
		tier_pack_put(p);
	return r;
}

/* --- sources --- */

/* Pack number i of the manifest. It is kept until the source is freed. NULL: no memory, or the reference is invalid. */
struct pack *tier_source_pack(struct tier_source *s, uint32_t i)
{
	struct tier_cache *c = s->cache;
	struct tier_footer f;
	struct pack *p;

	if (s->packs[i])
		return s->packs[i];
	if (tier_manifest_pack(s->m, i, &f) < 0)
		return NULL;
	for (p = c->buckets[bucket_of(f.id)]; p; p = p->next)
		if (memcmp(p->f.id, f.id, sizeof(f.id)) == 0 && p->key == &s->key->key && p->f.data_len == f.data_len &&
		    p->f.nr_frames == f.nr_frames) {
			p->nr_sources++;
			return s->packs[i] = p;
		}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->job.run = run_tables;
	p->cache = c;
	p->f = f;
	p->key = &s->key->key;
	p->name = tier_pack_name(f.id);
	p->nr_sources = 1;
	link_init(&p->idle);
	p->next = c->buckets[bucket_of(f.id)];
	c->buckets[bucket_of(f.id)] = p;
	return s->packs[i] = p;
}

int tier_source_new(struct tier_cache *c, const struct tier_manifest *m, const struct fp_key *key,
		    struct tier_source **ret)
{
	struct tier_source *s = calloc(1, sizeof(*s));
	struct key *k;

	if (!s)
		return -ENOMEM;
	s->cache = c;
	s->m = m;
	s->packs = calloc(MAX(m->nr_packs, 1u), sizeof(struct pack *));
	mutex_lock(&c->lock);
	for (k = c->keys; k && memcmp(k->id, m->key_id, sizeof(k->id)) != 0; k = k->next)
		;
	if (!k && (k = calloc(1, sizeof(*k)))) {
		memcpy(k->id, m->key_id, sizeof(k->id));
		k->key = *key;
		k->next = c->keys;
		c->keys = k;
	}
	mutex_unlock(&c->lock);
	s->key = k;
	if (s->packs && s->key) {
		*ret = s;
		return 0;
	}
	tier_source_free(s);
	return -ENOMEM;
}

void tier_source_free(struct tier_source *s)
{
	if (!s)
		return;
	mutex_lock(&s->cache->lock);
	for (uint32_t i = 0; s->packs && i < s->m->nr_packs; i++)
		if (s->packs[i]) {
			s->packs[i]->nr_sources--;
			pack_free_unused(s->packs[i]);
		}
	mutex_unlock(&s->cache->lock);
	free(s->packs);
	free(s);
}

void tier_source_read_again(struct tier_source *s)
{
	s->since_ns = monotonic_ns();
}

const struct fp_key *tier_source_key(const struct tier_source *s)
{
	return &s->key->key;
}

int tier_source_tables(struct tier_source *s, uint32_t i, const struct tier_waiter *w, const struct tier_tables **ret)
{
	struct tier_cache *c = s->cache;
	const struct call call = { w, monotonic_ns() + c->conf.timeout_ns, s->since_ns };
	struct pack *p;
	int r;

	mutex_lock(&c->lock);
	p = tier_source_pack(s, i);
	r = p ? tier_pack_await_tables(p, &call) : -ENOMEM;
	if (r == 0)
		*ret = &p->tables;
	mutex_unlock(&c->lock);
	return r;
}

void tier_source_tables_put(struct tier_source *s, uint32_t i)
{
	mutex_lock(&s->cache->lock);
	tier_pack_put(s->packs[i]);
	mutex_unlock(&s->cache->lock);
}

/* --- the whole --- */

int tier_cache_new(struct tier *t, struct tier_pool *pool, const struct tier_cache_conf *conf, struct tier_cache **ret)
{
	struct tier_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->tier = t;
	c->pool = pool;
	c->conf = *conf;
	mutex_init(&c->lock);
	cond_init(&c->changed);
	link_init(&c->idle_spans);
	link_init(&c->idle_packs);
	*ret = c;
	return 0;
}

void tier_cache_stop(struct tier_cache *c)
{
	mutex_lock(&c->lock);
	c->stop = true;
	cond_broadcast(&c->changed);
	mutex_unlock(&c->lock);
}

void tier_cache_figures(struct tier_cache *c, struct tier_cache_figures *ret)
{
	mutex_lock(&c->lock);
	*ret = (struct tier_cache_figures){
		.requests = c->nr_requests,
		.bytes = c->nr_bytes,
		.memory = c->used,
		.memory_max = c->conf.bytes,
		.damaged = c->nr_damaged,
	};
	mutex_unlock(&c->lock);
}

/* Frees spans whose jobs were dropped: only their packs refer to them. */
static void free_spans(struct pack *p)
{
	for (uint32_t i = 0; p->spans && i < p->f.nr_frames * GROUPS; i++) {
		struct span *s = p->spans[i];

		if (!s)
			continue;
		tier_span_unlist(s);
		span_free(s);
	}
}

void tier_cache_free(struct tier_cache *c)
{
	if (!c)
		return;
	mutex_lock(&c->lock);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (c->buckets[i]) {
			struct pack *p = c->buckets[i];

			c->buckets[i] = p->next;
			free_spans(p);
			link_remove(&p->idle); /* the list has other packs */
			tier_tables_release(&p->tables);
			free(p->spans);
			free(p);
		}
	mutex_unlock(&c->lock);
	while (c->nr_spare > 0)
		free(c->spare[--c->nr_spare]);
	while (c->keys) {
		struct key *k = c->keys;

		c->keys = k->next;
		free(k);
	}
	mutex_release(&c->lock);
	cond_release(&c->changed);
	free(c);
}
