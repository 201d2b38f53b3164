/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/mpi-agent/daemon/replica/replica_pair.h"

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

#include "fs/posix/file.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/posix/xattr.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/cluster.h"
#include "fs/seal/seal_catalog.h"
#include "store/check/check.h"
#include "tests/unit/moment.h"
#include "tests/unit/place.h"

#define HOLE_FROM (4 * PAGE)
#define HOLE_TO (6 * PAGE)

const struct cred pair_owner = { .uid = 1000, .gid = 100 };

static bool is_there(void *userdata _unused_)
{
	return false;
}

static int fetch(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct replica_pair *w = userdata;

	if (w->is_remote)
		return -ETIMEDOUT;
	w->nr_fetched += nr;
	return engine_cluster_chunks(w->fs[OTHER]->engine, wants, nr);
}

void pair_mount(struct replica_pair *w, unsigned i)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path[i], &w->o[i].engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o[i], NULL, &w->fs[i]), 0);
}

void pair_unmount(struct replica_pair *w, unsigned i)
{
	assert_int_equal(fs_close(w->fs[i]), 0);
	w->fs[i] = NULL;
}

static void announce(void *userdata _unused_, const struct check_finding *f)
{
	print_message("fsck: %s\n", f->text);
}

void pair_check(struct replica_pair *w, unsigned i)
{
	const struct check_conf conf = { .cache = MiB(16), .read_data = true, .finding = announce };
	struct check_result res;

	assert_int_equal(check_store(w->path[i], &conf, &res), 0);
	assert_int_equal(res.nr_left, 0);
}

uint64_t pair_make(struct fs *fs, uint64_t dir, const char *name, uint32_t mode, const char *target)
{
	struct names_new n = { .mode = mode, .target = target };
	struct stat st;

	assert_int_equal(names_make(fs, dir, name, &n, &pair_owner, &st), 0);
	return st.st_ino;
}

struct file *pair_open(struct fs *fs, uint64_t ino, int flags)
{
	struct file *f;

	assert_int_equal(file_open(fs, ino, flags, &f), 0);
	return f;
}

static void write_file(struct replica_pair *w, uint64_t ino, uint64_t off)
{
	struct file *f = pair_open(w->fs[OTHER], ino, O_RDWR);

	assert_int_equal(content_write(f->content, w->bytes, BYTES, off), 0);
	assert_int_equal(content_flush(f->content), 0);
	file_close(w->fs[OTHER], f);
}

static void set_xattr(struct fs *fs, uint64_t ino, const char *name, const char *value)
{
	struct inode *i;

	assert_int_equal(inode_get(fs->inodes, ino, &i), 0);
	assert_int_equal(xattr_set(fs, i, 0, name, value, strlen(value), 0, false), 0);
	names_put(fs, i);
}

static void make_tree(struct replica_pair *w)
{
	struct fs *fs = w->fs[OTHER];
	uint64_t job = pair_make(fs, NS_ROOT_INO, "job", S_IFDIR | 0755, NULL), sub, file;
	struct stat st;

	w->top = pair_make(fs, job, "step", S_IFDIR | 0750, NULL);
	sub = pair_make(fs, w->top, "sub", S_IFDIR | 0700, NULL);
	pair_make(fs, pair_make(fs, sub, "deep", S_IFDIR | 0711, NULL), "pipe", S_IFIFO | 0600, NULL);
	file = pair_make(fs, sub, "file", S_IFREG | 0640, NULL);
	write_file(w, file, 0);
	write_file(w, pair_make(fs, w->top, "sparse", S_IFREG | 0600, NULL), SPARSE);
	pair_make(fs, w->top, "empty", S_IFREG | 0600, NULL);
	pair_make(fs, w->top, "soft", S_IFLNK | 0777, "sub/file");
	assert_int_equal(names_link(fs, file, w->top, "twin", NULL, &st), 0);
	set_xattr(fs, file, "user.step", "seven");
	set_xattr(fs, file, "user.more", "");
	set_xattr(fs, sub, "user.of", "a directory");
}

static int collect(void *userdata, const void *p, size_t len)
{
	struct buf *b = userdata;

	buf_add(b, p, len);
	return buf_error(b);
}

void pair_encode_catalog(struct fs *fs, uint64_t dir, struct buf *ret)
{
	buf_clear(ret);
	assert_int_equal(catalog_write(fs, dir, &(struct catalog_sink){ collect, ret }), 0);
}

void pair_seal(struct replica_pair *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_directory(w->fs[OTHER], w->top, &pair_owner, &w->seal, &culprit), 0);
	pair_encode_catalog(w->fs[OTHER], w->top, &w->catalog);
	w->s.ino = w->top;
	w->s.sealed_ns = w->seal.sealed_ns;
}

void pair_unseal(struct replica_pair *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_undo(w->fs[OTHER], w->top, &pair_owner, &culprit), 0);
}

void pair_seal_again(struct replica_pair *w, const char *more)
{
	pair_unseal(w);
	pair_make(w->fs[OTHER], w->top, more, S_IFREG | 0600, NULL);
	pair_seal(w);
}

int pair_set_up(void **state)
{
	struct replica_pair *w = calloc(1, sizeof(*w));
	FILE *f;

	snprintf(w->dir, sizeof(w->dir), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->key, sizeof(w->key), "%s/key", w->dir);
	f = fopen(w->key, "w");
	assert_non_null(f);
	fprintf(f, "%s", "thirty-two bytes and a few more of a key");
	fclose(f);
	w->calls = (struct cluster_calls){ .userdata = w, .is_there = is_there, .fetch = fetch };
	for (unsigned i = 0; i < NR_STORES; i++) {
		snprintf(w->path[i], sizeof(w->path[i]), "%s/%u", w->dir, i);
		assert_int_equal(options_init(&w->o[i]), 0);
		w->o[i].store = w->o[i].mountpoint = w->path[i];
		w->o[i].engine.cluster = w->key;
		w->o[i].engine.cluster_calls = &w->calls;
		pair_mount(w, i);
	}
	w->bytes = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		w->bytes[i] = (uint8_t)(i * 7 + i / PAGE * 13 + i / PAGE / 251);
	memset(w->bytes + HOLE_FROM, 0, HOLE_TO - HOLE_FROM);
	make_tree(w);
	w->s = (struct nodes_seal){ .from.name = "other", .path = "job/step" };
	memcpy(w->s.from.id, engine_store_id(w->fs[OTHER]->engine), CLUSTER_ID_LEN);
	memcpy(w->owner.id, w->s.from.id, CLUSTER_ID_LEN);
	snprintf(w->owner.name, sizeof(w->owner.name), "other");
	pair_seal(w);
	*state = w;
	return 0;
}

int pair_tear_down(void **state)
{
	struct replica_pair *w = *state;
	char command[128];

	for (unsigned i = 0; i < NR_STORES; i++) {
		if (w->fs[i])
			pair_unmount(w, i);
		options_release(&w->o[i]);
	}
	for (unsigned i = 0; i < NR_STORES; i++)
		pair_check(w, i);
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	buf_release(&w->catalog);
	free(w->bytes);
	free(w);
	return 0;
}

static ssize_t read_some(void *userdata, void *buf, size_t len)
{
	struct pair_reading *r = userdata;
	size_t left = MIN(len, r->len - r->at), n = MIN(left, r->step);

	if (r->crash_at > 0 && r->at >= r->crash_at) {
		assert_int_equal(engine_sync(r->w->fs[HERE]->engine), 0); /* so that there is something left */
		assert_int_equal(moment_copy(r->w->path[HERE]), 0);
		return -EINTR;
	}
	if (n == 0)
		return r->error;
	memcpy(buf, r->p + r->at, n);
	r->at += n;
	return (ssize_t)n;
}

int pair_take_bytes(struct replica_pair *w, struct pair_reading *r)
{
	return nodes_take(w->fs[HERE], &w->s, &(struct nodes_source){ read_some, r }, &w->owner, NULL);
}

int pair_take(struct replica_pair *w)
{
	return pair_take_bytes(w, &(struct pair_reading){ .p = w->catalog.data, .len = w->catalog.len, .step = 777 });
}

uint64_t pair_replica(struct replica_pair *w, struct ns_replica *ret)
{
	struct ns_replica another;
	uint64_t top = 0, next;

	assert_int_equal(nodes_next(w->fs[HERE], 0, &top, ret), 1);
	assert_int_equal(nodes_next(w->fs[HERE], top, &next, &another), 0);
	return top;
}

unsigned pair_nr_notes(struct replica_pair *w)
{
	struct ns_replica c;
	uint64_t top = 0;
	unsigned nr = 0;

	while (ns_next_replica(w->fs[HERE]->db, top, &top, &c) > 0)
		nr++;
	return nr;
}

uint64_t pair_look_up(struct fs *fs, uint64_t dir, const char *name)
{
	struct stat st;

	assert_int_equal(names_lookup(fs, dir, name, &st), 0);
	names_forget(fs, &(struct names_forget){ st.st_ino, 1 }, 1);
	return st.st_ino;
}

void pair_expect_bytes(struct replica_pair *w, uint64_t ino, uint64_t off)
{
	struct file *f = pair_open(w->fs[HERE], ino, O_RDONLY);
	uint8_t *got = malloc(BYTES);

	assert_int_equal(content_read(f->content, got, BYTES, off), BYTES);
	assert_memory_equal(got, w->bytes, BYTES);
	free(got);
	file_close(w->fs[HERE], f);
}

/* Received again it is the same: names, attributes, times, links, extended attributes, holes, chunks. */
void pair_expect_whole(struct replica_pair *w)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct ns_replica c;
	uint64_t top = pair_replica(w, &c);

	assert_memory_equal(c.store, w->s.from.id, sizeof(c.store));
	assert_int_equal(c.ino, w->top);
	assert_int_equal(c.sealed_ns, w->seal.sealed_ns);
	assert_string_equal(c.name, "other");
	assert_string_equal(c.path, "job/step");
	pair_encode_catalog(w->fs[HERE], top, &again);
	assert_int_equal(again.len, w->catalog.len);
	assert_memory_equal(again.data, w->catalog.data, again.len);
	pair_expect_bytes(w, pair_look_up(w->fs[HERE], top, "twin"), 0);
	pair_expect_bytes(w, pair_look_up(w->fs[HERE], top, "sparse"), SPARSE);
}

static bool always(void *userdata)
{
	(void)userdata;
	return true;
}

/* Large files are erased in the background. */
void pair_wait_for_reaper(struct replica_pair *w)
{
	reaper_wait(w->fs[HERE]->reaper, always, NULL);
}

void pair_expect_nothing(struct replica_pair *w)
{
	struct ns_inode in;
	struct ns_replica c;
	uint64_t ino, next;

	pair_wait_for_reaper(w);
	assert_int_equal(nodes_next(w->fs[HERE], 0, &ino, &c), 0);
	assert_int_equal(pair_nr_notes(w), 0);
	assert_int_equal(ns_next_orphan(w->fs[HERE]->db, 0, &ino), 0);
	assert_int_equal(engine_new_number(w->fs[HERE]->engine, &next), 0);
	for (ino = NS_ROOT_INO + 1; ino < next; ino++)
		assert_int_equal(ns_get_inode(w->fs[HERE]->db, ino, &in), 0);
}
