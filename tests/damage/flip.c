/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * flip: one byte of a store is changed; a reader gets the right bytes or an error.
 *
 * Every byte of superblock, pack headers, frame tables, journal groups and snapshot is changed once; of chunk data and
 * RocksDB's files a sample. The bytes at one place of all headers, and of all tables, are changed together: they do not
 * depend on each other. Two stores: one closed, whose last commit is known to the index and so cannot get lost unseen;
 * one killed, whose journal is all there is of its last commits. A change in the very last group of that one looks like
 * a write that a crash has torn: then the tree may be an earlier one.
 * Where the index turns out to be unusable, rebuilding it must bring everything back.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "store/journal/journal_format.h"
#include "store/pack/pack_format.h"
#include "tests/crash/fate.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/tree.h"
#include "tests/damage/rig.h"

#define NR_OPS 120
#define NR_INDEX 600
#define NR_DATA 400
#define MAX_FILES 256
#define JOURNAL_LOOK (1 << 20) /* its files are shorter than this */

enum area { SUPERBLOCK_ONE, SUPERBLOCK_BOTH, HEADERS, TABLES, JOURNAL, JOURNAL_CLOSED, INDEX, DATA, NR_AREAS };

static const char *const area_names[NR_AREAS] = {
	"superblock, first copy",    "superblock, both copies",	  "pack headers",   "frame tables",
	"journal of a killed store", "journal of a closed store", "index, sampled", "chunk data, sampled",
};

/* A file with bytes to change. */
struct target {
	char name[300]; /* below dir/ */
	uint64_t len; /* what counts of it */
	uint64_t last_group; /* journal: where the last group starts, else UINT64_MAX */
	unsigned nr_frames; /* packs */
};

struct targets {
	struct target v[MAX_FILES];
	size_t nr;
	uint64_t bytes;
};

struct flip {
	uint64_t seed;
	bool keep_going;
	uint64_t every; /* only each so many-th case, for slow builds */
	char scratch[64];
	struct rig closed, killed;
	char *killed_tree; /* as it is after recovery */
	struct targets packs, journal, journal_closed, index;
	uint64_t start[NR_AREAS + 1]; /* first case of each area */
};

static uint64_t used_bytes(const char *path, uint64_t *ret_last_group)
{
	static uint8_t bytes[JOURNAL_LOOK];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : pread(fd, bytes, sizeof(bytes), 0);

	closep(&fd);
	*ret_last_group = UINT64_MAX;
	for (ssize_t off = JOURNAL_BLOCK; off < n; off += JOURNAL_BLOCK) {
		struct journal_group g;

		if (journal_group_header_decode(bytes + off, (size_t)(n - off), &g) == 0)
			*ret_last_group = (uint64_t)off;
	}
	while (n > 0 && bytes[n - 1] == 0)
		n--;
	return (uint64_t)n;
}

static unsigned count_frames(off_t size)
{
	return size <= PACK_BLOCK ? 0 : 1 + (unsigned)((size - PACK_BLOCK - 1) / (PACK_FRAME_STRIDE * PACK_BLOCK));
}

static void find_targets(const struct rig *rig, const char *pattern, struct targets *ret)
{
	char path[400];
	glob_t g;

	snprintf(path, sizeof(path), "%s/store/%s", rig->base, pattern);
	if (glob(path, 0, NULL, &g) != 0)
		return;
	for (size_t i = 0; i < g.gl_pathc && ret->nr < MAX_FILES; i++) {
		struct target *t = &ret->v[ret->nr];
		struct stat st;

		if (stat(g.gl_pathv[i], &st) < 0 || !S_ISREG(st.st_mode) || strstr(g.gl_pathv[i], "/LOG"))
			continue; /* RocksDB's info log is not part of the store, nor of the rig */
		snprintf(t->name, sizeof(t->name), "%s", g.gl_pathv[i] + strlen(rig->base) + 1);
		t->len = used_bytes(g.gl_pathv[i], &t->last_group);
		if (st.st_size > JOURNAL_LOOK)
			t->len = (uint64_t)st.st_size;
		t->nr_frames = count_frames(st.st_size);
		ret->bytes += t->len;
		ret->nr++;
	}
	globfree(&g);
}

/* Which file and offset is byte `nr` of all of them? */
static const struct target *target_at(const struct targets *ts, uint64_t nr, uint64_t *ret_off)
{
	for (size_t i = 0; i < ts->nr; i++) {
		if (nr < ts->v[i].len) {
			*ret_off = nr;
			return &ts->v[i];
		}
		nr -= ts->v[i].len;
	}
	abort();
}

/* Never the same byte again. */
static bool change(const char *dir, const char *name, uint64_t off, struct fate_rng *rng)
{
	char path[600];
	uint8_t b = 0;
	bool done;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	done = fd >= 0 && pread(fd, &b, 1, (off_t)off) == 1;
	b ^= (uint8_t)(fate_random(rng, 2) ? 1u << fate_random(rng, 8) : 1 + fate_random(rng, 255));
	done = done && pwrite(fd, &b, 1, (off_t)off) == 1;
	closep(&fd);
	return done;
}

/* A byte of chunk data: any frame of any pack, near its start, where chunks are. */
static bool change_data(const struct flip *f, const char *dir, struct fate_rng *rng)
{
	const struct target *t = &f->packs.v[fate_random(rng, f->packs.nr)];
	uint32_t frame = (uint32_t)fate_random(rng, t->nr_frames ? t->nr_frames : 1);
	uint64_t off = pack_data_off(frame) + fate_random(rng, 12 * PACK_BLOCK);

	return off >= t->len || change(dir, t->name, off, rng);
}

static bool change_tables(const struct flip *f, const char *dir, uint64_t at, struct fate_rng *rng)
{
	bool done = true;

	for (size_t i = 0; i < f->packs.nr; i++)
		for (unsigned frame = 0; frame < f->packs.v[i].nr_frames; frame++)
			done = done && change(dir, f->packs.v[i].name, pack_table_off(frame) + at, rng);
	return done;
}

static bool change_headers(const struct flip *f, const char *dir, uint64_t at, struct fate_rng *rng)
{
	bool done = true;

	for (size_t i = 0; i < f->packs.nr; i++)
		done = done && change(dir, f->packs.v[i].name, at, rng);
	return done;
}

/* *ret_tail: it looks like a torn last write. */
static bool damage(const struct flip *f, enum area area, uint64_t k, const char *dir, struct fate_rng *rng,
		   bool *ret_tail)
{
	const struct target *t;
	uint64_t off;

	switch (area) {
	case SUPERBLOCK_ONE:
		return change(dir, "store/superblock", k, rng);
	case SUPERBLOCK_BOTH:
		return change(dir, "store/superblock", k, rng) && change(dir, "store/superblock", 4096 + k, rng);
	case HEADERS:
		return change_headers(f, dir, k, rng);
	case TABLES:
		return change_tables(f, dir, k, rng);
	case DATA:
		return change_data(f, dir, rng);
	case JOURNAL:
		t = target_at(&f->journal, k, &off);
		*ret_tail = off >= t->last_group && t == &f->journal.v[f->journal.nr - 1];
		break;
	case JOURNAL_CLOSED:
		t = target_at(&f->journal_closed, k, &off);
		break;
	default:
		t = target_at(&f->index, fate_random(rng, f->index.bytes), &off);
		break;
	}
	return change(dir, t->name, off, rng);
}

static bool refusal_is_right(int r)
{
	return r == -EBADMSG || r == -ENODATA || r == -EOPNOTSUPP || r == -EIO;
}

static bool is_moment(const struct workload *w, const char *tree)
{
	for (size_t i = 0; i <= w->nr; i++)
		if (strcmp(w->lists[i], tree) == 0)
			return true;
	return false;
}

/* 1: read as well as can be and right, 0: wrong, <0: cannot be opened. */
static int look(const char *path, const struct rig *rig, const char *expected, bool tail, FILE *to)
{
	_cleanup_(buf_release) struct buf found = BUF_EMPTY;
	struct engine_conf conf = rig_conf();
	struct engine *e;
	int r, good;

	r = engine_open(path, &conf, &e);
	if (r < 0)
		return r;
	r = tree_list_damaged(e, RIG_TOP, &found);
	good = r < 0 || (tail && is_moment(rig->work, (char *)found.data)) ||
	       tree_agrees(expected, (char *)found.data, to);
	engine_close(e); /* may fail, in which case the damage was in its way */
	return good;
}

/* A store that says its index is unusable: rebuild, and all is there. */
static bool rebuild(const char *path, const char *expected, FILE *to)
{
	_cleanup_(buf_release) struct buf found = BUF_EMPTY;
	struct engine_conf conf = rig_conf();
	struct engine *e;
	int r;

	r = engine_rebuild(path, &conf);
	if (r == 0)
		r = engine_open(path, &conf, &e);
	if (r < 0) {
		fprintf(to, "rebuild: %s\n", strerror(-r));
		return false;
	}
	r = tree_list(e, RIG_TOP, &found);
	engine_close(e);
	return r == 0 && tree_agrees(expected, (char *)found.data, to);
}

static enum area area_of(const struct flip *f, uint64_t nr)
{
	enum area a = 0;

	while (nr >= f->start[a + 1])
		a++;
	return a;
}

static enum pool_verdict run_case(void *userdata, int me, uint64_t nr, FILE *to)
{
	struct flip *f = userdata;
	enum area area = area_of(f, nr);
	const struct rig *rig = area == JOURNAL ? &f->killed : &f->closed;
	const char *expected = area == JOURNAL ? f->killed_tree : rig_final(&f->closed);
	struct fate_rng rng = fate_rng(f->seed, nr, 0);
	char dir[128], path[160];
	bool tail = false, good;
	int r;

	if (nr % f->every != 0)
		return POOL_RIGHT;
	record_set_sparse(true);
	snprintf(dir, sizeof(dir), "%s/w%d", f->scratch, me);
	snprintf(path, sizeof(path), "%s/store", dir);
	r = rig_stamp(rig, dir);
	if (r < 0 || !damage(f, area, nr - f->start[area], dir, &rng, &tail)) {
		fprintf(to, "cannot be set up\n");
		return POOL_WRONG;
	}
	r = look(path, rig, expected, tail, to);
	good = r > 0 || (r < 0 && refusal_is_right(r));
	if (r < 0 && !good)
		fprintf(to, "opening gives %s\n", strerror(-r));
	if (r == -ENODATA)
		good = rebuild(path, expected, to);
	return good ? POOL_RIGHT : POOL_WRONG;
}

static void describe(void *userdata, int me, uint64_t nr)
{
	const struct flip *f = userdata;
	enum area a = area_of(f, nr);

	(void)me;
	printf("%s: %" PRIu64 "\nagain: flip --seed %" PRIu64 " --case %" PRIu64 "\n", area_names[a], nr - f->start[a],
	       f->seed, nr);
}

static bool read_killed_tree(void *userdata)
{
	_cleanup_(buf_release) struct buf found = BUF_EMPTY;
	struct flip *f = userdata;
	struct engine_conf conf = rig_conf();
	char dir[128], path[160], out[160];
	struct engine *e;
	FILE *to;
	int r;

	snprintf(dir, sizeof(dir), "%s/w0", f->scratch);
	snprintf(path, sizeof(path), "%s/store", dir);
	snprintf(out, sizeof(out), "%s/tree", f->scratch);
	r = rig_stamp(&f->killed, dir);
	if (r == 0)
		r = engine_open(path, &conf, &e);
	if (r == 0)
		r = tree_list(e, RIG_TOP, &found);
	if (r < 0 || !is_moment(f->killed.work, (char *)found.data))
		return false;
	engine_close(e);
	to = fopen(out, "we");
	if (!to)
		return false;
	fputs((char *)found.data, to);
	return fclose(to) == 0;
}

static char *load_text(const char *path)
{
	char *text = calloc(1, 1 << 16);
	FILE *f = fopen(path, "re");

	if (text && f && fread(text, 1, (1 << 16) - 1, f) == 0)
		text[0] = 0;
	if (f)
		fclose(f);
	return text;
}

/* Some workloads store no bytes: take the first one from the seed on whose store has a pack to damage. */
static int make_closed(struct flip *f)
{
	int r = 0;

	for (uint64_t seed = f->seed; r == 0 && f->packs.nr == 0; seed += 2) {
		rig_release(&f->closed);
		r = rig_init(&f->closed, f->scratch, "closed", seed, NR_OPS, false);
		if (r == 0)
			find_targets(&f->closed, "packs/*.pack", &f->packs);
	}
	return r;
}

static int prepare(struct flip *f)
{
	char path[160];
	int r;

	r = make_closed(f);
	if (r == 0)
		r = rig_init(&f->killed, f->scratch, "killed", f->seed + 1, NR_OPS, true);
	if (r < 0)
		return r;
	if (!pool_apart(read_killed_tree, f))
		return -EIO;
	snprintf(path, sizeof(path), "%s/tree", f->scratch);
	f->killed_tree = load_text(path);
	find_targets(&f->killed, "journal/*.snap", &f->journal);
	find_targets(&f->killed, "journal/*.log", &f->journal); /* last: in order, the last group is the last file's */
	find_targets(&f->closed, "journal/*.snap", &f->journal_closed);
	find_targets(&f->closed, "journal/*.log", &f->journal_closed);
	find_targets(&f->closed, "index/*", &f->index);
	if (!f->killed_tree || f->journal.nr == 0 || f->index.nr == 0)
		return -EIO;
	f->start[HEADERS] = 2 * 4096;
	f->start[SUPERBLOCK_BOTH] = 4096;
	f->start[TABLES] = f->start[HEADERS] + PACK_BLOCK;
	f->start[JOURNAL] = f->start[TABLES] + PACK_BLOCK;
	f->start[JOURNAL_CLOSED] = f->start[JOURNAL] + f->journal.bytes;
	f->start[INDEX] = f->start[JOURNAL_CLOSED] + f->journal_closed.bytes;
	f->start[DATA] = f->start[INDEX] + NR_INDEX;
	f->start[NR_AREAS] = f->start[DATA] + NR_DATA;
	return 0;
}

static bool run_all(struct flip *f)
{
	bool good = true;

	for (enum area a = 0; (good || f->keep_going) && a < NR_AREAS; a++) {
		struct pool pool = { .scratch = f->scratch,
				     .jobs = pool_jobs(),
				     .keep_going = f->keep_going,
				     .first = f->start[a],
				     .end = f->start[a + 1],
				     .run = run_case,
				     .describe = describe,
				     .userdata = f };
		uint64_t since = monotonic_ns();
		bool right;

		right = pool_run(&pool);
		good = good && right;
		printf("%s: %" PRIu64 " changed, %s, %.1f s\n", area_names[a], (pool.end - pool.first) / f->every,
		       right ? "right or refused" : "WRONG", (double)(monotonic_ns() - since) / 1e9);
	}
	return good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 's' },
						 { "case", required_argument, NULL, 'c' },
						 { "keep-going", no_argument, NULL, 'k' },
						 { "every", required_argument, NULL, 'e' },
						 { 0 } };
	struct flip *f = calloc(1, sizeof(*f));
	bool one = false, good = false;
	uint64_t nr = 0;
	int c, r;

	if (!f)
		return 1;
	f->seed = fate_seed();
	f->every = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's')
			f->seed = strtoull(optarg, NULL, 0);
		if (c == 'c') {
			nr = strtoull(optarg, NULL, 0);
			f->every = 1;
			one = true;
		}
		if (c == 'k')
			f->keep_going = true;
		if (c == 'e')
			f->every = MAX(strtoull(optarg, NULL, 0), 1ull);
		if (c == '?')
			return 2;
	}
	snprintf(f->scratch, sizeof(f->scratch), "/dev/shm/ckptfs-flip.XXXXXX");
	if (!mkdtemp(f->scratch))
		return 1;
	printf("seed %" PRIu64 "\n", f->seed);
	tree_set_options(f->seed);
	r = prepare(f);
	if (r < 0)
		printf("FAILED: cannot make a store: %s\n", strerror(-r));
	else
		good = one ? run_case(f, 0, nr, stdout) == POOL_RIGHT : run_all(f);
	scratch_remove(f->scratch);
	rig_release(&f->closed);
	rig_release(&f->killed);
	free(f->killed_tree);
	free(f);
	return good ? 0 : 1;
}
