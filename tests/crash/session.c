/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/session.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/util.h"
#include "tests/crash/peer.h"
#include "tests/crash/record.h"
#include "tests/crash/store_check.h"
#include "tests/crash/tree.h"

static const char *const tops[SESSION_THREADS] = { "a", "b" };

int session_init(struct session *s, uint64_t seed, size_t nr_ops)
{
	for (int t = 0; t < SESSION_THREADS; t++) {
		int r = workload_new(seed * SESSION_THREADS + (uint64_t)t, nr_ops, &s->work[t]);

		if (r < 0)
			return r;
	}
	return 0;
}

void session_release(struct session *s)
{
	for (int t = 0; t < SESSION_THREADS; t++)
		workload_free(s->work[t]);
	*s = (struct session){ 0 };
}

struct run {
	const struct session *s;
	struct engine *e;
	_Atomic uint64_t finished[SESSION_THREADS];
	pthread_mutex_t lock;
	uint64_t acked[SESSION_THREADS]; /* lock; marks only grow */
};

struct runner {
	struct run *run;
	int thread;
	int result;
};

static int sync_and_mark(struct run *run)
{
	uint64_t had[SESSION_THREADS];
	int r;

	for (int t = 0; t < SESSION_THREADS; t++)
		had[t] = atomic_load(&run->finished[t]);
	r = engine_sync(run->e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&run->lock);
	for (int t = 0; t < SESSION_THREADS; t++)
		run->acked[t] = MAX(run->acked[t], had[t]);
	record_mark(run->acked[0], run->acked[1]);
	pthread_mutex_unlock(&run->lock);
	return 0;
}

static void *run_thread(void *arg)
{
	struct runner *me = arg;
	const struct workload *w = me->run->s->work[me->thread];

	for (size_t i = 0; i < w->nr && me->result == 0; i++) {
		me->result = w->ops[i].kind == WORK_SYNC ? sync_and_mark(me->run) :
							   work_apply(me->run->e, tops[me->thread], &w->ops[i]);
		if (me->result < 0)
			fprintf(stderr, "thread %d operation %zu (%s): %s\n", me->thread, i, work_text(&w->ops[i]).s,
				strerror(-me->result));
		atomic_store(&me->run->finished[me->thread], i + 1);
	}
	return NULL;
}

static int run_all(const struct session *s, struct engine *e)
{
	struct run run = { .s = s, .e = e, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct runner runners[SESSION_THREADS] = { 0 };
	pthread_t threads[SESSION_THREADS];
	int r;

	r = tree_format(e, tops, SESSION_THREADS);
	for (int t = 0; r == 0 && t < SESSION_THREADS; t++) {
		runners[t] = (struct runner){ .run = &run, .thread = t };
		r = -pthread_create(&threads[t], NULL, run_thread, &runners[t]);
		if (r < 0)
			abort(); /* the other one runs on our stack */
	}
	for (int t = 0; r == 0 && t < SESSION_THREADS; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < SESSION_THREADS; t++)
		r = r < 0 ? r : runners[t].result;
	return r;
}

int session_record(const struct session *s, const char *dir, const char *log_path)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	struct engine_conf conf = tree_conf();
	char path[256];
	struct engine *e;
	int r, q;

	snprintf(path, sizeof(path), "%s/store", dir);
	r = record_start(dir);
	if (r < 0)
		return r;
	r = engine_open(path, &conf, &e);
	if (r == 0) {
		peer_register(e);
		r = run_all(s, e);
		q = engine_close(e);
		r = r < 0 ? r : q;
	}
	if (r == 0)
		record_mark(s->work[0]->nr, s->work[1]->nr); /* closing acknowledges everything */
	q = record_stop(&l);
	r = r < 0 ? r : q;
	return r < 0 ? r : oplog_save(&l, log_path);
}

/* The number of operations after which the tree looked like this; -1: never, not from `acked` on. */
static int64_t find_moment(const struct workload *w, uint64_t acked, const char *list)
{
	for (size_t i = acked; i <= w->nr; i++)
		if (strcmp(w->lists[i], list) == 0)
			return (int64_t)i;
	return -1;
}

/* Why: the first line that differs from the tree at the last acknowledged moment, or that it is an earlier moment. */
static void explain(const struct workload *w, int thread, uint64_t acked, const char *list, FILE *to)
{
	for (uint64_t i = 0; i < acked; i++)
		if (strcmp(w->lists[i], list) == 0) {
			fprintf(to,
				"thread %d: the tree is that of moment %" PRIu64 ", but %" PRIu64 " was acknowledged\n",
				thread, i, acked);
			return;
		}
	fprintf(to,
		"thread %d: the tree is that of no moment; acknowledged %" PRIu64 "\n--- found\n%s--- moment %" PRIu64
		"\n%s",
		thread, acked, list, acked, w->lists[acked]);
	for (uint64_t i = acked; i < w->nr && i < acked + 8; i++)
		fprintf(to, "--- then %s\n", work_text(&w->ops[i]).s);
}

static bool check_trees(const struct session *s, struct engine *e, const uint64_t acked[SESSION_THREADS], FILE *to)
{
	for (int t = 0; t < SESSION_THREADS; t++) {
		_cleanup_(buf_release) struct buf list = BUF_EMPTY;
		int r = tree_list(e, tops[t], &list);

		if (r < 0) {
			fprintf(to, "thread %d: cannot read the tree: %s\n", t, strerror(-r));
			return false;
		}
		if (find_moment(s->work[t], acked[t], (char *)list.data) < 0) {
			explain(s->work[t], t, acked[t], (char *)list.data, to);
			return false;
		}
	}
	return true;
}

/* A file more, with bytes that may be known and bytes that cannot be. */
static int write_more(struct engine *e)
{
	struct work op = { .kind = WORK_WRITE, .path = "after", .len = 5 * 4096 + 100, .seed = 7, .mode = 0600 };
	int r = 0;

	for (int t = 0; r == 0 && t < SESSION_THREADS; t++) {
		struct work create = op;

		create.kind = WORK_CREATE;
		op.seed = t == 0 ? 7 : 1000;
		r = work_apply(e, tops[t], &create);
		if (r == 0)
			r = work_apply(e, tops[t], &op);
	}
	return r < 0 ? r : engine_sync(e);
}

/* Open, list all, close. With `write`, write more before the listing. */
static bool visit(const char *path, bool write, struct buf *ret, FILE *to)
{
	struct engine_conf conf = tree_conf();
	struct engine *e;
	const char *step = "open";
	int r, q;

	r = engine_open(path, &conf, &e);
	if (r == 0) {
		if (write) {
			step = "write more";
			r = write_more(e);
		}
		if (r == 0) {
			step = "list";
			r = tree_list(e, "", ret);
		}
		q = engine_close(e);
		if (r == 0 && q < 0)
			step = "close";
		r = r < 0 ? r : q;
	}
	if (r < 0)
		fprintf(to, "second life: cannot %s: %s\n", step, strerror(-r));
	return r == 0;
}

static bool check_further(const char *path, bool formatted, FILE *to)
{
	_cleanup_(buf_release) struct buf before = BUF_EMPTY, after = BUF_EMPTY;

	if (!visit(path, formatted, &before, to) || !visit(path, false, &after, to))
		return false;
	if (strcmp((char *)before.data, (char *)after.data) != 0) {
		fprintf(to, "second life: the tree changed by closing and opening\n--- before\n%s--- after\n%s",
			(char *)before.data, (char *)after.data);
		return false;
	}
	return true;
}

/* As an administrator would open it: the tiny steps would only cost time here. */
static struct engine_conf plain_conf(void)
{
	struct engine_conf conf = tree_conf();

	conf.snapshot_bytes = conf.view_flush_bytes = conf.ingest_entries = 0;
	return conf;
}

bool session_check(const struct session *s, const char *dir, const uint64_t acked[SESSION_THREADS], bool further,
		   FILE *to)
{
	struct engine_conf conf = further ? tree_conf() : plain_conf();
	struct ns_inode root;
	struct engine *e;
	bool good, formatted;
	char path[256];
	int r;

	snprintf(path, sizeof(path), "%s/store", dir);
	r = engine_open(path, &conf, &e);
	if (r < 0) {
		fprintf(to, "cannot open: %s\n", strerror(-r));
		return false;
	}
	good = check_trees(s, e, acked, to);
	formatted = ns_get_inode(engine_db(e), NS_ROOT_INO, &root) > 0;
	r = engine_close(e);
	if (r < 0) {
		fprintf(to, "cannot close: %s\n", strerror(-r));
		return false;
	}
	return good && (!further || (check_further(path, formatted, to) && store_check(path, to)));
}
