/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/explore.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/states.h"

#define SEEN_SLOTS ((size_t)1 << 20) /* far more than states of one log, so probes are short */
#define PASS_VARIANTS 8 /* drawn per point in each pass after the first */
#define MAX_PASSES 1000 /* a log that has no more states to give */
#define FURTHER_EVERY 8
#define NESTED_EVERY 200
#define NESTED_DRAWN 3 /* variants per point of a recovery, besides the first four */

/* Shared by all processes. */
struct shared {
	_Atomic uint64_t nr_checked, nr_same, nr_further, nr_nested;
	struct {
		_Atomic uint64_t point, variant; /* where it is */
		_Atomic bool nested; /* in a log of its own: nested.N */
	} worker[POOL_JOBS_MAX];
	_Atomic uint64_t seen[SEEN_SLOTS];
};

struct worker {
	const struct explore *x;
	struct shared *sh;
	int me;
	struct states *states; /* made by the worker itself, walks forward with the cases */
	FILE *to;
	char dir[128], nested_log[128];
};

static bool enough(const struct worker *w)
{
	return atomic_load(&w->sh->nr_checked) >= w->x->nr_states;
}

/* true: was not there, and now is. */
static bool remember(struct shared *sh, uint64_t hash)
{
	hash |= hash == 0;
	for (size_t i = hash % SEEN_SLOTS;; i = (i + 1) % SEEN_SLOTS) {
		uint64_t empty = 0;

		if (atomic_compare_exchange_strong(&sh->seen[i], &empty, hash))
			return true;
		if (empty == hash)
			return false;
	}
}

static uint64_t state_key(const struct state *st, const uint64_t acked[SESSION_THREADS])
{
	return (state_hash(st) ^ acked[0] * 0x9e3779b97f4a7c15) * 0xd1342543de82ef95 ^ acked[1];
}

/* The state of the walker's point in `dir`, opened and compared. */
static bool store_and_check(const struct explore *x, const struct state *st, const uint64_t acked[SESSION_THREADS],
			    bool further, const char *dir, FILE *to)
{
	int r = scratch_empty(dir);

	if (r == 0)
		r = state_store(st, dir);
	if (r < 0) {
		fprintf(to, "cannot store the state in %s: %s\n", dir, strerror(-r));
		return false;
	}
	if (session_check(x->session, dir, acked, further, to))
		return true;
	fprintf(to, "what was not synced:\n");
	state_describe(st, to);
	return false;
}

/* One variant at a point: made, and checked unless seen before. *ret_key 0: seen. */
static bool check_variant(struct worker *w, struct states *s, size_t point, unsigned variant, bool nested,
			  uint64_t *ret_key)
{
	_cleanup_(state_freep) struct state *st = NULL;
	struct shared *sh = w->sh;
	uint64_t acked[SESSION_THREADS], key;
	bool further;

	atomic_store(&sh->worker[w->me].point, point);
	atomic_store(&sh->worker[w->me].variant, variant);
	atomic_store(&sh->worker[w->me].nested, nested);
	if (states_make(s, w->x->seed, variant, &st) < 0)
		return false;
	states_mark(s, &acked[0], &acked[1]);
	key = state_key(st, acked);
	*ret_key = 0;
	if (!remember(sh, key)) {
		atomic_fetch_add(&sh->nr_same, 1);
		return true;
	}
	*ret_key = key;
	further = key % FURTHER_EVERY == 0 && !nested;
	atomic_fetch_add(&sh->nr_further, further);
	atomic_fetch_add(&sh->nr_nested, nested);
	atomic_fetch_add(&sh->nr_checked, 1);
	return store_and_check(w->x, st, acked, further, w->dir, w->to);
}

/* All points of a recovery that was recorded. */
static bool check_recovery(struct worker *w, const struct oplog *log)
{
	_cleanup_(states_freep) struct states *s = NULL;
	size_t first = 0;

	if (states_new(log, "index", &s) < 0)
		return false;
	while (first < log->nr && log->ops[first].kind != OP_MARK)
		first++; /* up to here it is the state itself */
	for (size_t point = first + 1; point <= log->nr && !enough(w); point++) {
		if (states_seek(s, point) < 0)
			return false;
		for (unsigned i = 0; i < 4 + NESTED_DRAWN; i++) {
			uint64_t key;

			if (!check_variant(w, s, point, i < 4 ? i : STATES_FIXED + i, true, &key))
				return false;
		}
	}
	return true;
}

/* Crash in the recovery from a crash: record what opening and closing this state does, then crash in that. */
static bool check_nested(struct worker *w, unsigned variant)
{
	_cleanup_(oplog_release) struct oplog log = OPLOG_EMPTY;
	_cleanup_(state_freep) struct state *st = NULL;
	uint64_t acked[SESSION_THREADS];
	int r;

	states_mark(w->states, &acked[0], &acked[1]);
	r = states_make(w->states, w->x->seed, variant, &st);
	if (r == 0)
		r = scratch_empty(w->dir);
	if (r == 0)
		r = state_store(st, w->dir);
	if (r == 0)
		r = record_start(w->dir);
	if (r < 0)
		return false;
	record_mark(acked[0], acked[1]);
	if (!session_check(w->x->session, w->dir, acked, false, w->to))
		return false;
	r = record_stop(&log);
	if (r == 0)
		r = oplog_save(&log, w->nested_log);
	return r == 0 && check_recovery(w, &log);
}

/* The numbers of variants of a pass: first the fixed ones, then drawn ones. */
static unsigned pass_first(uint64_t pass)
{
	return pass == 0 ? 0 : STATES_FIXED + (unsigned)(pass - 1) * PASS_VARIANTS;
}

static int worker_start(struct worker *w, int me)
{
	w->me = me;
	snprintf(w->dir, sizeof(w->dir), "%s/w%d", w->x->scratch, me);
	snprintf(w->nested_log, sizeof(w->nested_log), "%s/nested.%d", w->x->scratch, me);
	record_set_sparse(true);
	return states_new(w->x->log, "index", &w->states);
}

/* A case is a crash point in a pass. */
static enum pool_verdict work(void *userdata, int me, uint64_t nr, FILE *to)
{
	struct worker *w = userdata;
	uint64_t points = w->x->log->nr + 1, pass = nr / points;
	size_t point = nr % points;
	unsigned end;

	w->to = to;
	if ((!w->states && worker_start(w, me) < 0) || states_seek(w->states, point) < 0)
		return POOL_WRONG;
	end = states_nr_pending(w->states) == 0 ? pass_first(pass) + (pass == 0) : pass_first(pass + 1);
	for (unsigned v = pass_first(pass); v < end && !enough(w); v++) {
		uint64_t key = 0;

		if (!check_variant(w, w->states, point, v, false, &key))
			return POOL_WRONG;
		if (key && key % NESTED_EVERY == 0 && !check_nested(w, v))
			return POOL_WRONG;
	}
	return enough(w) ? POOL_ENOUGH : POOL_RIGHT;
}

static void describe(void *userdata, int me, uint64_t nr)
{
	const struct worker *w = userdata;
	const struct explore *x = w->x;
	bool nested = w->sh->worker[me].nested;
	size_t point = w->sh->worker[me].point;
	unsigned variant = (unsigned)w->sh->worker[me].variant;
	char from[256], kept[256], command[1400];

	(void)nr;
	snprintf(from, sizeof(from), "%s", x->log_path);
	if (nested)
		snprintf(from, sizeof(from), "%s/nested.%d", x->scratch, me);
	snprintf(kept, sizeof(kept), "%s/crash-%" PRIu64 ".%d.log", x->keep, x->seed, getpid());
	snprintf(command, sizeof(command), "cp %s %s && if [ -e %s.peer ]; then cp %s.peer %s.peer; fi", from, kept,
		 x->log_path, x->log_path, kept);
	if (system(command) != 0)
		printf("(the log could not be kept) ");
	printf("state %zu.%u%s\nagain: crash --seed %" PRIu64 " --ops %zu --log %s --state %zu.%u\n", point, variant,
	       nested ? " of a recovery" : "", x->seed, x->nr_ops, kept, point, variant);
}

bool explore_all(const struct explore *x, struct explore_result *ret)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct worker w = { .x = x, .sh = sh }; /* each process has its own copy */
	struct pool pool = {
		.scratch = x->scratch,
		.jobs = x->jobs,
		.end = MAX_PASSES * (x->log->nr + 1),
		.run = work,
		.describe = describe,
		.userdata = &w,
	};
	bool good;

	if (sh == MAP_FAILED)
		return false;
	good = pool_run(&pool);
	*ret = (struct explore_result){ sh->nr_checked, sh->nr_further, sh->nr_nested, sh->nr_same };
	munmap(sh, sizeof(*sh));
	return good;
}

bool explore_one(const struct explore *x, size_t point, unsigned variant)
{
	_cleanup_(states_freep) struct states *s = NULL;
	_cleanup_(state_freep) struct state *st = NULL;
	uint64_t acked[SESSION_THREADS];
	char dir[128];
	bool good;

	snprintf(dir, sizeof(dir), "%s/w0", x->scratch);
	log_set_level(LOG_LEVEL_DEBUG);
	if (states_new(x->log, "index", &s) < 0 || states_seek(s, point) < 0 ||
	    states_make(s, x->seed, variant, &st) < 0)
		return false;
	states_mark(s, &acked[0], &acked[1]);
	good = store_and_check(x, st, acked, true, dir, stdout);
	printf("state %zu.%u: %s\n", point, variant, good ? "right" : "WRONG");
	return good;
}
