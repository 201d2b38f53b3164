/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"

#define ROUNDS 20u
#define RACERS 6u
#define LEN ((size_t)64 << 10) /* several packets, so that racing bodies overlap in time */

struct probe {
	struct tier *t;
	char *reason;
	struct tier_promise_result *results;
	char names[ROUNDS][TIER_NAME_MAX + 1];
	uint8_t *bodies[RACERS], *seen; /* LEN bytes each */
};

static _printf_(3, 4) int break_promise(struct probe *p, enum tier_promise broken, const char *fmt, ...)
{
	va_list ap;

	p->results[broken].is_broken = true;
	va_start(ap, fmt);
	vsnprintf(p->reason, TIER_PROBE_REASON_MAX, fmt, ap);
	va_end(ap);
	return -EOPNOTSUPP;
}

static int get_range(struct probe *p, const char *name, uint64_t off, size_t len, size_t *ret_got, uint64_t *ret_size)
{
	struct tier_request q = { .op = TIER_GET, .name = name, .off = off, .buf = p->seen, .len = len };
	int r;

	memset(p->seen, 0, LEN);
	r = tier_call(p->t, &q);
	*ret_got = q.got;
	*ret_size = q.size;
	return r;
}

/* Put an object several times at once; *ret_winner is the request that succeeded. */
static int race_to_create(struct probe *p, const char *name, unsigned *ret_winner)
{
	_cleanup_(tier_queue_freep) struct tier_queue *u = NULL;
	struct tier_request q[RACERS];
	unsigned nr_won = 0;
	int r = tier_queue_new(p->t, &u);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < RACERS; i++) {
		q[i] = (struct tier_request){ .op = TIER_PUT_NEW, .name = name, .data = p->bodies[i], .len = LEN };
		tier_start(u, &q[i]);
	}
	while (tier_next(u))
		;
	for (unsigned i = 0; i < RACERS; i++) {
		if (q[i].result == -EOPNOTSUPP)
			return break_promise(p, TIER_PROMISE_CREATE, "it does not implement conditional puts");
		if (q[i].result < 0 && q[i].result != -EEXIST)
			return q[i].result;
		if (q[i].result == 0)
			*ret_winner = i;
		nr_won += q[i].result == 0;
	}
	if (nr_won != 1)
		return break_promise(p, TIER_PROMISE_CREATE,
				     "%u of %u racing requests to create one object succeeded: its conditional puts are not "
				     "atomic",
				     nr_won, RACERS);
	p->results[TIER_PROMISE_CREATE].nr_held++;
	return 0;
}

static int try_put_new(struct probe *p, const char *name)
{
	unsigned winner = 0;
	uint64_t size;
	size_t got;
	int r = race_to_create(p, name, &winner);

	if (r == 0)
		r = get_range(p, name, 0, LEN, &got, &size);
	if (r == -ENOENT)
		return break_promise(p, TIER_PROMISE_FOUND, "a new object was not found after its put had succeeded");
	if (r == 0 && (got != LEN || size != LEN || memcmp(p->seen, p->bodies[winner], LEN) != 0))
		return break_promise(p, TIER_PROMISE_FOUND, "an object has other bytes than the request that created it");
	if (r < 0)
		return r;
	p->results[TIER_PROMISE_FOUND].nr_held++;
	r = tier_put_new(p->t, name, p->bodies[(winner + 1) % RACERS], LEN);
	if (r == 0)
		return break_promise(p, TIER_PROMISE_KEPT, "a conditional put replaced an object");
	if (r != -EEXIST)
		return r;
	p->results[TIER_PROMISE_KEPT].nr_held++;
	return 0;
}

static int try_ranges(struct probe *p, const char *name, const uint8_t *body)
{
	static const struct {
		uint64_t off;
		size_t len;
	} ranges[] = { { 0, 1 }, { 1, 4095 }, { 4097, 20000 }, { LEN - 1, 1 }, { LEN - 10, 100 }, { LEN, 10 } };

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		uint64_t off = ranges[i].off, size;
		size_t expected = MIN(ranges[i].len, (size_t)(LEN - off)), got;
		int r = get_range(p, name, off, ranges[i].len, &got, &size);

		if (r < 0 && r != -EBADMSG) /* the back end may detect the fault itself */
			return r;
		if (r < 0 || got != expected || size != LEN || memcmp(p->seen, body + off, got) != 0)
			return break_promise(p, TIER_PROMISE_RANGES,
					     "a request for %zu bytes at %" PRIu64 " of an object returned others",
					     ranges[i].len, off);
		p->results[TIER_PROMISE_RANGES].nr_held++;
	}
	return 0;
}

static int try_put_and_delete(struct probe *p, const char *name)
{
	struct tier_request put = { .op = TIER_PUT, .name = name, .data = p->bodies[0], .len = LEN };
	struct tier_request del = { .op = TIER_DELETE, .name = name };
	uint64_t size;
	size_t got;
	int r = tier_call(p->t, &put);

	if (r == 0)
		r = try_ranges(p, name, p->bodies[0]);
	if (r == 0)
		r = tier_call(p->t, &del);
	if (r == 0) {
		r = get_range(p, name, 0, 1, &got, &size);
		if (r == 0)
			return break_promise(p, TIER_PROMISE_DELETED, "an object is still found after it was deleted");
		if (r == -ENOENT) {
			p->results[TIER_PROMISE_DELETED].nr_held++;
			r = 0;
		}
	}
	return r;
}

/* Also after a failure. */
static void remove_objects(struct probe *p)
{
	_cleanup_(tier_queue_freep) struct tier_queue *u = NULL;
	struct tier_request q[ROUNDS];

	if (tier_queue_new(p->t, &u) < 0)
		return;
	for (unsigned i = 0; i < ROUNDS; i++) {
		q[i] = (struct tier_request){ .op = TIER_DELETE, .name = p->names[i] };
		tier_start(u, &q[i]);
	}
	while (tier_next(u))
		;
}

static int try_all(struct probe *p)
{
	int r = 0;

	for (unsigned i = 0; i < ROUNDS && r == 0; i++)
		r = try_put_new(p, p->names[i]);
	return r < 0 ? r : try_put_and_delete(p, p->names[0]);
}

static int prepare_bodies(struct probe *p)
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	for (unsigned i = 0; i < ROUNDS; i++)
		snprintf(p->names[i], sizeof(p->names[i]), "probe/%016" PRIx64 "-%u", random, i);
	p->seen = malloc(LEN);
	for (unsigned i = 0; i < RACERS; i++)
		p->bodies[i] = malloc(LEN);
	for (unsigned i = 0; i < RACERS; i++) {
		if (!p->seen || !p->bodies[i])
			return -ENOMEM;
		for (size_t at = 0; at < LEN; at++)
			p->bodies[i][at] = (uint8_t)(at * 31 + (at >> 8) + i * 41 + 1);
	}
	return 0;
}

const char *tier_promise_text(enum tier_promise p)
{
	static const char *const texts[TIER_NR_PROMISES] = {
		[TIER_PROMISE_CREATE] = "exactly one of several concurrent requests creates an object",
		[TIER_PROMISE_FOUND] = "a new object is found, with the bytes of the request that created it",
		[TIER_PROMISE_KEPT] = "a conditional put replaces no object",
		[TIER_PROMISE_RANGES] = "a request for part of an object returns this part",
		[TIER_PROMISE_DELETED] = "a deleted object is not found",
	};

	return texts[p];
}

int tier_probe(struct tier *t, char ret_reason[TIER_PROBE_REASON_MAX])
{
	struct tier_promise_result results[TIER_NR_PROMISES];

	return tier_probe_each(t, ret_reason, results);
}

int tier_probe_each(struct tier *t, char ret_reason[TIER_PROBE_REASON_MAX],
		    struct tier_promise_result ret[TIER_NR_PROMISES])
{
	struct probe p = { .t = t, .reason = ret_reason, .results = ret };
	int r = prepare_bodies(&p);

	ret_reason[0] = '\0';
	memset(ret, 0, TIER_NR_PROMISES * sizeof(*ret));
	if (r == 0) {
		r = try_all(&p);
		remove_objects(&p);
	}
	for (unsigned i = 0; i < RACERS; i++)
		free(p.bodies[i]);
	free(p.seen);
	if (r == -EOPNOTSUPP)
		log_error("tier %s: cannot be used: %s. Use another directory or object store, or a newer version of it",
			  tier_where(t), ret_reason);
	else if (r < 0)
		log_errno(r, "tier %s: cannot find out whether it can be used", tier_where(t));
	return r;
}
