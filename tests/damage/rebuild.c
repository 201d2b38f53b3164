/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * rebuild: the index is gone, or part of it; opening says what to do; rebuilding brings every committed file back.
 *
 * Stores that were closed and stores that were killed, with journals that have been rolled over and snapshotted. A
 * rebuild that is itself cut short is recorded and crashed (tests/crash): then opening refuses or is right, and
 * rebuilding once more brings everything back.
 */
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/crash/fate.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/store_check.h"
#include "tests/crash/tree.h"
#include "tests/damage/rig.h"

#define NR_ROUNDS 4
#define NR_OPS 250

/* What is taken from index/, as a shell pattern; "" is the directory itself. */
static const char *const losses[] = { "", "*", "CURRENT", "MANIFEST-*", "*.sst", "OPTIONS-*", "IDENTITY" };

struct rebuild {
	uint64_t seed;
	char scratch[64], dir[128], path[160], log[160];
	struct rig rig;
	const char *loss;
};

static bool fails(const char *what, int r)
{
	printf("FAILED: %s: %s\n", what, strerror(-r));
	return false;
}

static bool take_remote(const struct rebuild *b)
{
	char pattern[300];
	bool done = true;
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/index", b->path);
	if (!b->loss[0])
		return scratch_remove(pattern) == 0;
	snprintf(pattern, sizeof(pattern), "%s/index/%s", b->path, b->loss);
	if (glob(pattern, 0, NULL, &g) != 0)
		return true; /* a young index has no tables yet */
	for (size_t i = 0; i < g.gl_pathc; i++)
		done = scratch_remove(g.gl_pathv[i]) == 0 && done;
	globfree(&g);
	return done;
}

/* The tree is that of a moment, and not before the last acknowledged one. */
static bool check_tree(const struct rebuild *b)
{
	_cleanup_(buf_release) struct buf tree = BUF_EMPTY;
	struct engine_conf conf = rig_conf();
	struct engine *e;
	bool found = false;
	int r, q;

	r = engine_open(b->path, &conf, &e);
	if (r < 0)
		return fails("cannot open", r);
	r = tree_list(e, RIG_TOP, &tree);
	for (size_t i = b->rig.acked; r == 0 && !found && i <= b->rig.work->nr; i++)
		found = strcmp(b->rig.work->lists[i], (char *)tree.data) == 0;
	q = engine_close(e);
	if (r < 0 || q < 0)
		return fails("cannot list or close", MIN(r, q));
	if (!found)
		printf("FAILED: the tree is not what was acknowledged\n--- found\n%s--- expected\n%s",
		       (char *)tree.data, rig_final(&b->rig));
	return found && store_check(b->path, stdout);
}

static bool log_says_what_to_do(const struct rebuild *b)
{
	char line[1000];
	bool reported = false;
	FILE *f = fopen(b->log, "re");

	while (f && fgets(line, sizeof(line), f))
		reported = reported || (strstr(line, "fsck.ckptfs --rebuild") && strstr(line, b->path));
	if (f)
		fclose(f);
	if (!reported)
		printf("FAILED: the log does not say what to do\n");
	return reported;
}

/* Opening refuses and says why, or is right (what was lost is of no weight); then rebuild. */
static bool lose_and_rebuild(void *userdata)
{
	struct rebuild *b = userdata;
	struct engine_conf conf = rig_conf();
	struct engine *e;
	int r;

	log_to_file(b->log);
	r = rig_stamp(&b->rig, b->dir);
	if (r < 0 || !take_remote(b))
		return fails("cannot be set up", r);
	r = engine_open(b->path, &conf, &e);
	if (r == 0) {
		if (strcmp(b->loss, "OPTIONS-*") != 0 && strcmp(b->loss, "IDENTITY") != 0 &&
		    strcmp(b->loss, "*.sst") != 0) {
			printf("FAILED: opens without %s\n", b->loss[0] ? b->loss : "index/");
			return false;
		}
		engine_close(e);
		if (!check_tree(b))
			return false;
	} else if (r != -ENODATA || !log_says_what_to_do(b)) {
		return fails("opening tells", r);
	}
	r = engine_rebuild(b->path, &conf);
	return r < 0 ? fails("cannot rebuild", r) : check_tree(b);
}

/* Record a rebuild of a store without index. */
static bool record_rebuild(void *userdata)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	struct rebuild *b = userdata;
	struct engine_conf conf = rig_conf();
	char saved[160];
	int r;

	snprintf(saved, sizeof(saved), "%s/rebuild.log", b->scratch);
	r = rig_stamp(&b->rig, b->dir);
	if (r < 0 || !take_remote(b))
		return fails("cannot be set up", r);
	r = record_start(b->dir);
	if (r < 0)
		return fails("cannot record", r);
	record_mark(1, 1);
	r = engine_rebuild(b->path, &conf);
	if (r < 0)
		return fails("cannot rebuild", r);
	r = record_stop(&l);
	if (r == 0)
		r = oplog_save(&l, saved);
	return r == 0 || fails("cannot save", r);
}

/* Every crash in it: all kept, all lost, everything lost from the end. */
static bool crash_in_rebuild(void *userdata)
{
	static const unsigned variants[] = { 0, 2, 8 };
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(states_freep) struct states *s = NULL;
	struct rebuild *b = userdata;
	struct engine_conf conf = rig_conf();
	char saved[160];
	size_t point = 0;

	log_to_file(b->log);
	record_set_sparse(true);
	snprintf(saved, sizeof(saved), "%s/rebuild.log", b->scratch);
	if (oplog_load(saved, &l) < 0 || states_new(&l, "index", &s) < 0)
		return false;
	while (point < l.nr && l.ops[point].kind != OP_MARK)
		point++;
	for (; point <= l.nr; point++)
		for (size_t v = 0; v < ARRAY_SIZE(variants); v++) {
			_cleanup_(state_freep) struct state *st = NULL;
			struct engine *e;
			int r;

			if (states_seek(s, point) < 0 || states_make(s, b->seed, variants[v], &st) < 0 ||
			    scratch_empty(b->dir) < 0 || state_store(st, b->dir) < 0)
				return false;
			r = engine_open(b->path, &conf, &e);
			if (r == 0) {
				engine_close(e);
				if (!check_tree(b))
					return false;
			} else if (r != -ENODATA) {
				return fails("opening after a crash in the rebuild tells", r);
			}
			r = engine_rebuild(b->path, &conf);
			if (r < 0 || !check_tree(b))
				return fails("after a crash in the rebuild", r);
		}
	return true;
}

static bool run_round(struct rebuild *b, uint64_t seed, bool killed)
{
	bool good = true;
	int r;

	b->seed = seed;
	tree_set_options(seed);
	r = rig_init(&b->rig, b->scratch, "base", seed, NR_OPS, killed);
	if (r < 0)
		return fails("cannot make a store", r);
	for (size_t i = 0; good && i < ARRAY_SIZE(losses); i++) {
		b->loss = losses[i];
		good = pool_apart(lose_and_rebuild, b);
		if (!good)
			printf("with %s of index/ lost, seed %" PRIu64 "\n", losses[i], seed);
	}
	b->loss = "";
	good = good && pool_apart(record_rebuild, b) && pool_apart(crash_in_rebuild, b);
	printf("seed %" PRIu64 ", %s store: %s\n", seed, killed ? "killed" : "closed",
	       good ? "all brought back" : "WRONG");
	rig_release(&b->rig);
	return good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 's' }, { 0 } };
	struct rebuild b = { .scratch = "/dev/shm/ckptfs-rebuild.XXXXXX" };
	uint64_t seed = fate_seed();
	bool good = true;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c != 's')
			return 2;
		seed = strtoull(optarg, NULL, 0);
	}
	if (!mkdtemp(b.scratch))
		return 1;
	snprintf(b.dir, sizeof(b.dir), "%s/w", b.scratch);
	snprintf(b.path, sizeof(b.path), "%s/store", b.dir);
	snprintf(b.log, sizeof(b.log), "%s/log", b.scratch);
	for (uint64_t i = 0; good && i < NR_ROUNDS; i++)
		good = run_round(&b, seed + i, i % 2);
	scratch_remove(b.scratch);
	return good ? 0 : 1;
}
