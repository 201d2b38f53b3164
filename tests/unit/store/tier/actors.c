/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/actors.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/store/tier/memory.h"

uint64_t world_draw(struct world *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random >> 11;
}

struct tier *world_tier(struct world *w)
{
	return memory_open(w->m, &(struct memory_faults){ .page = 100000 });
}

static bool changes(const struct tier_request *q)
{
	return q->op == TIER_PUT_NEW || q->op == TIER_PUT || q->op == TIER_DELETE;
}

static void apply(struct world *w, struct tier_request *q)
{
	struct tier_request copy = *q;

	copy.names = BUF_EMPTY;
	tier_call(world_tier(w), &copy);
	q->result = copy.result;
	q->got = copy.got;
	q->size = copy.size;
	q->more = copy.more;
	for (size_t at = 0, len; at < copy.names.len; at += len) {
		len = strlen((const char *)copy.names.data + at) + 1;
		if (!w->lists_lag || world_draw(w) % 6 > 0)
			buf_add(&q->names, copy.names.data + at, len);
	}
	buf_release(&copy.names);
	if (changes(q) && w->check && !w->failure)
		w->check(w);
}

static void keep_for_later(struct world *w, const struct tier_request *q)
{
	struct late_request *l = &w->late[w->nr_late];

	if (!changes(q) || w->nr_late == LATE_MAX)
		return;
	w->nr_late++;
	l->q = (struct tier_request){ .op = q->op, .len = q->len };
	strcpy(l->name, q->name);
	l->data = malloc(MAX(q->len, (size_t)1));
	if (q->len > 0)
		memcpy(l->data, q->data, q->len);
}

static void apply_late(struct world *w)
{
	struct late_request l = w->late[world_draw(w) % w->nr_late];

	for (unsigned i = 0; i < w->nr_late; i++)
		if (w->late[i].data == l.data)
			w->late[i] = w->late[w->nr_late - 1];
	w->nr_late--;
	l.q.name = l.name;
	l.q.data = l.data;
	apply(w, &l.q);
	free(l.data);
}

static void disturb(struct world *w, struct tier_request *q, enum kill_mode mode)
{
	if (mode == KILL_AFTER)
		apply(w, q);
	else if (mode == KILL_LATE)
		keep_for_later(w, q);
	buf_clear(&q->names);
}

/* Waits for its turn. */
static void yield_turn(struct actor *a)
{
	sem_post(&a->world->back);
	sem_wait(&a->go);
}

static void run_request(struct actor *a, struct tier_request *q)
{
	uint64_t n = ++a->nr_requests;

	if (a->is_dead || n == a->kill_at) {
		if (!a->is_dead)
			disturb(a->world, q, a->kill_mode);
		a->is_dead = true;
		tier_done(q, -ECANCELED);
	} else if (n == a->fail_at) {
		disturb(a->world, q, a->fail_mode);
		tier_done(q, -EIO);
	} else {
		apply(a->world, q);
		tier_done(q, q->result);
	}
}

static void start(struct tier *t, struct tier_request *q)
{
	struct actor *a = container_of(t, struct actor, tier);

	if (a->nr_pending == ARRAY_SIZE(a->pending))
		abort();
	a->pending[a->nr_pending++] = q;
}

static void drive(struct tier *t)
{
	struct actor *a = container_of(t, struct actor, tier);
	struct tier_request *q;
	unsigned i;

	if (a->before)
		a->before(a, a->nr_requests + 1);
	else if (!a->is_dead)
		yield_turn(a);
	i = (unsigned)(world_draw(a->world) % a->nr_pending);
	q = a->pending[i];
	a->pending[i] = a->pending[--a->nr_pending];
	run_request(a, q);
}

static void end(struct tier *t _unused_)
{
}

static const struct tier_backend backend = { .start = start, .drive = drive, .close = end };

static void *thread(void *userdata)
{
	struct actor *a = userdata;

	sem_wait(&a->go);
	a->run(a);
	a->has_ended = true;
	sem_post(&a->world->back);
	return NULL;
}

struct actor *world_add(struct world *w, void (*run)(struct actor *a), void *userdata)
{
	struct actor *a = &w->actors[w->nr_actors++];

	assert_true(w->nr_actors <= ACTORS_MAX);
	*a = (struct actor){ .world = w, .run = run, .userdata = userdata };
	a->tier = (struct tier){ .backend = &backend, .where = "memory" };
	return a;
}

static bool stands_still(const struct actor *a)
{
	return a->nr_requests + 1 == a->pause_at && a->pause > 0;
}

static struct actor *choose_actor(struct world *w)
{
	unsigned first = (unsigned)(world_draw(w) % w->nr_actors);
	struct actor *paused = NULL;

	for (unsigned i = 0; i < w->nr_actors; i++) {
		struct actor *a = &w->actors[(first + i) % w->nr_actors];

		if (!a->has_ended && !stands_still(a)) {
			for (unsigned k = 0; k < w->nr_actors; k++)
				if (stands_still(&w->actors[k]))
					w->actors[k].pause--;
			return a;
		}
		if (!a->has_ended)
			paused = a;
	}
	paused->pause = 0;
	return paused;
}

void world_run(struct world *w)
{
	unsigned nr_running = w->nr_actors;

	sem_init(&w->back, 0, 0);
	for (unsigned i = 0; i < w->nr_actors; i++) {
		sem_init(&w->actors[i].go, 0, 0);
		assert_int_equal(pthread_create(&w->actors[i].thread, NULL, thread, &w->actors[i]), 0);
	}
	while (nr_running > 0) {
		struct actor *a = choose_actor(w);
		unsigned burst = world_draw(w) % 4 == 0 ? 1 + (unsigned)(world_draw(w) % 40) : 1;

		if (w->nr_late > 0 && world_draw(w) % 32 == 0)
			apply_late(w);
		while (!a->has_ended && burst-- > 0 && !stands_still(a)) {
			w->nr_steps++;
			sem_post(&a->go);
			sem_wait(&w->back);
			nr_running -= a->has_ended;
		}
	}
	for (unsigned i = 0; i < w->nr_actors; i++) {
		pthread_join(w->actors[i].thread, NULL);
		sem_destroy(&w->actors[i].go);
	}
	while (w->nr_late > 0)
		apply_late(w);
	sem_destroy(&w->back);
}
