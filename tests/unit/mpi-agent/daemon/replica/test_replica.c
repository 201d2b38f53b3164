/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Replicas of what another node has sealed: content, what must not change, removal, access, and crashes. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/xattr.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/cluster.h"
#include "mpi-agent/daemon/replica/abandon.h"
#include "tests/unit/moment.h"
#include "tests/unit/mpi-agent/daemon/replica/replica_pair.h"

static void a_copy_is_what_was_sealed(void **state)
{
	struct replica_pair *w = *state;
	struct ns_replica c;
	uint64_t top;

	assert_int_equal(pair_take(w), 0);
	assert_int_equal(w->nr_fetched, 0); /* until it is read */
	pair_expect_whole(w);
	assert_true(w->nr_fetched > 0);
	pair_unmount(w, HERE);
	pair_check(w, HERE);
	pair_mount(w, HERE);
	pair_expect_whole(w);
	top = pair_replica(w, &c);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(ns_has_entries(w->fs[HERE]->db, NS_ROOT_INO), 0); /* no way leads there */
	assert_int_equal(pair_look_up(w->fs[HERE], top, ".."), top);
}

static void nothing_of_a_copy_changes(void **state)
{
	struct attr_change mode = { .what = ATTR_MODE, .mode = 0777 };
	struct replica_pair *w = *state;
	struct fs *fs = w->fs[HERE];
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct ns_replica c;
	struct inode *i;
	struct file *f;
	struct stat st;
	uint64_t top, twin;

	assert_int_equal(pair_take(w), 0);
	top = pair_replica(w, &c);
	twin = pair_look_up(fs, top, "twin");
	assert_int_equal(names_make(fs, top, "new", &n, &pair_owner, &st), -EROFS);
	assert_int_equal(names_unlink(fs, top, "twin"), -EROFS);
	assert_int_equal(names_rmdir(fs, top, "sub"), -EROFS);
	assert_int_equal(names_link(fs, twin, NS_ROOT_INO, "mine", NULL, &st), -EROFS);
	assert_int_equal(names_rename(fs, top, "twin", NS_ROOT_INO, "mine", 0), -EROFS);
	pair_make(fs, NS_ROOT_INO, "own", S_IFREG | 0600, NULL);
	assert_int_equal(names_rename(fs, NS_ROOT_INO, "own", top, "twin", 0), -EROFS);
	assert_int_equal(file_open(fs, twin, O_WRONLY, &f), -EROFS);
	assert_int_equal(inode_get(fs->inodes, twin, &i), 0);
	assert_int_equal(attr_change(fs, i, &mode, &st), -EROFS);
	assert_int_equal(xattr_set(fs, i, 0, "user.a", "b", 1, 0, false), -EROFS);
	assert_int_equal(xattr_remove(fs, i, 0, "user.step"), -EROFS);
	names_put(fs, i);
	pair_expect_whole(w);
}

static void a_copy_is_released_when_its_node_is_forgotten(void **state)
{
	static const struct cred stranger = { .uid = 1001, .gid = 100 };
	_cleanup_(buf_release) struct buf node = BUF_EMPTY;
	struct replica_pair *w = *state;
	struct fs *fs = w->fs[HERE];
	struct ns_replica c;
	uint64_t top;

	assert_int_equal(pair_take(w), 0);
	top = pair_replica(w, &c);
	assert_int_equal(seal_undo(fs, top, &pair_owner, &node), -EROFS);
	assert_int_equal(seal_undo(fs, pair_look_up(fs, top, "sub"), &pair_owner, &node), -EROFS);
	assert_int_equal(abandon_replica(fs, pair_look_up(fs, top, "sub"), &pair_owner, &node), -EROFS);
	assert_int_equal(abandon_replica(fs, NS_ROOT_INO, &pair_owner, &node), -EROFS);
	assert_int_equal(abandon_replica(fs, top, &stranger, &node), -EPERM);
	assert_false(engine_cluster_is_expected(
		fs->engine, w->owner.id)); /* a node with a replica of it has not registered it, ... */
	assert_int_equal(engine_cluster_register_peers(fs->engine, &w->owner, 1), 0);
	assert_int_equal(abandon_replica(fs, top, &pair_owner, &node), -EHOSTDOWN);
	assert_int_equal(node.len, strlen(w->s.from.name));
	assert_memory_equal(node.data, w->s.from.name, node.len);
	pair_expect_whole(w);
	assert_int_equal(engine_cluster_forget(fs->engine, w->s.from.name), 0);
	assert_int_equal(pair_take(w), 0);
	assert_true(engine_cluster_is_forgotten(fs->engine, w->owner.id)); /* nor does another one bring it back */
	assert_int_equal(abandon_replica(fs, pair_replica(w, &c), &pair_owner, &node), 0);
	pair_expect_nothing(w);
}

static void a_newer_copy_takes_the_place_of_the_older(void **state)
{
	struct replica_pair *w = *state;
	uint64_t first, second;
	struct ns_replica c;

	assert_int_equal(pair_take(w), 0);
	first = pair_replica(w, &c);
	pair_seal_again(w, "added");
	assert_int_equal(pair_take(w), 0);
	second = pair_replica(w, &c);
	assert_int_not_equal(first, second);
	assert_int_equal(c.state, NS_REPLICA_KEPT);
	assert_int_equal(pair_nr_notes(w), 1);
	pair_expect_whole(w);
	pair_look_up(w->fs[HERE], second, "added");
}

static void what_is_open_can_be_read_after_its_copy_was_dropped(void **state)
{
	struct replica_pair *w = *state;
	struct ns_replica c;
	struct file *f;
	uint8_t got[PAGE];
	uint64_t twin, after;
	struct stat st;

	assert_int_equal(pair_take(w), 0);
	assert_int_equal(names_lookup(w->fs[HERE], pair_replica(w, &c), "twin", &st), 0); /* the kernel knows it */
	twin = st.st_ino;
	f = pair_open(w->fs[HERE], twin, O_RDONLY);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0);
	assert_int_equal(nodes_next(w->fs[HERE], 0, &after, &c), 0);
	assert_int_equal(pair_nr_notes(w), 0);
	assert_int_equal(content_read(f->content, got, PAGE, PAGE), PAGE);
	assert_memory_equal(got, w->bytes + PAGE, PAGE);
	file_close(w->fs[HERE], f);
	names_forget(w->fs[HERE], &(struct names_forget){ twin, 1 }, 1);
	pair_wait_for_reaper(w);
	assert_int_equal(ns_next_orphan(w->fs[HERE]->db, 0, &after), 0);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0); /* again is fine */
}

static uint32_t mode_of_copy(struct replica_pair *w)
{
	struct ns_inode in;
	struct ns_replica c;

	assert_int_equal(attr_load(w->fs[HERE], pair_replica(w, &c), &in), 1);
	return in.mode;
}

/* What lies above it there is closed, and opened again: sealed as it is, and for as long as there is the copy. */
static void access_to_a_replica_is_reported_later(void **state)
{
	struct replica_pair *w = *state;
	struct ns_replica c;

	assert_int_equal(pair_take(w), 0);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0750);
	assert_int_equal(nodes_set_access(w->fs[HERE], pair_replica(w, &c), 0), 0);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0700);
	pair_unmount(w, HERE);
	pair_mount(w, HERE);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0700);
	assert_int_equal(nodes_set_access(w->fs[HERE], pair_replica(w, &c), 050), 0);
	pair_expect_whole(w);
}

static void a_chunk_that_no_node_has_is_an_error_of_its_reader(void **state)
{
	struct replica_pair *w = *state;
	struct ns_replica c;
	struct file *f;
	uint8_t got[PAGE];

	assert_int_equal(pair_take(w), 0);
	w->is_remote = true;
	f = pair_open(w->fs[HERE], pair_look_up(w->fs[HERE], pair_replica(w, &c), "twin"), O_RDONLY);
	assert_int_equal(content_read(f->content, got, PAGE, 0), -EIO);
	w->is_remote = false;
	assert_int_equal(content_read(f->content, got, PAGE, 0), PAGE);
	assert_memory_equal(got, w->bytes, PAGE);
	file_close(w->fs[HERE], f);
}

static void crash_taking(struct replica_pair *w, size_t at)
{
	struct pair_reading r = { .p = w->catalog.data, .len = w->catalog.len, .step = 64, .crash_at = at, .w = w };

	assert_int_equal(pair_take_bytes(w, &r), -EINTR);
	pair_unmount(w, HERE);
	assert_int_equal(moment_restore(w->path[HERE]), 0);
	pair_mount(w, HERE);
}

static void a_crash_while_a_copy_is_made_leaves_the_older_one(void **state)
{
	struct replica_pair *w = *state;

	for (size_t at = 60; at < w->catalog.len; at += w->catalog.len / 7) {
		crash_taking(w, at);
		pair_expect_nothing(w);
	}
	assert_int_equal(pair_take(w), 0);
	for (size_t at = 60; at < w->catalog.len; at += w->catalog.len / 7) {
		w->s.cached = !w->s.cached;
		crash_taking(w, at);
		assert_int_equal(pair_nr_notes(w), 1);
		pair_expect_whole(w);
	}
}

int main(void)
{
#define with_stores(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)
	const struct CMUnitTest tests[] = {
		with_stores(a_copy_is_what_was_sealed),
		with_stores(nothing_of_a_copy_changes),
		with_stores(a_copy_is_released_when_its_node_is_forgotten),
		with_stores(a_newer_copy_takes_the_place_of_the_older),
		with_stores(what_is_open_can_be_read_after_its_copy_was_dropped),
		with_stores(access_to_a_replica_is_reported_later),
		with_stores(a_chunk_that_no_node_has_is_an_error_of_its_reader),
		with_stores(a_crash_while_a_copy_is_made_leaves_the_older_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
