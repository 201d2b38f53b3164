/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reads of files: which spans they need (tier_cache_state.h), and which they will need.
 *
 * Reading ahead begins with the second read in order. The window doubles from 8 to 64 MiB, so that a back end with a high
 * latency has many requests in flight. Unused data that was read ahead takes at most half of the memory.
 */
#include "store/tier/reading/tier_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/tier/reading/tier_cache_state.h"

#define GAP_MAX KiB(128) /* fetched without need, to merge two requests */
#define WINDOW_FIRST MiB(8)
#define WINDOW_MAX MiB(64)
#define IN_ORDER MiB(4) /* requests of one reader may be reordered by this much */

static const uint8_t zeros[TIER_READ_MAX];

/* --- planning --- */

struct plan {
	struct tier_cache *cache;
	const struct tier_range *range;
	const struct call *call; /* NULL: reads ahead, waits for nothing */
	struct tier_bytes *bytes; /* NULL: reads ahead */
	struct span *open; /* not started yet */
	struct pack *culprit; /* on failure */
	uint64_t end; /* of the planned part of the file */
};

/* Starts the request for the open span. */
static int plan_close(struct plan *p)
{
	struct span *s = TAKE(p->open);

	if (!s)
		return 0;
	s->bytes = tier_cache_allocate(p->cache, s->len);
	if (!s->bytes) {
		s->state = FAILED;
		s->error = -ENOMEM;
		tier_span_unlist(s);
		tier_span_put(s);
		return -ENOMEM;
	}
	s->is_ahead = !p->bytes;
	p->cache->ahead += s->is_ahead ? s->len : 0;
	s->state = FETCHING;
	tier_pool_submit(p->cache->pool, &s->job, p->bytes ? TIER_URGENT : TIER_AHEAD);
	return 0;
}

/* true: no span has data between the open span and `to`. */
static bool gap_is_free(const struct plan *p, const struct pack *pack, uint64_t to)
{
	uint64_t pos = p->open->off + p->open->len;

	while (pos < to) {
		struct group g = tier_group_at(&pack->tables, pos);

		if (pack->spans[g.number])
			return false;
		pos = g.to;
	}
	return true;
}

/* Adds the group to the open span, or to a new one. */
static int plan_group(struct plan *p, struct pack *pack, const struct group *g, struct span **ret)
{
	struct span *s = p->open;
	uint64_t pos;
	int r;

	if (!s || s->pack != pack || g->from < s->off + s->len || g->from - (s->off + s->len) > GAP_MAX ||
	    g->to - s->off > SPAN_MAX || !gap_is_free(p, pack, g->from)) {
		r = plan_close(p);
		if (r < 0)
			return r;
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->job.run = tier_span_run;
		s->pack = pack;
		s->off = g->from;
		s->nr_users = 1; /* the job */
		s->is_listed = true;
		link_init(&s->idle);
		tier_pack_get(pack);
		p->open = s;
	}
	for (pos = s->off + s->len; pos < g->to;) {
		struct group next = tier_group_at(&pack->tables, pos);

		pack->spans[next.number] = s;
		pos = next.to;
	}
	s->len = g->to - s->off;
	*ret = s;
	return 0;
}

static int add_part(struct tier_bytes *b, struct span *s, uint64_t pos, size_t len)
{
	struct tier_part *last = b->nr_parts > 0 ? &b->parts[b->nr_parts - 1] : NULL;
	int r;

	if (last && last->span == s && (!s || last->pos + last->len == pos)) {
		last->len += len;
		return 0;
	}
	r = list_grow(&b->parts, b->nr_parts, &b->room, sizeof(*b->parts));
	if (r == 0)
		b->parts[b->nr_parts++] = (struct tier_part){ s, pos, len };
	return r;
}

static bool span_is_bad(const struct span *s, uint64_t pos, uint64_t len)
{
	for (size_t i = 0; i < s->nr_bad; i++)
		if (s->bad[i].from < pos + len && pos < s->bad[i].to)
			return true;
	return false;
}

static int plan_data(struct plan *p, struct pack *pack, uint64_t pos, uint64_t len)
{
	while (len > 0) {
		struct group g = tier_group_at(&pack->tables, pos);
		size_t take = (size_t)MIN(g.to - pos, len), nr = p->bytes ? p->bytes->nr_parts : 0;
		struct span *s = pack->spans[g.number];
		int r = 0;

		assert(!s || s == p->open || s->state == FETCHING || s->state == READY);
		/* damaged data may have been repaired since */
		if (s && s->state == READY && (s->fetched_ns < p->range->since_ns || span_is_bad(s, pos, take))) {
			tier_span_get(s);
			tier_span_unlist(s);
			tier_span_put(s);
			s = NULL;
		}
		if ((!s || s->state != READY) && tier_call_must_not_wait(p->call))
			return -EINPROGRESS;
		if (!s)
			r = plan_group(p, pack, &g, &s);
		if (r == 0 && p->bytes)
			r = add_part(p->bytes, s, pos, take);
		if (r < 0)
			return r;
		if (p->bytes && p->bytes->nr_parts > nr)
			tier_span_get(s);
		if (p->bytes && s->state != NONE)
			tier_span_mark_used(s);
		pos += take;
		len -= take;
	}
	return 0;
}

/* Offset of the run in the pack's data. Frames are adjacent and uncompressed. */
static int locate_run(const struct pack *pack, const struct tier_run *run, uint64_t *ret)
{
	uint32_t in, last = run->first + MAX(run->nr, 1u) - 1;
	const struct tier_frame *f = tier_tables_find(&pack->tables, run->first, &in), *g;
	struct pack_cuts cuts;
	uint64_t from, to;

	if (!f)
		return -EBADMSG;
	cuts = pack_table_cuts(&f->table);
	from = f->off + pack_cut_start(&cuts, in);
	g = tier_tables_find(&pack->tables, last, &in);
	if (!g)
		return -EBADMSG;
	cuts = pack_table_cuts(&g->table);
	to = g->off + pack_cut_end(&cuts, in);
	if (run->nr > 0 ? to - from != run->len : run->from + run->len > to - from)
		return -EBADMSG;
	*ret = from + (run->nr > 0 ? 0 : run->from);
	return 0;
}

static int plan_run(struct plan *p, const struct tier_run *run, uint64_t skip, uint64_t len)
{
	struct pack *pack = tier_source_pack(p->range->source, run->pack - 1);
	uint64_t pos;
	int r;

	if (!pack)
		return -ENOMEM;
	p->culprit = pack;
	if (p->call) {
		r = pack->state == READY ? 0 : plan_close(p); /* other calls must not see a span that is being planned */
		if (r == 0)
			r = tier_pack_await_tables(pack, p->call);
	} else {
		tier_pack_start_tables(pack, TIER_AHEAD);
		r = pack->state == READY ? 0 : -EAGAIN;
		if (r == 0)
			tier_pack_get(pack);
	}
	if (r < 0)
		return r;
	r = locate_run(pack, run, &pos);
	if (r == 0)
		r = plan_data(p, pack, pos + skip, len);
	tier_pack_put(pack);
	return r;
}

/* Plans the bytes from `off` to `end` of the file. */
static int plan_range(struct plan *p, uint64_t off, uint64_t end)
{
	const struct tier_range *range = p->range;
	struct tier_runs it = tier_runs_from(range->tree, range->inode, off);
	struct tier_run run;
	uint64_t at;
	int r = 0, closed;

	while (r == 0 && off < end && tier_runs_next(&it, &run, &at)) {
		uint64_t skip = off - at, len = MIN(run.len - skip, end - off);

		if (!p->bytes && p->cache->ahead + p->cache->conf.bytes / 64 > p->cache->conf.bytes / 2)
			break;
		if (!p->bytes)
			len = MIN(len, SPAN_MAX);
		if (run.pack > 0)
			r = plan_run(p, &run, skip, len);
		else if (p->bytes)
			r = add_part(p->bytes, NULL, 0, (size_t)len);
		if (r < 0)
			break;
		off += len;
		if (off < at + run.len)
			it = tier_runs_from(range->tree, range->inode, off);
	}
	p->end = off;
	closed = plan_close(p);
	return r < 0 ? r : closed;
}

/* Requests the tables of all packs of a range, before the call waits for the first one. */
static void start_range_tables(const struct tier_range *range)
{
	struct tier_runs it = tier_runs_from(range->tree, range->inode, range->off);
	struct tier_run run;
	uint64_t at;

	while (tier_runs_next(&it, &run, &at) && at < range->off + range->len) {
		struct pack *pack = run.pack > 0 ? tier_source_pack(range->source, run.pack - 1) : NULL;

		if (pack)
			tier_pack_start_tables(pack, TIER_URGENT);
	}
}

static void read_ahead(struct tier_cache *c, const struct tier_range *range)
{
	uint64_t size = range->tree->inodes[range->inode].size, end = range->off + range->len;
	uint64_t window_max = MIN(WINDOW_MAX, c->conf.bytes / 4);
	struct plan plan = { .cache = c, .range = range };
	struct tier_ahead *a = range->ahead;
	bool is_in_order = range->off <= a->high + IN_ORDER && range->off + IN_ORDER >= a->high;

	if (!is_in_order || !a->is_begun) {
		*a = (struct tier_ahead){ .high = end, .upto = end, .is_begun = true };
		return;
	}
	a->high = MAX(a->high, end);
	a->upto = MAX(a->upto, a->high);
	if (a->upto >= size || a->upto - a->high > a->window / 2)
		return;
	a->window = a->window == 0 ? WINDOW_FIRST : 2 * a->window;
	a->window = MIN(a->window, window_max);
	plan_range(&plan, a->upto, MIN(size, a->high + a->window)); /* a later read reports errors */
	a->upto = MAX(a->upto, plan.end);
}

/* --- reading --- */

static int await_parts(struct tier_cache *c, const struct tier_bytes *b, const struct call *call, struct tier_fault *fault)
{
	for (size_t i = 0; i < b->nr_parts; i++) {
		const struct tier_part *part = &b->parts[i];
		struct span *s = part->span;
		int r = 0;

		if (!s)
			continue;
		fault->object = s->pack->name;
		fault->what = "does not answer";
		while (r == 0 && s->state == FETCHING)
			r = tier_cache_await(c, call);
		if (r == 0 && s->state == FAILED) {
			r = s->error == -ENOENT ? -EBADMSG : s->error;
			fault->what = s->error == -ENOENT ? "is missing" : "cannot be read";
		}
		if (r == 0 && span_is_bad(s, part->pos, part->len)) {
			r = -EBADMSG;
			fault->what = "is damaged";
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int make_iov(struct tier_bytes *b)
{
	b->iov = calloc(MAX(b->nr_parts, (size_t)1), sizeof(*b->iov));
	if (!b->iov)
		return -ENOMEM;
	b->nr = b->nr_parts;
	for (size_t i = 0; i < b->nr_parts; i++) {
		const struct tier_part *p = &b->parts[i];

		b->iov[i].iov_base = p->span ? p->span->bytes + (p->pos - p->span->off) : (uint8_t *)(uintptr_t)zeros;
		b->iov[i].iov_len = p->len;
	}
	return 0;
}

int tier_cache_read(struct tier_cache *c, const struct tier_range *range, const struct tier_waiter *w,
		    struct tier_bytes *ret, struct tier_fault *fault)
{
	const struct call call = { w, monotonic_ns() + c->conf.timeout_ns, range->source->since_ns };
	struct tier_bytes b = { 0 };
	struct plan plan = { .cache = c, .range = range, .call = &call, .bytes = &b };
	int r;

	assert(range->len <= TIER_READ_MAX);
	*fault = (struct tier_fault){ .what = "cannot be read" };
	mutex_lock(&c->lock);
	if (!tier_call_must_not_wait(&call))
		start_range_tables(range);
	r = plan_range(&plan, range->off, range->off + range->len);
	if (r < 0 && plan.culprit) {
		fault->object = plan.culprit->name;
		fault->what = r == -ENOENT ? "is missing" : r == -EBADMSG ? "is damaged" :
			      r == -ETIMEDOUT			? "does not answer" :
								  "cannot be read";
		r = r == -ENOENT ? -EBADMSG : r;
	}
	if (r == 0 && range->ahead)
		read_ahead(c, range);
	if (r == 0)
		r = await_parts(c, &b, &call, fault);
	mutex_unlock(&c->lock);
	if (r == 0)
		r = make_iov(&b);
	if (r < 0)
		tier_bytes_release(c, &b);
	else
		*ret = b;
	return r;
}

void tier_bytes_release(struct tier_cache *c, struct tier_bytes *b)
{
	mutex_lock(&c->lock);
	for (size_t i = 0; i < b->nr_parts; i++)
		if (b->parts[i].span)
			tier_span_put(b->parts[i].span);
	mutex_unlock(&c->lock);
	free(b->parts);
	free(b->iov);
	*b = (struct tier_bytes){ 0 };
}
