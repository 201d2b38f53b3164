/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * fsck: a store is damaged at random, as disks and accidents do it, and then checked and repaired.
 *
 *   A check changes nothing, not even a time, and never fails for what it finds.
 *   What it calls clean is: all files are read and compared.
 *   What is repaired with nothing left is clean afterwards, and all files are as they were.
 *   Otherwise each file is right, or cannot be read and was named; or the store cannot be opened, and that was told.
 *   One changed byte anywhere but in the data of a chunk or in both superblocks is always repaired.
 *
 * Two stores as in flip.c: one closed; one killed: its journal is all there is of its last commits, so that damage
 * to it may bring back an earlier moment. FSCK_CASES tells how many cases of each. The seed decides whether they are
 * compressed, and how.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "store/check/check.h"
#include "store/pack/pack_format.h"
#include "tests/crash/fate.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/tree.h"
#include "tests/damage/rig.h"

#define NR_OPS 120
#define NR_CASES 200
#define MAX_FILES 256
#define NR_HITS 512

enum kind { CHANGE_BYTE, ZERO_SECTOR, ZERO_BLOCK, SCRIBBLE, COPY_BLOCK, CUT, REMOVE, EMPTY, NR_KINDS };

static const char *const kind_names[NR_KINDS] = {
	"changed byte", "zeroed sector", "zeroed block", "scribble", "block copied over another",
	"cut",		"removed",	 "emptied",
};

struct files {
	char name[MAX_FILES][256]; /* below the store */
	uint64_t size[MAX_FILES];
	size_t nr;
};

/* What was done to a store. */
struct harm {
	enum kind kind;
	char name[256];
	uint64_t off, len;
	bool in_data; /* perhaps of chunks */
};

struct fsck {
	uint64_t seed, nr_cases;
	bool keep_going;
	char scratch[64];
	struct rig rig[2]; /* closed, killed */
	struct harm harm; /* of the case at hand */
};

/* What a check has said. */
struct said {
	struct check_result result;
	char hits[NR_HITS][64];
	size_t nr_hits;
	bool of_journal;
	FILE *to;
};

/* --- damaging --- */

static struct files *listed;
static size_t listed_skip;

static int list_file(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	const char *name = path + listed_skip;

	if (type != FTW_F || strncmp(name, "index/LOG", 9) == 0 || strncmp(name, "reserve", 7) == 0 || listed->nr == MAX_FILES)
		return 0;
	snprintf(listed->name[listed->nr], sizeof(listed->name[0]), "%s", name);
	listed->size[listed->nr++] = (uint64_t)st->st_size;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* In a fixed order, so that a case can be run again. */
static void list_files(const char *store, struct files *ret)
{
	struct stat st;
	char path[512];

	ret->nr = 0;
	listed = ret;
	listed_skip = strlen(store) + 1;
	nftw(store, list_file, 16, FTW_PHYS);
	qsort(ret->name, ret->nr, sizeof(ret->name[0]), by_name);
	for (size_t i = 0; i < ret->nr; i++) {
		snprintf(path, sizeof(path), "%s/%s", store, ret->name[i]);
		ret->size[i] = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
	}
}

/* Where chunks may be, or the holes that short frames leave. */
static bool is_data(const char *name, uint64_t off, uint64_t len)
{
	uint64_t block = off / PACK_BLOCK, end = (off + len - 1) / PACK_BLOCK;

	if (strncmp(name, "packs/", 6) != 0)
		return false;
	for (; block <= end; block++)
		if (block > 0 && (block - 1) % PACK_FRAME_STRIDE != 0)
			return true;
	return false;
}

/* Somewhere in the file, rather at its beginning, and in packs often in the tables. */
static uint64_t choose_off(struct fate_rng *rng, const char *name, uint64_t size)
{
	uint64_t frames = size / (PACK_FRAME_STRIDE * PACK_BLOCK) + 1;
	uint64_t limit = fate_random(rng, 3) ? MIN(size, (uint64_t)64 << 10) : size;

	if (strncmp(name, "packs/", 6) == 0 && fate_random(rng, 2))
		return MIN(pack_table_off((uint32_t)fate_random(rng, frames)) + fate_random(rng, PACK_BLOCK), size - 1);
	return fate_random(rng, limit);
}

static bool overwrite(int fd, const struct harm *h, struct fate_rng *rng)
{
	static uint8_t bytes[PACK_BLOCK];

	if (pread(fd, bytes, h->len, (off_t)h->off) != (ssize_t)h->len)
		return false;
	for (uint64_t i = 0; i < h->len; i++) {
		if (h->kind == CHANGE_BYTE)
			bytes[i] ^= (uint8_t)(1 + fate_random(rng, 255));
		else
			bytes[i] = h->kind == SCRIBBLE ? (uint8_t)fate_random(rng, 256) : 0;
	}
	return pwrite(fd, bytes, h->len, (off_t)h->off) == (ssize_t)h->len;
}

static bool copy_block(int fd, const struct harm *h, uint64_t size, struct fate_rng *rng)
{
	static uint8_t bytes[PACK_BLOCK];
	uint64_t from = round_down(fate_random(rng, size), PACK_BLOCK);
	ssize_t n = pread(fd, bytes, h->len, (off_t)from);

	return n > 0 && pwrite(fd, bytes, (size_t)n, (off_t)h->off) == n;
}

static bool harm_file(const char *path, struct harm *h, uint64_t size, struct fate_rng *rng)
{
	static const uint64_t steps[NR_KINDS] = { 1, 512, PACK_BLOCK, 1, PACK_BLOCK };
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool done = fd >= 0;

	h->off = round_down(choose_off(rng, h->name, size), MAX(steps[h->kind], UINT64_C(1)));
	h->len = h->kind == SCRIBBLE ? 1 + fate_random(rng, 600) : steps[h->kind];
	h->len = MIN(h->len, size - h->off);
	if (h->kind == CUT) {
		h->len = size - h->off;
		done = done && ftruncate(fd, (off_t)h->off) == 0;
	} else if (h->kind == COPY_BLOCK) {
		done = done && copy_block(fd, h, size, rng);
	} else {
		done = done && overwrite(fd, h, rng);
	}
	closep(&fd);
	return done;
}

static bool harm_store(const char *store, struct fate_rng *rng, struct harm *h)
{
	static struct files files;
	char path[512];
	size_t i;

	list_files(store, &files);
	i = fate_random(rng, files.nr);
	*h = (struct harm){ .kind = (enum kind)fate_random(rng, NR_KINDS) };
	if (fate_random(rng, 2))
		h->kind = CHANGE_BYTE;
	snprintf(h->name, sizeof(h->name), "%s", files.name[i]);
	snprintf(path, sizeof(path), "%s/%s", store, files.name[i]);
	if (h->kind == REMOVE || files.size[i] == 0) {
		h->kind = REMOVE;
		h->in_data = strncmp(h->name, "packs/", 6) == 0;
		return unlink(path) == 0;
	}
	if (h->kind == EMPTY) {
		h->in_data = strncmp(h->name, "packs/", 6) == 0;
		return truncate(path, 0) == 0;
	}
	if (!harm_file(path, h, files.size[i], rng))
		return false;
	h->in_data = is_data(h->name, h->off, h->len);
	return true;
}

/* --- what a store looks like, to the byte and the time --- */

static struct buf *looks;

static int look_at(const char *path, const struct stat *st, int type, _unused_ struct FTW *at)
{
	_cleanup_(freep) uint8_t *bytes = NULL;
	char line[700];
	uint64_t hash = 0;
	int fd;

	if (type == FTW_F) {
		bytes = malloc((size_t)st->st_size + 1);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (bytes && fd >= 0 && read(fd, bytes, (size_t)st->st_size) == st->st_size)
			hash = tree_hash(bytes, (size_t)st->st_size);
		closep(&fd);
	}
	snprintf(line, sizeof(line), "%s %jd %jd.%ld %jd.%ld %016" PRIx64 "\n", path, (intmax_t)st->st_size,
		 (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (intmax_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
		 hash);
	buf_add(looks, line, strlen(line));
	return 0;
}

static void look_of(const char *store, struct buf *ret)
{
	looks = ret;
	nftw(store, look_at, 16, FTW_PHYS);
	buf_add_u8(ret, 0);
}

/* --- checking --- */

static void on_finding(void *userdata, const struct check_finding *f)
{
	struct said *s = userdata;

	fprintf(s->to, "  %s%s%s%s\n", f->repaired ? "repaired: " : "", f->path ? f->path : "", f->path ? ": " : "",
		f->text);
	s->of_journal |= f->area == CHECK_JOURNAL;
	if (f->path && s->nr_hits < NR_HITS)
		snprintf(s->hits[s->nr_hits++], sizeof(s->hits[0]), "%s", f->path);
}

/* What a process of its own does, and how it ended: as the tool runs alone, and threads of RocksDB stay behind. */
struct step {
	const char *store;
	const struct rig *rig;
	bool repair, whole, moments;
	FILE *to;
	struct said said;
	int result;
};

static bool check_step(void *userdata)
{
	struct step *st = userdata;
	struct check_conf conf = { .cache = MiB(8),
				   .read_data = true,
				   .repair = st->repair,
				   .discard_commits = st->repair,
				   .finding = on_finding,
				   .userdata = &st->said };

	st->said = (struct said){ .to = st->to };
	fprintf(st->to, "%s:\n", st->repair ? "repairing" : "checking");
	st->result = check_store(st->store, &conf, &st->said.result);
	return true;
}

static bool check(struct step *st, bool repair)
{
	st->repair = repair;
	return pool_apart(check_step, st);
}

/* What can be read is as it was at one moment. */
static bool is_moment(const struct workload *w, const char *tree)
{
	FILE *null = fopen("/dev/null", "we");
	bool found = false;

	for (size_t i = 0; null && !found && i <= w->nr; i++)
		found = tree_agrees(w->lists[i], tree, null);
	fclose(null);
	return found;
}

static bool was_named(const struct said *s, const char *line)
{
	size_t len = strcspn(line, " ");

	for (size_t i = 0; i < s->nr_hits; i++)
		if (strncmp(s->hits[i], RIG_TOP "/", 2) == 0 && strlen(s->hits[i] + 2) == len &&
		    strncmp(s->hits[i] + 2, line, len) == 0)
			return true;
	return false;
}

/* Every line "name !" is of a file that was named. */
static bool all_named(const struct said *s, const char *found, FILE *to)
{
	for (const char *line = found; *line; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n");

		if (len < 2 || strncmp(line + len - 2, " !", 2) != 0 || was_named(s, line) || s->nr_hits == NR_HITS)
			continue;
		fprintf(to, "%.*s: cannot be read, and was not named\n", (int)len, line);
		return false;
	}
	return true;
}

/* result 1: opened, and right as far as it goes; 0: wrong; <0: cannot be opened. `whole`: everything must be there. */
static bool look_step(void *userdata)
{
	_cleanup_(buf_release) struct buf found = BUF_EMPTY;
	struct engine_conf conf = rig_conf();
	struct step *st = userdata;
	struct engine *e;
	bool good;
	int r;

	st->result = engine_open(st->store, &conf, &e);
	if (st->result < 0) {
		fprintf(st->to, "cannot be opened: %s\n", strerror(-st->result));
		return true;
	}
	r = st->whole ? tree_list(e, RIG_TOP, &found) : tree_list_damaged(e, RIG_TOP, &found);
	if (r < 0)
		fprintf(st->to, "cannot be read: %s\n", strerror(-r));
	good = r == 0 && ((st->moments && is_moment(st->rig->work, (char *)found.data)) ||
			  tree_agrees(rig_final(st->rig), (char *)found.data, st->to));
	if (good && !st->whole)
		good = all_named(&st->said, (char *)found.data, st->to);
	st->result = good;
	engine_close(e);
	return true;
}

static bool look(struct step *st, bool whole, bool moments)
{
	st->whole = whole;
	st->moments = moments;
	return pool_apart(look_step, st);
}

static bool check_changes_nothing(struct step *st)
{
	_cleanup_(buf_release) struct buf before = BUF_EMPTY, after = BUF_EMPTY;
	bool lived;

	look_of(st->store, &before);
	lived = check(st, false);
	look_of(st->store, &after);
	if (lived && strcmp((char *)before.data, (char *)after.data) == 0)
		return true;
	fprintf(st->to, lived ? "the check has changed something\n" : "the check died\n");
	return false;
}

/* Single faults of a closed store for which there always is a second source. */
static bool must_be_repaired(const struct fsck *f, const struct harm *h, const struct rig *rig)
{
	return rig == &f->rig[0] && h->kind == CHANGE_BYTE && !h->in_data;
}

static bool check_case(const struct fsck *f, struct step *st, const struct harm *h)
{
	bool killed = st->rig == &f->rig[1];

	if (!check_changes_nothing(st))
		return false;
	if (st->result < 0) /* no store, or not one of ours */
		return st->result == -ENOENT || st->result == -EOPNOTSUPP;
	if (st->said.result.nr_left == 0) {
		fprintf(st->to, "clean, so all must be there\n");
		return look(st, true, killed) && st->result == 1;
	}
	if (!check(st, true) || st->result < 0)
		return false;
	if (st->said.result.nr_left > 0) /* what cannot be opened has been told */
		return !must_be_repaired(f, h, st->rig) && look(st, false, killed || st->said.of_journal) &&
		       st->result != 0;
	fprintf(st->to, "repaired, so all must be there\n");
	if (!look(st, true, killed) || st->result != 1)
		return false;
	return check(st, false) && st->result == 0 && st->said.result.nr_left == 0;
}

static enum pool_verdict run_case(void *userdata, int me, uint64_t nr, FILE *to)
{
	struct fsck *f = userdata;
	const struct rig *rig = &f->rig[nr % 2];
	struct fate_rng rng = fate_rng(f->seed, nr, 0);
	char dir[128], store[160];
	struct step *st;
	struct harm h;
	bool good;

	st = mmap(NULL, sizeof(*st), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (st == MAP_FAILED)
		return POOL_WRONG;
	*st = (struct step){ .store = store, .rig = rig, .to = to };
	record_set_sparse(true);
	snprintf(dir, sizeof(dir), "%s/w%d", f->scratch, me);
	snprintf(store, sizeof(store), "%s/store", dir);
	if (rig_stamp(rig, dir) < 0 || !harm_store(store, &rng, &h)) {
		fprintf(to, "cannot be set up\n");
		return POOL_WRONG;
	}
	fprintf(to, "%s store, %s: %s at %" PRIu64 ", %" PRIu64 " bytes%s\n", nr % 2 ? "killed" : "closed", h.name,
		kind_names[h.kind], h.off, h.len, h.in_data ? ", perhaps in chunks" : "");
	good = check_case(f, st, &h);
	munmap(st, sizeof(*st));
	return good ? POOL_RIGHT : POOL_WRONG;
}

static void describe(void *userdata, _unused_ int me, uint64_t nr)
{
	const struct fsck *f = userdata;

	printf("again: damage_fsck --seed %" PRIu64 " --case %" PRIu64 "\n", f->seed, nr);
}

static bool run_all(struct fsck *f)
{
	struct pool pool = { .scratch = f->scratch,
			     .jobs = pool_jobs(),
			     .keep_going = f->keep_going,
			     .end = 2 * f->nr_cases,
			     .run = run_case,
			     .describe = describe,
			     .userdata = f };
	uint64_t since = monotonic_ns();
	bool good = pool_run(&pool);

	printf("%" PRIu64 " damaged stores: %s, %.1f s\n", pool.end, good ? "all found, repaired or told" : "WRONG",
	       (double)(monotonic_ns() - since) / 1e9);
	return good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 's' },
						 { "case", required_argument, NULL, 'c' },
						 { "cases", required_argument, NULL, 'n' },
						 { "keep-going", no_argument, NULL, 'k' },
						 { 0 } };
	struct fsck f = { .seed = fate_seed(), .nr_cases = NR_CASES, .scratch = "/dev/shm/ckptfs-fsck.XXXXXX" };
	const char *cases = getenv("FSCK_CASES");
	bool one = false, good = false;
	uint64_t nr = 0;
	int c, r = 0;

	if (cases)
		f.nr_cases = strtoull(cases, NULL, 0);
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's')
			f.seed = strtoull(optarg, NULL, 0);
		if (c == 'c') {
			nr = strtoull(optarg, NULL, 0);
			one = true;
		}
		if (c == 'n' && !cases)
			f.nr_cases = strtoull(optarg, NULL, 0);
		if (c == 'k')
			f.keep_going = true;
		if (c == '?')
			return 2;
	}
	if (!mkdtemp(f.scratch))
		return 1;
	printf("seed %" PRIu64 "\n", f.seed);
	tree_set_options(f.seed);
	for (int i = 0; i < 2 && r == 0; i++)
		r = rig_init(&f.rig[i], f.scratch, i ? "killed" : "closed", f.seed + (uint64_t)i, NR_OPS, i);
	if (r < 0)
		printf("FAILED: cannot make a store: %s\n", strerror(-r));
	else
		good = one ? run_case(&f, 0, nr, stdout) == POOL_RIGHT : run_all(&f);
	scratch_remove(f.scratch);
	for (int i = 0; i < 2; i++)
		rig_release(&f.rig[i]);
	return good ? 0 : 1;
}
