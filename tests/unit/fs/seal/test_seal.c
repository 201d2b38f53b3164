/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A seal, step by step: what others see, and what a crash leaves, between any two of its transactions. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cancel.h"
#include "base/util.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/seal/freeze.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/mount_options.h"
#include "fs/seal/seal.h"
#include "fs/posix/xattr.h"
#include "tests/unit/place.h"

#define NR_FILES 300u /* five transactions */

struct world {
	char path[64];
	struct options o;
	struct fs *fs;
	uint64_t top, sub, first, last, remote;
	unsigned nr_steps; /* so far; and at which of them to stop */
	unsigned stop_at;
	unsigned nr_crashed; /* marks at the last crash */
	unsigned nr_half_marked; /* steps with some files marked and others not */
	void (*look)(struct world *w, unsigned nr_marked);
	struct cancel cancel;
};

static const struct cred owner = { .uid = 1000, .gid = 100 };

static uint64_t make(struct world *w, uint64_t dir, const char *name, uint32_t mode)
{
	struct names_new n = { .mode = mode };
	struct stat st;

	assert_int_equal(names_make(w->fs, dir, name, &n, &owner, &st), 0);
	return st.st_ino;
}

static void open_store(const char *path, struct options *o, struct fs **ret)
{
	struct engine *e;

	assert_int_equal(engine_open(path, &o->engine, &e), 0);
	assert_int_equal(fs_open(e, o, NULL, ret), 0);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct stat st;

	snprintf(w->path, sizeof(w->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->path));
	assert_int_equal(options_init(&w->o), 0);
	w->o.store = w->o.mountpoint = w->path;
	open_store(w->path, &w->o, &w->fs);
	w->top = make(w, NS_ROOT_INO, "top", S_IFDIR | 0755);
	w->sub = make(w, w->top, "sub", S_IFDIR | 0755);
	w->remote = make(w, NS_ROOT_INO, "elsewhere", S_IFDIR | 0755);
	for (unsigned i = 0; i < NR_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		w->last = make(w, w->sub, name, S_IFREG | 0644);
		w->first = i == 0 ? w->last : w->first;
	}
	assert_int_equal(names_link(w->fs, w->first, w->top, "twin", NULL, &st), 0);
	assert_int_equal(names_link(w->fs, w->first, w->remote, "outside", NULL, &st), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	char command[160];

	assert_int_equal(fs_close(w->fs), 0);
	options_release(&w->o);
	snprintf(command, sizeof(command), "rm -rf %s %s.copy", w->path, w->path);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static unsigned nr_marked(struct fs *fs, const struct world *w)
{
	struct ns_inode in;
	unsigned nr = 0;

	for (uint64_t ino = w->top; ino <= w->last; ino++) {
		if (ino == w->remote)
			continue;
		assert_int_equal(attr_load(fs, ino, &in), 1);
		nr += in.flags & INODE_SEALED ? 1 : 0;
	}
	return nr;
}

static int open_to_write(struct world *w, uint64_t ino)
{
	struct file *f;
	int r = file_open(w->fs, ino, O_WRONLY, &f);

	if (r == 0)
		file_close(w->fs, f);
	return r;
}

static int set_xattr(struct world *w, uint64_t ino)
{
	struct inode *i;
	int r;

	assert_int_equal(inode_get(w->fs->inodes, ino, &i), 0);
	r = xattr_set(w->fs, i, 0, "user.step", "seven", 5, 0, false);
	names_put(w->fs, i);
	return r;
}

/* Every change of the tree, or that moves something into it or out of it, returns `expected`. */
static void check_changes(struct world *w, int expected)
{
	struct names_new n = { .mode = S_IFREG | 0644 };
	struct fs *fs = w->fs;
	struct stat st;

	assert_int_equal(names_make(fs, w->sub, "new", &n, &owner, &st), expected);
	assert_int_equal(names_make(fs, w->sub, NULL, &n, &owner, &st), expected);
	assert_int_equal(names_unlink(fs, w->sub, "f1"), expected);
	assert_int_equal(names_rename(fs, w->sub, "f1", w->sub, "f1.moved", 0), expected);
	assert_int_equal(open_to_write(w, w->first), expected);
	assert_int_equal(set_xattr(w, w->top), expected);
	assert_int_equal(names_rename(fs, NS_ROOT_INO, "top", NS_ROOT_INO, "moved", 0), expected);
	assert_int_equal(names_rename(fs, w->sub, "f1", w->remote, "f1", 0), expected);
	assert_int_equal(names_rename(fs, w->remote, "outside", w->sub, "inside", 0), expected);
	assert_int_equal(names_link(fs, w->last, w->remote, "link", NULL, &st), expected);
	assert_int_equal(names_unlink(fs, w->remote, "outside"), expected);
}

/* Other directories are not concerned. */
static void change_elsewhere(struct world *w)
{
	char name[16];

	snprintf(name, sizeof(name), "new%u", w->nr_steps);
	make(w, w->remote, name, S_IFREG | 0644);
	assert_int_equal(names_unlink(w->fs, w->remote, name), 0);
}

static bool is_listed(struct fs *fs)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ns_seal s;
	uint64_t ino;
	int r = seal_next(fs, 0, 0, &ino, &s, &path);

	assert_true(r >= 0);
	return r > 0;
}

/* Called between two steps of the seal, where it holds no lock. */
static bool look(void *userdata)
{
	struct world *w = userdata;
	unsigned nr = nr_marked(w->fs, w);

	cancel_set(NULL); /* for what is called from here */
	w->nr_steps++;
	w->nr_half_marked += nr > 0 && nr < NR_FILES + 2;
	assert_false(is_listed(w->fs));
	change_elsewhere(w);
	if (w->look)
		w->look(w, nr);
	cancel_set(&w->cancel);
	return w->stop_at != 0 && w->nr_steps >= w->stop_at;
}

static int seal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;
	int r;

	w->cancel = (struct cancel){ look, w };
	w->nr_steps = 0;
	cancel_set(&w->cancel);
	r = seal_directory(w->fs, w->top, &owner, &s, &culprit);
	cancel_set(NULL);
	return r;
}

static int unseal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	return seal_undo(w->fs, w->top, &owner, &culprit);
}

static void check_that_changes_wait(struct world *w, unsigned nr_marked)
{
	if (nr_marked > 0)
		check_changes(w, -EINPROGRESS);
}

static void changes_wait_for_the_outcome_while_others_go_on(void **state)
{
	struct world *w = *state;

	w->look = check_that_changes_wait;
	assert_int_equal(seal(w), 0);
	assert_true(w->nr_half_marked >= 3);
	assert_true(is_listed(w->fs));
	assert_int_equal(nr_marked(w->fs, w), NR_FILES + 2);
	check_changes(w, -EPERM);
	assert_int_equal(unseal(w), 0);
	assert_int_equal(nr_marked(w->fs, w), 0);
	assert_int_equal(open_to_write(w, w->first), 0);
	assert_int_equal(set_xattr(w, w->top), 0);
}

static void given_up_at_any_step_nothing_is_sealed(void **state)
{
	struct world *w = *state;
	unsigned nr;

	assert_int_equal(seal(w), 0);
	nr = w->nr_steps;
	assert_int_equal(unseal(w), 0);
	for (w->stop_at = 1; w->stop_at <= nr; w->stop_at += 1 + nr / 20) {
		int r = seal(w);

		if (r == 0) { /* too late to stop it */
			assert_int_equal(unseal(w), 0);
			continue;
		}
		assert_int_equal(r, -EINTR);
		assert_false(is_listed(w->fs));
		assert_int_equal(nr_marked(w->fs, w), 0);
		assert_false(freezes_has(w->fs->freezes, w->top, NULL));
		assert_int_equal(open_to_write(w, w->first), 0);
	}
}

/* What a kill leaves of what is durable at this moment. */
static void crash(struct world *w, unsigned nr)
{
	struct options o = w->o;
	char command[256], path[80];
	struct fs *fs;

	if (nr == w->nr_crashed)
		return;
	w->nr_crashed = nr;
	assert_int_equal(engine_sync(w->fs->engine), 0);
	snprintf(path, sizeof(path), "%s.copy", w->path);
	snprintf(command, sizeof(command), "rm -rf %s && cp -r %s %s", path, w->path, path);
	assert_int_equal(system(command), 0);
	open_store(path, &o, &fs);
	assert_false(is_listed(fs));
	assert_int_equal(nr_marked(fs, w), 0);
	assert_int_equal(fs_close(fs), 0);
}

static void a_crash_at_any_step_leaves_it_unsealed(void **state)
{
	struct world *w = *state;

	w->look = crash;
	assert_int_equal(seal(w), 0);
	assert_true(w->nr_half_marked >= 3);
}

/* As a crash leaves it in the middle of unsealing. */
static void half_a_seal_can_be_unsealed(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(seal(w), 0);
	assert_int_equal(ns_get_seal(w->fs->db, w->top, &s), 1);
	s.is_complete = false;
	ns_seal_encode(&s, &value);
	engine_tx_put(&tx, ns_key_seal(w->top), value.data, value.len);
	assert_int_equal(engine_tx_apply(w->fs->engine, &tx), 0);
	assert_int_equal(unseal(w), 0);
	assert_int_equal(nr_marked(w->fs, w), 0);
	assert_int_equal(seal(w), 0);
}

static void overlapping_seals_are_refused(struct world *w, unsigned nr)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	if (nr == 0 || w->nr_steps % 4 != 0) /* each waits for a while */
		return;
	w->look = NULL;
	assert_int_equal(seal_directory(w->fs, w->sub, &owner, &s, &culprit), -EBUSY);
	assert_int_equal(seal_remove(w->fs, w->top, &owner, &(struct seal_removal){ 0 }, &(struct seal_removed){ 0 }),
			 -EBUSY);
}

static void of_two_seals_one_is_made(void **state)
{
	struct world *w = *state;

	w->look = overlapping_seals_are_refused;
	assert_int_equal(seal(w), 0);
	assert_null(w->look);
	assert_int_equal(nr_marked(w->fs, w), NR_FILES + 2);
}

static void expect_figures(struct world *w, uint64_t sealed, uint64_t made)
{
	assert_int_equal(w->fs->nr_sealed, sealed);
	assert_int_equal(w->fs->nr_seals, made);
}

static void reopen(struct world *w, bool read_only)
{
	assert_int_equal(fs_close(w->fs), 0);
	w->o.engine.read_only = read_only;
	open_store(w->path, &w->o, &w->fs);
}

/* Also over seals that fail and a mount that only reads. */
static void sealed_directories_are_counted(void **state)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct world *w = *state;
	struct seal_removed removed;
	struct ns_seal s, t;
	uint64_t other;

	expect_figures(w, 0, 0);
	assert_int_equal(w->fs->newest_seal_ns, 0);
	w->stop_at = 2;
	w->look = NULL;
	assert_int_equal(seal(w), -EINTR);
	expect_figures(w, 0, 0);
	assert_int_equal(w->fs->newest_seal_ns, 0); /* nothing was sealed */
	w->stop_at = 0;
	assert_int_equal(seal(w), 0);
	assert_int_equal(seal(w), -EALREADY);
	expect_figures(w, 1, 1);
	assert_int_equal(ns_get_seal(w->fs->db, w->top, &s), 1);
	assert_int_equal(w->fs->newest_seal_ns, s.sealed_ns);
	assert_int_equal(unseal(w), 0);
	expect_figures(w, 0, 1);
	assert_int_equal(seal(w), 0);
	other = make(w, NS_ROOT_INO, "other", S_IFDIR | 0755);
	assert_int_equal(seal_directory(w->fs, other, &owner, &t, &culprit), 0);
	expect_figures(w, 2, 3);
	assert_true((uint64_t)t.sealed_ns == w->fs->newest_seal_ns && t.sealed_ns > s.sealed_ns);
	reopen(w, true);
	expect_figures(w, 2, 0);
	assert_int_equal(w->fs->newest_seal_ns, t.sealed_ns);
	reopen(w, false);
	expect_figures(w, 2, 0);
	assert_int_equal(seal_remove(w->fs, other, &(struct cred){ .pid = PID_ANSWERED }, &(struct seal_removal){ 0 },
				     &removed),
			 0);
	expect_figures(w, 1, 0);
	assert_int_equal(w->fs->newest_seal_ns, t.sealed_ns);
	reopen(w, false);
	expect_figures(w, 1, 0);
	assert_true(w->fs->newest_seal_ns < (uint64_t)t.sealed_ns); /* that of the one that is left */
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		world_test(changes_wait_for_the_outcome_while_others_go_on),
		world_test(given_up_at_any_step_nothing_is_sealed),
		world_test(a_crash_at_any_step_leaves_it_unsealed),
		world_test(half_a_seal_can_be_unsealed),
		world_test(of_two_seals_one_is_made),
		world_test(sealed_directories_are_counted),
	};

	return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
