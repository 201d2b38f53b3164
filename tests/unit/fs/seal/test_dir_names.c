/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Paths of many directories: how often their parents are read, and that the names are those that they have now. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "fs/posix/namespace.h"
#include "fs/seal/dir_names.h"
#include "fs/seal/seal.h"
#include "index/namespace_table.h"
#include "tests/unit/place.h"

#define NR_SEALS 150u
#define NR_DIRS 30000u /* more than fit into some sets */
#define OTHER_UID 1001u

struct world {
	char path[64];
	struct options o;
	struct fs *fs;
};

static const struct cred owner = { .uid = 1000, .gid = 100 };
static uint64_t nr_read; /* entries of directories */

int __real_ns_readdir_next(struct db_iter *it, struct ns_dirent *ret);
int __wrap_ns_readdir_next(struct db_iter *it, struct ns_dirent *ret);

int __wrap_ns_readdir_next(struct db_iter *it, struct ns_dirent *ret)
{
	nr_read++;
	return __real_ns_readdir_next(it, ret);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct engine *e;

	snprintf(w->path, sizeof(w->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->path));
	assert_int_equal(options_init(&w->o), 0);
	w->o.store = w->o.mountpoint = w->path;
	assert_int_equal(engine_open(w->path, &w->o.engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o, NULL, &w->fs), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	char command[160];

	assert_int_equal(fs_close(w->fs), 0);
	options_release(&w->o);
	snprintf(command, sizeof(command), "rm -rf %s", w->path);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static uint64_t make(struct world *w, uint64_t dir, const char *name)
{
	struct names_new n = { .mode = S_IFDIR | 0755 };
	struct stat st;

	assert_int_equal(names_make(w->fs, dir, name, &n, &owner, &st), 0);
	return st.st_ino;
}

/* Lists all sealed directories, which must be run.N/step; how many entries of directories are read for that? */
static uint64_t list(struct world *w, unsigned nr)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	uint64_t ino = 0;
	struct ns_seal seal;
	char want[32];
	unsigned i = 0;

	nr_read = 0;
	while (buf_clear(&path), seal_next(w->fs, ino, 0, &ino, &seal, &path) > 0) {
		snprintf(want, sizeof(want), "run.%u/step", i++);
		assert_int_equal(path.len, strlen(want));
		assert_memory_equal(path.data, want, path.len);
	}
	assert_int_equal(i, nr);
	return nr_read;
}

static void seal_some(struct world *w, unsigned from, unsigned to)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal seal;
	char name[32];

	for (unsigned i = from; i < to; i++) {
		snprintf(name, sizeof(name), "run.%u", i);
		assert_int_equal(seal_directory(w->fs, make(w, make(w, NS_ROOT_INO, name), "step"), &owner, &seal,
						&culprit),
				 0);
	}
}

static void listing_twice_as_many_reads_twice_as_much(void **state)
{
	struct world *w = *state;

	seal_some(w, 0, NR_SEALS);
	assert_in_range(list(w, NR_SEALS), NR_SEALS, 10 * NR_SEALS);
	seal_some(w, NR_SEALS, 2 * NR_SEALS);
	assert_in_range(list(w, 2 * NR_SEALS), 2 * NR_SEALS, 20 * NR_SEALS);
}

static void seals_of_others_are_skipped_while_names_change(void **state)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct world *w = *state;
	uint64_t ino = 0;
	struct ns_seal seal;

	seal_some(w, 0, NR_SEALS);
	rwlock_lock(&w->fs->names);
	assert_int_equal(seal_next(w->fs, 0, OTHER_UID, &ino, &seal, &path), 0);
	rwlock_unlock(&w->fs->names);
}

static void find(struct world *w, uint64_t parent, uint64_t dir, const char *name)
{
	struct ns_dirent d;

	assert_int_equal(dir_names_find(w->fs->dir_names, w->fs->db, parent, dir, &d), 0);
	assert_int_equal(d.ino, dir);
	assert_string_equal(d.name, name);
}

static void names_are_the_present_ones(void **state)
{
	struct world *w = *state;
	uint64_t a = make(w, NS_ROOT_INO, "a"), b = make(w, a, "b"), c = make(w, a, "c");
	struct ns_dirent d;

	find(w, a, b, "b");
	find(w, a, c, "c");
	assert_int_equal(names_rename(w->fs, a, "b", a, "d", 0), 0);
	assert_int_equal(names_rename(w->fs, a, "c", a, "b", 0), 0);
	find(w, a, b, "d");
	find(w, a, c, "b");
	assert_int_equal(names_rename(w->fs, a, "d", NS_ROOT_INO, "d", 0), 0);
	assert_int_equal(dir_names_find(w->fs->dir_names, w->fs->db, a, b, &d), -ENOENT);
	find(w, NS_ROOT_INO, b, "d");
}

static void more_than_fit_are_found(void **state)
{
	struct world *w = *state;
	uint64_t top = make(w, NS_ROOT_INO, "top"), first = 0;
	char name[32];

	for (unsigned i = 0; i < NR_DIRS; i++) {
		snprintf(name, sizeof(name), "%u", i);
		if (i == 0)
			first = make(w, top, name);
		else
			assert_int_equal(make(w, top, name), first + i);
	}
	nr_read = 0;
	for (unsigned i = 0; i < NR_DIRS; i++) {
		snprintf(name, sizeof(name), "%u", i);
		find(w, top, first + i, name);
	}
	assert_in_range(nr_read, NR_DIRS, 20 * NR_DIRS);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		world_test(seals_of_others_are_skipped_while_names_change),
		world_test(listing_twice_as_many_reads_twice_as_much),
		world_test(names_are_the_present_ones),
		world_test(more_than_fit_are_found),
	};

	return cmocka_run_group_tests_name("dir_names", tests, NULL, NULL);
}
