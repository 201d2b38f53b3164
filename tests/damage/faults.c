/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * faults: every I/O call of a run fails once, or every call from it on fails; with --every both.
 *
 * The run: make a store, work on it, close it. The n-th call below it, ours or RocksDB's, gives EIO or ENOSPC, or
 * writes half and then finds the disk full. Then the disk is well again, and:
 *   whatever failed told so: no call failed with another errno, and if none failed, everything is there;
 *   everything that a sync or a close acknowledged is there, and nothing that was not done;
 *   the store opens, takes more, and the checker finds it sound.
 * A sync that fails may also cost all that was not durable, in every file: then the drive has dropped its cache.
 * Besides: on a full disk data is refused with ENOSPC while deleting, syncing, reading and closing go on.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/util.h"
#include "tests/content_sync.h"
#include "tests/crash/fate.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/store_check.h"
#include "tests/crash/tree.h"
#include "tests/damage/rig.h"
#include "tests/unit/index/ingest.h"

#define NR_OPS 70
#define MODE_CASES 100000 /* case numbers do not depend on how many calls a run makes */
#define JOBS_PER_CPU 6 /* they mostly sleep */
#define NR_SLACK 20 /* calls more than counted: threads make the number vary */

enum mode { EIO_ONCE, EIO_FROM, ENOSPC_ONCE, ENOSPC_FROM, ENOSPC_SHORT, SYNC_DROPS, EDQUOT_ONCE, EDQUOT_FROM, NR_MODES };

static const struct {
	const char *name;
	int error;
	bool stays; /* fails from the n-th call on */
	uint64_t step; /* every so many calls are failed; which ones depends on the seed and the mode */
} modes[NR_MODES] = {
	{ "EIO once", EIO, false, 2 },
	{ "EIO from", EIO, true, 2 },
	{ "ENOSPC once", ENOSPC, false, 2 },
	{ "ENOSPC from", ENOSPC, true, 2 },
	{ "half a write", ENOSPC, false, 2 },
	{ "a sync that drops", EIO, false, 1 },
	{ "EDQUOT once", EDQUOT, false, 10 }, /* handled as ENOSPC */
	{ "EDQUOT from", EDQUOT, true, 10 },
};

struct faults {
	uint64_t seed;
	bool keep_going, every; /* of the calls, in each mode */
	char scratch[64];
	struct workload *work;
	uint64_t *counts; /* shared: cases per mode, from the calls of an undisturbed run */
	_Atomic uint64_t *nr_rebuilt; /* shared */
};

/* One run: which call fails. */
struct plan {
	enum mode mode;
	uint64_t nth; /* from 1 */
	_Atomic uint64_t nr_calls;
	enum op_kind kind; /* what failed first */
	char path[300];
	bool in_index; /* that was a call of RocksDB's */
};

/*
 * A disk that is full still reads, opens and removes. Some filesystems find out at the sync; RocksDB is not made for
 * these (see may_need_rebuild()), ours must be.
 */
static bool concerns(enum mode mode, enum op_kind kind, const char *path)
{
	/* What RocksDB is to ingest was written a moment ago and is read from memory. It takes that for granted: 7.8
	 * asserts that the last key can be read, and Debian's build aborts if not. (An unreadable first one:
	 * damage/ingest.) */
	if (kind == OP_READ && strstr(path, "/index/ingest/"))
		return false;
	if (mode == EIO_ONCE || mode == EIO_FROM)
		return true;
	if (mode == SYNC_DROPS)
		return kind == OP_SYNC && !strstr(path, "/index");
	return kind == OP_CREATE || kind == OP_MKDIR || kind == OP_WRITE || kind == OP_ALLOCATE ||
	       (kind == OP_SYNC && !strstr(path, "/index"));
}

static int fail_call(void *userdata, enum op_kind kind, const char *path)
{
	static const char *const dropped[] = { "/packs/", "/journal/", NULL };
	struct plan *p = userdata;
	uint64_t nr;

	if (!concerns(p->mode, kind, path))
		return 0;
	nr = atomic_fetch_add(&p->nr_calls, 1) + 1;
	if (nr < p->nth || (nr > p->nth && !modes[p->mode].stays))
		return 0;
	if (nr == p->nth) {
		p->kind = kind;
		snprintf(p->path, sizeof(p->path), "%s", path);
		p->in_index = strstr(path, "/index");
		record_set_full(p->mode == ENOSPC_FROM);
		if (p->mode == SYNC_DROPS)
			record_drop_unsynced(dropped);
	}
	return modes[p->mode].error;
}

/* For base/io: a write that gets half way. */
static int fail_half(void *userdata, const struct io_event *ev)
{
	struct plan *p = userdata;

	if (ev->op != IO_WRITE || atomic_fetch_add(&p->nr_calls, 1) + 1 != p->nth)
		return 0;
	return ev->len > 1 ? (int)(ev->len / 2) : -ENOSPC;
}

static int arm(const char *dir, struct plan *p)
{
	struct io_hook hook = { .before = fail_half, .userdata = p };
	int r;

	if (p->mode == ENOSPC_SHORT) {
		io_set_hook(&hook);
		return 0;
	}
	r = record_start(dir);
	record_set_fault(fail_call, p);
	return r;
}

static void disarm(struct plan *p)
{
	struct oplog l;

	if (p->mode == ENOSPC_SHORT) {
		io_set_hook(NULL);
		return;
	}
	record_set_fault(NULL, NULL);
	record_set_full(false);
	record_stop(&l);
	oplog_release(&l);
}

struct outcome {
	uint64_t done, acked; /* operations */
	int error; /* the first */
};

/* The run. Stops at the first failure, but closes in any case. */
static struct outcome run(const struct workload *w, const char *path)
{
	static const char *const tops[] = { RIG_TOP };
	struct engine_conf conf = tree_conf();
	struct outcome o = { 0 };
	struct engine *e;
	int r;

	o.error = engine_open(path, &conf, &e);
	if (o.error < 0)
		return o;
	o.error = tree_format(e, tops, 1);
	while (o.error == 0 && o.done < w->nr) {
		o.error = work_apply(e, RIG_TOP, &w->ops[o.done]);
		if (o.error < 0)
			break;
		o.done++;
		if (w->ops[o.done - 1].kind == WORK_SYNC)
			o.acked = o.done;
	}
	r = engine_close(e);
	if (r == 0)
		o.acked = o.done;
	o.error = o.error ? o.error : r;
	return o;
}

static bool check_moment(const struct workload *w, const struct outcome *o, const char *tree, FILE *to)
{
	for (uint64_t i = o->acked; i <= o->done + 1 && i <= w->nr; i++)
		if (strcmp(w->lists[i], tree) == 0)
			return true;
	fprintf(to, "the tree is none of moments %" PRIu64 " to %" PRIu64 "\n--- found\n%s--- moment %" PRIu64 "\n%s",
		o->acked, o->done + 1, tree, o->acked, w->lists[o->acked]);
	return false;
}

static int write_more(struct engine *e)
{
	static const char *const tops[] = { RIG_TOP };
	struct work op = { .kind = WORK_CREATE, .path = "after", .len = 50000, .seed = 1000, .mode = 0600 };
	struct ns_inode root;
	int r = ns_get_inode(engine_db(e), NS_ROOT_INO, &root);

	if (r == 0)
		r = tree_format(e, tops, 1);
	if (r >= 0)
		r = work_apply(e, RIG_TOP, &op);
	op.kind = WORK_WRITE;
	if (r == 0)
		r = work_apply(e, RIG_TOP, &op);
	return r < 0 ? r : engine_sync(e);
}

/* The disk is well again. */
static bool check_after(const struct workload *w, const struct outcome *o, const char *path, FILE *to)
{
	_cleanup_(buf_release) struct buf tree = BUF_EMPTY;
	struct engine_conf conf = rig_conf();
	struct engine *e;
	bool good;
	int r;

	r = engine_open(path, &conf, &e);
	if (r < 0) {
		fprintf(to, "cannot open afterwards: %s\n", strerror(-r));
		return false;
	}
	r = tree_list(e, RIG_TOP, &tree);
	good = r == 0 && check_moment(w, o, (char *)tree.data, to);
	if (r == 0)
		r = write_more(e);
	if (r < 0)
		fprintf(to, "cannot read or write afterwards: %s\n", strerror(-r));
	if (engine_close(e) < 0 || r < 0)
		return false;
	return good && store_check(path, to);
}

/*
 * A sync of its own that fails leaves RocksDB with a MANIFEST of which an unknown part is on disk, and it may
 * name a table that RocksDB has removed. Only then an index may be unusable, and says so.
 */
static bool may_need_rebuild(struct faults *f, const struct plan *plan, const char *path, FILE *to)
{
	struct engine_conf conf = rig_conf();
	struct engine *e;
	int r = engine_open(path, &conf, &e);

	if (r == 0)
		return engine_close(e) == 0;
	if (r != -ENODATA || !plan->in_index || modes[plan->mode].error != EIO)
		return true; /* check_after() will tell */
	atomic_fetch_add(f->nr_rebuilt, 1);
	r = engine_rebuild(path, &conf);
	if (r < 0)
		fprintf(to, "cannot rebuild: %s\n", strerror(-r));
	return r == 0;
}

static uint64_t step_of(const struct faults *f, enum mode mode)
{
	return f->every ? 1 : modes[mode].step;
}

/* The call that case `nr` fails, from 1. */
static uint64_t nth_call(const struct faults *f, uint64_t nr)
{
	uint64_t mode = nr / MODE_CASES, step = step_of(f, (enum mode)mode);

	return nr % MODE_CASES * step + (f->seed + mode) % step + 1;
}

static enum pool_verdict run_case(void *userdata, int me, uint64_t nr, FILE *to)
{
	struct faults *f = userdata;
	enum mode mode = (enum mode)(nr / MODE_CASES);
	struct plan plan = { .mode = mode, .nth = nth_call(f, nr) };
	struct outcome o;
	char dir[128], path[160];
	bool good;

	record_set_sparse(true);
	snprintf(dir, sizeof(dir), "%s/w%d", f->scratch, me);
	snprintf(path, sizeof(path), "%s/store", dir);
	if (scratch_empty(dir) < 0 || arm(dir, &plan) < 0)
		return POOL_WRONG;
	o = run(f->work, path);
	disarm(&plan);
	fprintf(to, "%s of %s failed, %" PRIu64 " operations done, %" PRIu64 " acknowledged, told: %s\n",
		plan.path[0] ? op_verb(plan.kind) : "half a write", plan.path, o.done, o.acked, strerror(-o.error));
	/* RocksDB does not tell why a flush failed; db.c looks at the disk, which may have space again by then. */
	good = o.error == 0 || o.error == -modes[mode].error || (plan.in_index && o.error == -EIO);
	if (!good)
		fprintf(to, "that is not what the disk said\n");
	return good && may_need_rebuild(f, &plan, path, to) && check_after(f->work, &o, path, to) ? POOL_RIGHT :
												    POOL_WRONG;
}

static void describe(void *userdata, int me, uint64_t nr)
{
	const struct faults *f = userdata;
	(void)me;
	printf("%s, call %" PRIu64 "\nagain: faults --seed %" PRIu64 "%s --case %" PRIu64 "\n",
	       modes[nr / MODE_CASES].name, nth_call(f, nr), f->seed, f->every ? " --every" : "", nr);
}

/* How many calls there are to fail. */
static bool count_calls(void *userdata)
{
	struct faults *f = userdata;
	char dir[128], path[160];

	record_set_sparse(true);
	snprintf(dir, sizeof(dir), "%s/w0", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	for (enum mode m = 0; m < NR_MODES; m++) {
		struct plan plan = { .mode = m, .nth = UINT64_MAX };
		struct outcome o;

		if (scratch_empty(dir) < 0 || arm(dir, &plan) < 0)
			return false;
		o = run(f->work, path);
		disarm(&plan);
		f->counts[m] = (plan.nr_calls + NR_SLACK) / step_of(f, m);
		if (o.error < 0 || o.acked != f->work->nr) {
			printf("FAILED: the run fails without a fault: %s\n", strerror(-o.error));
			return false;
		}
	}
	return true;
}

#define CHECK(cond)                                                                  \
	do {                                                                         \
		if (!(cond)) {                                                       \
			printf("FAILED: line %d: %s\n", __LINE__, #cond); \
			return false;                                                \
		}                                                                    \
	} while (0)

/* fstatvfs() says that nothing is left. */
static bool full_disk(void *userdata)
{
	_cleanup_(buf_release) struct buf before = BUF_EMPTY, after = BUF_EMPTY;
	static const char *const tops[] = { RIG_TOP };
	static uint8_t bytes[200000];
	struct faults *f = userdata;
	struct engine_conf conf = tree_conf();
	char dir[128], path[160];
	struct content *c;
	struct engine *e;

	snprintf(dir, sizeof(dir), "%s/full", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	work_bytes(1, 0, sizeof(bytes), bytes);
	CHECK(scratch_empty(dir) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_format(e, tops, 1) == 0);
	CHECK(tree_create(e, "a/one", 0600) == 0 && tree_create(e, "a/two", 0600) == 0);
	CHECK(tree_open(e, "a/one", &c) == 0);
	CHECK(content_write(c, bytes, sizeof(bytes), 0) == 0);
	CHECK(content_sync(c) == 0);
	record_set_full(true);
	nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL); /* what is known of free space gets old */
	CHECK(content_write(c, bytes, 100000, 300000) == -ENOSPC);
	CHECK(content_flush(c) == 0);
	CHECK(content_read(c, bytes, 1000, 5) == 1000);
	CHECK(content_truncate(c, 1000) == 0);
	content_close(c);
	CHECK(tree_unlink(e, "a/two") == 0);
	CHECK(engine_sync(e) == 0);
	CHECK(tree_list(e, "", &before) == 0);
	CHECK(engine_close(e) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_unlink(e, "a/one") == 0);
	CHECK(engine_close(e) == 0);
	record_set_full(false);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_list(e, "", &after) == 0);
	CHECK(strcmp((char *)before.data, "a 40755 nlink 2 uid 0\na/one 100600 nlink 1 uid 0 size 1000 mtime now") > 0);
	CHECK(strcmp((char *)after.data, "a 40755 nlink 2 uid 0\n") == 0);
	CHECK(engine_close(e) == 0);
	return true;
}

static int fail_packs(void *userdata, enum op_kind kind, const char *path)
{
	(void)userdata;
	return (kind == OP_WRITE || kind == OP_CREATE || kind == OP_ALLOCATE) && strstr(path, "/packs/") ? ENOSPC : 0;
}

/* The disk fills up behind our back: packs cannot be written, then they can again. */
static bool full_packs(void *userdata)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(buf_release) struct buf before = BUF_EMPTY, after = BUF_EMPTY;
	static const char *const tops[] = { RIG_TOP };
	static uint8_t bytes[300000];
	struct faults *f = userdata;
	struct engine_conf conf = tree_conf();
	char dir[128], path[160];
	struct content *c;
	struct engine *e;

	snprintf(dir, sizeof(dir), "%s/full", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	work_bytes(1, 0, sizeof(bytes), bytes);
	CHECK(scratch_empty(dir) == 0 && record_start(dir) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_format(e, tops, 1) == 0);
	CHECK(tree_create(e, "a/one", 0600) == 0 && tree_create(e, "a/two", 0600) == 0);
	CHECK(tree_open(e, "a/one", &c) == 0);
	CHECK(content_write(c, bytes, 50000, 0) == 0);
	CHECK(content_sync(c) == 0);
	record_set_fault(fail_packs, NULL);
	CHECK(content_write(c, bytes, sizeof(bytes), 4096) == -ENOSPC || content_sync(c) == -ENOSPC);
	CHECK(tree_unlink(e, "a/two") == 0);
	CHECK(content_read(c, bytes, 1000, 0) == 1000);
	record_set_fault(NULL, NULL);
	CHECK(engine_sync(e) == 0);
	content_close(c);
	CHECK(tree_list(e, "", &before) == 0);
	CHECK(engine_close(e) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_list(e, "", &after) == 0);
	CHECK(strcmp((char *)before.data, (char *)after.data) == 0);
	CHECK(!strstr((char *)after.data, "two"));
	CHECK(engine_close(e) == 0);
	CHECK(record_stop(&l) == 0);
	return store_check(path, stdout);
}

struct manifest_fault {
	int error;
	_Atomic unsigned nr; /* entries so far */
};

/* The first entry, an option or reserved file numbers, is written; the tables of the next one cannot be noted. */
static int fail_manifest(void *userdata, enum op_kind kind, const char *path)
{
	struct manifest_fault *m = userdata;

	return kind == OP_WRITE && strstr(path, "/index/MANIFEST") && atomic_fetch_add(&m->nr, 1) > 0 ? m->error : 0;
}

/* RocksDB stops over a compaction, and stays so until the next opening: nothing waits for it. */
static bool index_stopped(void *userdata)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	static const char *const tops[] = { RIG_TOP };
	struct faults *f = userdata;
	struct engine_conf conf = tree_conf();
	struct manifest_fault fault = { .error = EIO };
	char dir[128], path[160];
	struct engine *e;

	snprintf(dir, sizeof(dir), "%s/stopped", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	CHECK(scratch_empty(dir) == 0 && record_start(dir) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_format(e, tops, 1) == 0);
	CHECK(engine_close(e) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(db_compact(engine_db(e), DB_VIEW) == 0);
	CHECK(tree_create(e, "a/one", 0600) == 0);
	CHECK(engine_close(e) == 0); /* now there is one to merge with that */
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_create(e, "a/two", 0600) == 0);
	record_set_fault(fail_manifest, &fault);
	CHECK(db_compact(engine_db(e), DB_VIEW) == -EIO);
	record_set_fault(NULL, NULL);
	CHECK(db_compact(engine_db(e), DB_VIEW) == -EIO);
	CHECK(engine_close(e) == 0); /* the journal has everything */
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_unlink(e, "a/one") == 0);
	CHECK(engine_close(e) == 0);
	CHECK(record_stop(&l) == 0);
	return store_check(path, stdout);
}

/* Between two chunks: the index stops with a change that it has not taken, so that iterators fail from here on. */
static bool stop_index(void *userdata, const struct compact_report *so_far)
{
	static const uint8_t key[16], value[8];
	struct manifest_fault fault = { .error = ENOSPC };
	struct engine *e = userdata;

	(void)so_far;
	if (db_stopped(engine_db(e)) == 0 && tree_create(e, "a/late", 0600) == 0) {
		record_set_fault(fail_manifest, &fault);
		ingest_all(engine_db(e), key, sizeof(key), value, sizeof(value), 1);
		record_set_fault(NULL, NULL);
	}
	return true;
}

/* Compaction fails with ENOSPC while chunks are collected for the next frame: they stay where they are. */
static bool compaction_stopped(void *userdata)
{
	_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;
	_cleanup_(buf_release) struct buf before = BUF_EMPTY, after = BUF_EMPTY;
	static const char *const tops[] = { RIG_TOP };
	static uint8_t bytes[200000];
	const struct compact_extent x = { 0, 0, MiB(4) }; /* with a hole, behind which an iterator looks */
	const struct compact_variable v = { "numbers", { .type = { CODE_UINT, 8, false } }, &x, 1, 0, 0 };
	struct engine_conf conf = rig_conf(); /* which does not write the view out by itself */
	struct compact_result result;
	struct compact_report report;
	struct compact_conf cc = { .variable = &v, .nr_variables = 1, .result = &result, .step = stop_index };
	struct faults *f = userdata;
	char dir[128], path[160];
	struct content *c;
	struct engine *e;
	uint64_t ino;

	snprintf(dir, sizeof(dir), "%s/compaction", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	work_bytes(1, 0, sizeof(bytes), bytes);
	CHECK(scratch_empty(dir) == 0 && record_start(dir) == 0);
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_format(e, tops, 1) == 0);
	CHECK(tree_create(e, "a/one", 0600) == 0 && tree_number(e, "a/one", &ino) == 0);
	CHECK(tree_open(e, "a/one", &c) == 0);
	CHECK(content_write(c, bytes, sizeof(bytes), 0) == 0);
	CHECK(content_write(c, bytes, sizeof(bytes), MiB(3)) == 0);
	CHECK(content_sync(c) == 0);
	content_close(c);
	cc.inos = &ino;
	cc.userdata = e;
	CHECK(engine_compact(e, &cc, &report) == -ENOSPC);
	CHECK(db_stopped(engine_db(e)) == -ENOSPC);
	CHECK(engine_close(e) == 0); /* the journal has everything */
	CHECK(engine_open(path, &conf, &e) == 0);
	CHECK(tree_list(e, "", &before) == 0 && strstr((char *)before.data, "a/late"));
	cc.step = NULL;
	cc.userdata = NULL;
	CHECK(engine_compact(e, &cc, &report) == 0 && report.complete);
	CHECK(tree_list(e, "", &after) == 0 && strcmp((char *)before.data, (char *)after.data) == 0);
	CHECK(engine_close(e) == 0);
	CHECK(record_stop(&l) == 0);
	return store_check(path, stdout);
}

struct nth_read {
	unsigned nth;
	_Atomic unsigned nr;
};

static int fail_read(void *userdata, enum op_kind kind, const char *path)
{
	struct nth_read *n = userdata;

	return kind == OP_READ && strstr(path, "/index/") && atomic_fetch_add(&n->nr, 1) + 1 == n->nth ? EIO : 0;
}

#define TRUNCATE_OLD MiB(3)
#define TRUNCATE_NEW 500000u

/* Truncate the file `one`, of three segments in the view. The n-th read of the index fails. 1: it was made. */
static int truncate_unread(const char *path, unsigned nth)
{
	struct nth_read fault = { .nth = nth };
	struct engine_conf conf = tree_conf();
	struct content *c;
	struct engine *e;
	uint8_t first;
	int r = engine_open(path, &conf, &e);

	if (r == 0)
		r = tree_open(e, "a/one", &c);
	if (r == 0)
		r = content_read(c, &first, 1, TRUNCATE_NEW) == 1 ? 0 : -EIO; /* its segment is in memory from now on */
	if (r == 0)
		r = tree_create(e, "a/two", 0600);
	if (r == 0)
		r = engine_sync(e);
	if (r == 0)
		r = db_compact(engine_db(e), DB_VIEW); /* into a table of which nothing is cached */
	if (r < 0)
		return r;
	record_set_fault(fail_read, &fault);
	r = content_truncate(c, TRUNCATE_NEW);
	record_set_fault(NULL, NULL);
	content_close(c);
	if (r == 0 || r == -EIO)
		r = engine_close(e);
	return r < 0 ? r : fault.nr >= nth;
}

/* A read of the index fails while a file is truncated: the file is as before or as afterwards, in memory and on disk. */
static bool index_unread(void *userdata)
{
	static const char *const tops[] = { RIG_TOP };
	static uint8_t bytes[TRUNCATE_OLD], found[TRUNCATE_OLD];
	struct faults *f = userdata;
	struct engine_conf conf = tree_conf();
	char dir[128], path[160];
	struct ns_content st;
	struct content *c;
	struct engine *e;
	int made = 1;

	work_bytes(1, 0, sizeof(bytes), bytes);
	for (unsigned nth = 1; made > 0; nth++) {
		_cleanup_(oplog_release) struct oplog l = OPLOG_EMPTY;

		snprintf(dir, sizeof(dir), "%s/unread", f->scratch);
		snprintf(path, sizeof(path), "%s/store", dir);
		CHECK(scratch_empty(dir) == 0 && record_start(dir) == 0);
		CHECK(engine_open(path, &conf, &e) == 0);
		CHECK(tree_format(e, tops, 1) == 0);
		CHECK(tree_create(e, "a/one", 0600) == 0 && tree_open(e, "a/one", &c) == 0);
		CHECK(content_write(c, bytes, sizeof(bytes), 0) == 0);
		content_close(c);
		CHECK(engine_close(e) == 0);
		made = truncate_unread(path, nth);
		CHECK(made >= 0);
		CHECK(engine_open(path, &conf, &e) == 0);
		CHECK(tree_open(e, "a/one", &c) == 0);
		content_stat(c, &st);
		CHECK(st.size == TRUNCATE_OLD || st.size == TRUNCATE_NEW);
		CHECK(content_read(c, found, sizeof(found), 0) == (ssize_t)st.size);
		CHECK(memcmp(found, bytes, st.size) == 0);
		content_close(c);
		CHECK(engine_close(e) == 0);
		CHECK(record_stop(&l) == 0);
		CHECK(store_check(path, stdout));
	}
	return true;
}

static bool run_all(struct faults *f)
{
	bool good = pool_apart(full_disk, f) && pool_apart(full_packs, f) && pool_apart(index_stopped, f) &&
		    pool_apart(compaction_stopped, f) && pool_apart(index_unread, f);

	printf("full disk, stopped or unread index: %s\n", good ? "right" : "WRONG");
	for (enum mode m = 0; (good || f->keep_going) && m < NR_MODES; m++) {
		struct pool pool = { .scratch = f->scratch,
				     .jobs = JOBS_PER_CPU * pool_jobs(),
				     .keep_going = f->keep_going,
				     .first = m * MODE_CASES,
				     .end = m * MODE_CASES + f->counts[m],
				     .run = run_case,
				     .describe = describe,
				     .userdata = f };
		uint64_t since = monotonic_ns();
		bool right;

		right = pool_run(&pool);
		good = good && right;
		printf("%s: %" PRIu64 " calls, %s, %.1f s\n", modes[m].name, pool.end - pool.first,
		       right ? "right" : "WRONG", (double)(monotonic_ns() - since) / 1e9);
	}
	printf("%" PRIu64 " times the index had to be rebuilt\n", *f->nr_rebuilt);
	return good;
}

static bool prepare(struct faults *f)
{
	f->counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	f->nr_rebuilt = (_Atomic uint64_t *)(f->counts + NR_MODES);
	if (f->counts == MAP_FAILED || workload_new(f->seed, NR_OPS, &f->work) < 0 || !pool_apart(count_calls, f))
		return false;
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 's' },
						 { "case", required_argument, NULL, 'c' },
						 { "keep-going", no_argument, NULL, 'k' },
						 { "every", no_argument, NULL, 'e' },
						 { 0 } };
	struct faults f = { .seed = fate_seed(), .scratch = "/dev/shm/ckptfs-faults.XXXXXX" };
	bool one = false, good = false;
	uint64_t nr = 0;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's')
			f.seed = strtoull(optarg, NULL, 0);
		if (c == 'c') {
			nr = strtoull(optarg, NULL, 0);
			one = true;
		}
		if (c == 'k')
			f.keep_going = true;
		if (c == 'e')
			f.every = true;
		if (c == '?')
			return 2;
	}
	if (!mkdtemp(f.scratch))
		return 1;
	printf("seed %" PRIu64 "\n", f.seed);
	tree_set_options(f.seed);
	if (prepare(&f))
		good = one ? run_case(&f, 0, nr, stdout) == POOL_RIGHT : run_all(&f);
	scratch_remove(f.scratch);
	workload_free(f.work);
	return good ? 0 : 1;
}
