/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * repair: a damaged chunk is an error for all files that share it, until its bytes are written again; then all read
 * well.
 *
 * Three files of whole pages share chunks. One chunk after the other is damaged on disk. A reader gets an error
 * and no bytes; the others read well; writing the bytes once more, as another file, makes everyone read well, also
 * after the next mount.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "store/pack/pack_format.h"
#include "tests/content_sync.h"
#include "tests/crash/pool.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/tree.h"
#include "tests/damage/rig.h"

#define NR_PAGES 12 /* distinct, per store */
#define PAGE 4096

/* Files as rows of pages. */
static const char *const files[] = { "ABCDEF", "CDEGHI", "AJKLBB" };

struct repair {
	char scratch[64];
	struct oplog log;
	struct states *states;
	struct state *state;
	uint64_t places[2 * NR_PAGES]; /* pack << 32 | offset of every chunk */
	size_t nr_places;
};

static void fill(char page, uint8_t *ret)
{
	work_bytes(1000 + (uint64_t)page, PAGE * UINT64_C(1000003) * (uint64_t)page, PAGE, ret);
	memset(ret, page, 16); /* never a page of zeros, never two alike */
}

static int write_file(struct engine *e, const char *path, const char *pages)
{
	static uint8_t bytes[16 * PAGE];
	struct content *c;
	int r, q;

	for (size_t i = 0; pages[i]; i++)
		fill(pages[i], bytes + i * PAGE);
	r = tree_create(e, path, 0600);
	if (r == 0)
		r = tree_open(e, path, &c);
	if (r < 0)
		return r;
	content_set_chunking(c, &(enum chunking){ CHUNKING_PAGE });
	r = content_write(c, bytes, strlen(pages) * PAGE, 0);
	q = content_sync(c);
	content_close(c);
	return r < 0 ? r : q;
}

/* 1: read and right, 0: WRONG bytes, <0. */
static int read_file(struct engine *e, const char *path, const char *pages)
{
	static uint8_t expected[PAGE], bytes[PAGE];
	struct content *c;
	int r = tree_open(e, path, &c);
	ssize_t n = PAGE;

	for (size_t i = 0; r == 0 && pages[i]; i++) {
		fill(pages[i], expected);
		n = content_read(c, bytes, PAGE, i * PAGE);
		if (n < 0)
			r = (int)n;
		else if (n != PAGE || memcmp(bytes, expected, PAGE) != 0)
			r = 1;
	}
	content_close(c);
	return r < 0 ? r : r == 0;
}

static void path_of(const struct repair *h, int me, char dir[128], char path[160])
{
	snprintf(dir, 128, "%s/w%d", h->scratch, me);
	snprintf(path, 160, "%s/store", dir);
}

static bool make(void *userdata)
{
	static const char *const tops[] = { RIG_TOP };
	struct repair *h = userdata;
	struct engine_conf conf = rig_conf();
	char dir[128], path[160], name[32];
	struct engine *e;
	int r;

	path_of(h, 0, dir, path);
	r = scratch_empty(dir);
	if (r == 0)
		r = engine_open(path, &conf, &e);
	if (r == 0)
		r = tree_format(e, tops, 1);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		snprintf(name, sizeof(name), RIG_TOP "/f%zu", i);
		r = write_file(e, name, files[i]);
	}
	return r == 0 && engine_close(e) == 0;
}

/* Every chunk, by its bytes: the pages carry their letter. */
static void find_places(struct repair *h, const char *path)
{
	for (uint32_t pack = 1; pack < 20; pack++) {
		char name[300];
		uint8_t page[PAGE], expected[PAGE];
		int fd;

		snprintf(name, sizeof(name), "%s/packs/%s", path, pack_name(pack).s);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		for (uint64_t off = PAGE; fd >= 0 && pread(fd, page, PAGE, (off_t)off) == PAGE; off += PAGE) {
			if (page[0] < 'A' || page[0] > 'L')
				continue;
			fill((char)page[0], expected);
			if (memcmp(page, expected, PAGE) == 0 && h->nr_places < ARRAY_SIZE(h->places))
				h->places[h->nr_places++] = (uint64_t)pack << 32 | off;
		}
		closep(&fd);
	}
}

static char damage(uint64_t place, uint64_t nr, const char *path)
{
	uint64_t off = (uint32_t)place + 16 + nr * 131 % (PAGE - 16);
	char name[300], letter = 0;
	uint8_t b = 0;
	int fd;

	snprintf(name, sizeof(name), "%s/packs/%s", path, pack_name((uint32_t)(place >> 32)).s);
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &b, 1, (off_t)off) != 1 || pread(fd, &letter, 1, (off_t)(uint32_t)place) != 1)
		letter = 0;
	b ^= (uint8_t)(1u << nr % 8);
	if (letter && pwrite(fd, &b, 1, (off_t)off) != 1)
		letter = 0;
	closep(&fd);
	return letter;
}

/* Every file: an error where the page is in it (or also right bytes, once repaired), right bytes elsewhere. */
static bool check_files(struct engine *e, char damaged, FILE *to)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		bool has = damaged && strchr(files[i], damaged);
		char name[32];
		int r;

		snprintf(name, sizeof(name), RIG_TOP "/f%zu", i);
		r = read_file(e, name, files[i]);
		if (r != (has ? -EIO : 1)) {
			fprintf(to, "page %c damaged, file %zu (%s): %s\n", damaged ? damaged : '-', i, files[i],
				r < 0 ? strerror(-r) : r == 0 ? "WRONG BYTES" : "read as if nothing were");
			return false;
		}
	}
	return true;
}

/* With `verify` no reader has to meet the damage first: the comparison before sharing does. */
static bool check_repairs(const char *path, char letter, bool verify, FILE *to)
{
	struct engine_conf conf = rig_conf();
	const char page[2] = { letter, 0 };
	struct engine *e;
	bool good;
	int r;

	conf.verify = verify;
	r = engine_open(path, &conf, &e);
	if (r < 0)
		return false;
	good = verify || check_files(e, letter, to);
	if (good) {
		r = write_file(e, RIG_TOP "/again", page);
		good = r == 0 && read_file(e, RIG_TOP "/again", page) == 1 && check_files(e, 0, to);
	}
	if (r < 0)
		fprintf(to, "writing again: %s\n", strerror(-r));
	r = engine_close(e);
	if (!good || r < 0)
		return false;
	r = engine_open(path, &conf, &e);
	if (r < 0)
		return false;
	good = check_files(e, 0, to) && read_file(e, RIG_TOP "/again", page) == 1;
	return engine_close(e) == 0 && good;
}

static enum pool_verdict run_case(void *userdata, int me, uint64_t nr, FILE *to)
{
	struct repair *h = userdata;
	bool verify = nr >= NR_PAGES;
	char dir[128], path[160], letter;

	record_set_sparse(true);
	path_of(h, me, dir, path);
	if (scratch_empty(dir) < 0 || state_store(h->state, dir) < 0)
		return POOL_WRONG;
	letter = damage(h->places[nr % NR_PAGES], nr, path);
	if (!letter) {
		fprintf(to, "cannot be set up\n");
		return POOL_WRONG;
	}
	return check_repairs(path, letter, verify, to) ? POOL_RIGHT : POOL_WRONG;
}

static void describe(void *userdata, int me, uint64_t nr)
{
	(void)userdata;
	(void)me;
	printf("chunk %" PRIu64 "\n", nr);
}

static bool prepare(struct repair *h)
{
	char dir[128], path[160];

	path_of(h, 0, dir, path);
	if (!pool_apart(make, h) || record_start(dir) < 0)
		return false;
	find_places(h, path);
	return record_stop(&h->log) == 0 && states_new(&h->log, "index", &h->states) == 0 &&
	       states_seek(h->states, h->log.nr) == 0 && states_make(h->states, 0, 0, &h->state) == 0;
}

int main(void)
{
	struct repair h = { .scratch = "/dev/shm/ckptfs-repair.XXXXXX" };
	bool good = false;

	if (!mkdtemp(h.scratch))
		return 1;
	if (!prepare(&h)) {
		printf("FAILED: cannot make a store\n");
	} else if (h.nr_places != NR_PAGES) {
		printf("FAILED: %zu chunks stored, %d distinct ones written\n", h.nr_places, NR_PAGES);
	} else {
		struct pool pool = { .scratch = h.scratch,
				     .jobs = pool_jobs(),
				     .end = 2 * NR_PAGES,
				     .run = run_case,
				     .describe = describe,
				     .userdata = &h };

		good = pool_run(&pool);
		printf("%d chunks damaged and written again: %s\n", NR_PAGES, good ? "all repaired" : "WRONG");
	}
	scratch_remove(h.scratch);
	state_free(h.state);
	states_free(h.states);
	oplog_release(&h.log);
	return good ? 0 : 1;
}
