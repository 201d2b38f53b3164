/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Removed checkpoints and files are erased, whatever is wrong with one of them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/posix/namespace.h"
#include "fs/posix/permission.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal.h"
#include "tests/unit/place.h"

struct world {
	char path[64];
	struct options o;
	struct fs *fs;
};

static const struct cred root = { .pid = PID_ANSWERED };

static void open_world(struct world *w)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path, &w->o.engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o, NULL, &w->fs), 0);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	snprintf(w->path, sizeof(w->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->path));
	assert_int_equal(options_init(&w->o), 0);
	w->o.store = w->o.mountpoint = w->path;
	open_world(w);
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

static uint64_t make(struct world *w, uint64_t dir, const char *name, uint32_t mode)
{
	struct names_new n = { .mode = mode };
	struct stat st;

	assert_int_equal(names_make(w->fs, dir, name, &n, &root, &st), 0);
	names_forget(w->fs, &(struct names_forget){ st.st_ino, 1 }, 1); /* as the kernel does */
	return st.st_ino;
}

static void seal(struct world *w, uint64_t dir)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	assert_int_equal(seal_directory(w->fs, dir, &root, &s, &culprit), 0);
}

static void remove_seal(struct world *w, uint64_t dir)
{
	struct seal_removed removed;

	assert_int_equal(seal_remove(w->fs, dir, &root, &(struct seal_removal){ 0 }, &removed), 0);
}

static bool always(_unused_ void *userdata)
{
	return true;
}

static bool exists(struct world *w, uint64_t ino)
{
	struct ns_inode in;
	int r = attr_load(w->fs, ino, &in);

	assert_true(r >= 0);
	return r > 0;
}

static void a_damaged_tree_does_not_keep_others_from_being_erased(void **state)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	struct world *w = *state;
	uint64_t bad = make(w, NS_ROOT_INO, "bad", S_IFDIR | 0755), lost = make(w, bad, "lost", S_IFREG | 0644);
	uint64_t good = make(w, NS_ROOT_INO, "good", S_IFDIR | 0755), file = make(w, good, "file", S_IFREG | 0644);
	uint64_t large = make(w, NS_ROOT_INO, "large", S_IFREG | 0644);
	uint32_t *bytes = malloc(MiB(1)), seed = 1;
	struct file *f;

	assert_non_null(bytes);
	assert_int_equal(file_open(w->fs, large, O_WRONLY, &f), 0);
	for (uint64_t off = 0; off < MiB(24); off += MiB(1)) {
		for (size_t i = 0; i < MiB(1) / sizeof(*bytes); i++)
			bytes[i] = seed = seed * 1664525 + 1013904223;
		assert_int_equal(content_write(f->content, bytes, MiB(1), off), 0);
	}
	free(bytes);
	file_close(w->fs, f);
	seal(w, bad);
	seal(w, good);
	engine_tx_del(&tx, ns_key_inode(lost));
	assert_int_equal(engine_tx_apply(w->fs->engine, &tx), 0);
	assert_int_equal(fs_close(w->fs), 0); /* nothing is in memory */
	open_world(w);
	remove_seal(w, bad);
	remove_seal(w, good);
	assert_int_equal(names_unlink(w->fs, NS_ROOT_INO, "large"), 0);
	reaper_wait(w->fs->reaper, always, NULL);
	assert_true(exists(w, bad) && reaper_has_trees(w->fs->reaper, 1001));
	assert_false(exists(w, large));
	assert_false(exists(w, file));
	assert_false(exists(w, good));
}

static bool fails; /* to erase names */

int __real_names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now_ns);
int __wrap_names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now_ns);
int __wrap_names_drop(struct fs *fs, struct engine_tx *tx, struct ns_inode *in, int64_t now_ns)
{
	return fails ? -EIO : __real_names_drop(fs, tx, in, now_ns);
}

static uint64_t make_for(struct world *w, uint64_t dir, const char *name, uint32_t mode, const struct cred *cred)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	uint64_t ino = make(w, dir, name, mode);
	struct ns_inode in;

	rwlock_lock(&w->fs->names);
	assert_int_equal(attr_load(w->fs, ino, &in), 1);
	in.uid = cred->uid;
	attr_store(w->fs, &tx, &in);
	assert_int_equal(fs_apply(w->fs, &tx), 0);
	rwlock_unlock(&w->fs->names);
	return ino;
}

static int try_seal(struct world *w, uint64_t dir, const struct cred *cred)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	return seal_directory(w->fs, dir, cred, &s, &culprit);
}

/* One that removes large checkpoints, or many. */
static void a_user_that_removes_keeps_no_other_from_sealing(void **state)
{
	static const struct cred alice = { .uid = 1001, .pid = PID_ANSWERED }, bob = { .uid = 1002, .pid = PID_ANSWERED };
	struct world *w = *state;
	uint64_t home = make_for(w, NS_ROOT_INO, "home", S_IFDIR | 0777, &alice);
	uint64_t old = make_for(w, home, "old", S_IFDIR | 0755, &alice);
	uint64_t hers = make_for(w, home, "new", S_IFDIR | 0755, &alice);
	uint64_t his = make_for(w, NS_ROOT_INO, "his", S_IFDIR | 0755, &bob);
	uint64_t a = make_for(w, hers, "a", S_IFREG | 0644, &alice), b = make_for(w, his, "b", S_IFREG | 0644, &bob);
	_cleanup_(caller_release) struct caller caller = caller_of(&root);
	struct seal_removed removed;
	struct stat st;

	make_for(w, old, "file", S_IFREG | 0644, &alice);
	assert_int_equal(names_link(w->fs, a, hers, "twin", &caller, &st), 0);
	assert_int_equal(names_link(w->fs, b, his, "twin", &caller, &st), 0);
	reaper_wait(w->fs->reaper, always, NULL);
	assert_int_equal(try_seal(w, old, &alice), 0);
	fails = true;
	assert_int_equal(seal_remove(w->fs, old, &alice, &(struct seal_removal){ 0 }, &removed), 0);
	reaper_wait(w->fs->reaper, always, NULL);
	assert_int_equal(try_seal(w, hers, &alice), -EBUSY);
	assert_int_equal(try_seal(w, his, &bob), 0);
	fails = false;
	reaper_wake(w->fs->reaper);
	reaper_wait(w->fs->reaper, always, NULL);
	assert_false(exists(w, old));
	assert_int_equal(try_seal(w, hers, &alice), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_damaged_tree_does_not_keep_others_from_being_erased, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_user_that_removes_keeps_no_other_from_sealing, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("reaper", tests, NULL, NULL);
}
