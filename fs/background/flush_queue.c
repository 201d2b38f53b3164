/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/flush_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "base/util.h"

void flush_queue_release(struct flush_queue *q)
{
	free(q->v);
	free(q->delays);
	*q = (struct flush_queue){ 0 };
}

struct flush_seal *flush_queue_find(const struct flush_queue *q, uint64_t ino)
{
	size_t at = search_u64(q->v, q->nr, sizeof(*q->v), ino);

	return at < q->nr && q->v[at].ino == ino ? &q->v[at] : NULL;
}

/* A user without seals in the list comes after all others. */
static uint64_t turn_of(const struct flush_queue *q, uint32_t user)
{
	for (size_t i = 0; i < q->nr; i++)
		if (q->v[i].user == user)
			return q->v[i].turn;
	return q->turn;
}

void flush_queue_replace(struct flush_queue *q, struct flush_seal *v, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		const struct flush_seal *before = flush_queue_find(q, v[i].ino);

		bool is_away = v[i].is_away;

		if (before && before->sealed_ns == v[i].sealed_ns)
			v[i] = *before;
		else
			v[i].turn = turn_of(q, v[i].user);
		v[i].is_away = is_away;
	}
	free(q->v);
	q->v = v;
	q->nr = nr;
}

static bool waits(const struct flush_seal *s)
{
	return !s->is_in_tier && !s->is_removed && !s->is_away;
}

/* --- delays --- */

/* Where the delay of this inode is, or belongs. */
static size_t delay_at(const struct flush_queue *q, uint64_t ino)
{
	return search_u64(q->delays, q->nr_delays, sizeof(*q->delays), ino);
}

static struct flush_delay *find_delay(const struct flush_queue *q, uint64_t ino)
{
	size_t at = delay_at(q, ino);

	return at < q->nr_delays && q->delays[at].ino == ino ? &q->delays[at] : NULL;
}

static void drop_old_delays(struct flush_queue *q, uint64_t now)
{
	size_t nr = 0;

	for (size_t i = 0; i < q->nr_delays; i++)
		if (q->delays[i].until_ns + q->delays[i].delay_ns > now)
			q->delays[nr++] = q->delays[i];
	q->nr_delays = nr;
}

int flush_queue_delay(struct flush_queue *q, uint64_t ino, uint64_t now, uint64_t first, uint64_t last)
{
	struct flush_delay *d;
	uint64_t delay = first;
	size_t at;
	int r;

	drop_old_delays(q, now);
	d = find_delay(q, ino);
	if (d) {
		delay = MAX(2 * d->delay_ns, first);
		delay = MIN(delay, last);
	} else {
		r = list_grow(&q->delays, q->nr_delays, &q->delays_room, sizeof(*q->delays));
		if (r < 0)
			return r;
		at = delay_at(q, ino);
		d = &q->delays[at];
		memmove(d + 1, d, (q->nr_delays++ - at) * sizeof(*d));
	}
	*d = (struct flush_delay){ .ino = ino, .until_ns = now + delay, .delay_ns = delay };
	return 0;
}

/* --- turns --- */

static bool is_before(const struct flush_seal *a, const struct flush_seal *b)
{
	if (a->turn != b->turn)
		return a->turn < b->turn;
	if (a->failed_turn != b->failed_turn)
		return a->failed_turn < b->failed_turn;
	return a->sealed_ns > b->sealed_ns;
}

bool flush_queue_take(struct flush_queue *q, uint64_t now, struct flush_seal *ret, uint64_t *ret_due)
{
	const struct flush_seal *next = NULL;

	*ret_due = UINT64_MAX;
	for (size_t i = 0; i < q->nr; i++) {
		const struct flush_delay *d = waits(&q->v[i]) ? find_delay(q, q->v[i].ino) : NULL;

		if (!waits(&q->v[i]))
			continue;
		if (d && d->until_ns > now)
			*ret_due = MIN(*ret_due, d->until_ns);
		else if (!next || is_before(&q->v[i], next))
			next = &q->v[i];
	}
	if (!next)
		return false;
	q->turn++;
	for (size_t i = 0; i < q->nr; i++)
		if (q->v[i].user == next->user)
			q->v[i].turn = q->turn;
	*ret = *next;
	return true;
}

/* NULL: unsealed meanwhile, or sealed again. */
static struct flush_seal *find_same(const struct flush_queue *q, const struct flush_seal *s)
{
	struct flush_seal *own = flush_queue_find(q, s->ino);

	return own && own->sealed_ns == s->sealed_ns ? own : NULL;
}

void flush_queue_done(struct flush_queue *q, const struct flush_seal *s)
{
	struct flush_seal *own = find_same(q, s);
	struct flush_delay *d = find_delay(q, s->ino);

	if (own) {
		own->is_in_tier = true;
		own->error = 0;
		own->failed_turn = 0;
	}
	if (d) {
		q->nr_delays--;
		memmove(d, d + 1, (size_t)(q->delays + q->nr_delays - d) * sizeof(*d));
	}
}

void flush_queue_failed(struct flush_queue *q, const struct flush_seal *s)
{
	struct flush_seal *own = find_same(q, s);

	if (own)
		own->failed_turn = s->turn;
}

/* --- estimates --- */

uint64_t flush_queue_bytes_left(const struct flush_queue *q, const struct flush_seal *s)
{
	return !waits(s) ? 0 : s->bytes - (s->ino == q->current ? MIN(s->bytes, q->current_bytes) : 0);
}

struct others {
	struct other {
		uint32_t user;
		int64_t newest_ns;
		uint64_t newest, all; /* bytes */
	} * v;
	size_t nr, room;
};

static void others_release(struct others *o)
{
	free(o->v);
}

static int add_other(struct others *o, const struct flush_seal *s, uint64_t bytes)
{
	struct other *u;
	size_t i = 0;
	int r;

	while (i < o->nr && o->v[i].user != s->user)
		i++;
	if (i == o->nr) {
		r = list_grow(&o->v, o->nr, &o->room, sizeof(*o->v));
		if (r < 0)
			return r;
		o->v[o->nr++] = (struct other){ .user = s->user, .newest_ns = s->sealed_ns, .newest = bytes };
	}
	u = &o->v[i];
	u->all += bytes;
	if (s->sealed_ns > u->newest_ns) {
		u->newest_ns = s->sealed_ns;
		u->newest = bytes;
	}
	return 0;
}

/*
 * Another user gets as many turns as this one. That user's checkpoints are assumed to be as large as the newest of
 * them.
 */
uint64_t flush_queue_bytes_until(const struct flush_queue *q, const struct flush_seal *s)
{
	_cleanup_(others_release) struct others others = { 0 };
	uint64_t sum = 0, nr = 0;

	for (size_t i = 0; i < q->nr; i++) {
		const struct flush_seal *t = &q->v[i];
		bool is_own = t->user == s->user && t->sealed_ns >= s->sealed_ns;
		uint64_t bytes = flush_queue_bytes_left(q, t);

		if (!waits(s) || !waits(t))
			continue;
		nr += is_own;
		if (is_own || t->ino == q->current)
			sum += bytes;
		else if (t->user != s->user && add_other(&others, t, bytes) < 0)
			return 0;
	}
	for (size_t i = 0; i < others.nr; i++)
		sum += MIN(others.v[i].all, nr * others.v[i].newest);
	return sum;
}
