/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Copies of what another node has sealed: two real stores of one cluster, without agents or a kernel in between. */
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

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/daemon/replica/abandon.h"
#include "mpi-agent/daemon/nodes/answers.h"
#include "fs/posix/attr.h"
#include "mpi-agent/daemon/replica/catalog.h"
#include "mpi-agent/daemon/replica/catalog_format.h"
#include "mpi-agent/daemon/cluster.h"
#include "fs/posix/file.h"
#include "fs/fs.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "fs/mount_options.h"
#include "fs/seal/reaper.h"
#include "mpi-agent/daemon/nodes/peer_list.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "fs/seal/seal.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "fs/posix/xattr.h"
#include "store/check/check.h"
#include "tests/unit/moment.h"
#include "tests/unit/place.h"

#define PAGE 4096u
#define BYTES (MiB(2) + 5 * PAGE + 123)
#define HOLE_FROM (4 * PAGE)
#define HOLE_TO (6 * PAGE)
#define FAR (UINT64_C(1) << 59)
#define SPARSE MiB(100) /* where BYTES begin in another file */

enum { OTHER, HERE, NR_STORES };

struct world {
	char dir[64], path[NR_STORES][96], key[96];
	struct options o[NR_STORES];
	struct fs *fs[NR_STORES];
	struct cluster_calls calls;
	bool is_remote; /* the other node */
	uint64_t nr_fetched;
	uint8_t *bytes;
	struct ns_seal seal;
	struct nodes_seal s;
	struct cluster_node owner;
	struct buf catalog;
	uint64_t top; /* there */
};

static const struct cred owner = { .uid = 1000, .gid = 100 };

/* --- two stores --- */

static bool is_there(void *userdata _unused_)
{
	return false;
}

static int fetch(void *userdata, struct cluster_want *wants, size_t nr)
{
	struct world *w = userdata;

	if (w->is_remote)
		return -ETIMEDOUT;
	w->nr_fetched += nr;
	return engine_cluster_chunks(w->fs[OTHER]->engine, wants, nr);
}

static void mount(struct world *w, unsigned i)
{
	struct engine *e;

	assert_int_equal(engine_open(w->path[i], &w->o[i].engine, &e), 0);
	assert_int_equal(fs_open(e, &w->o[i], NULL, &w->fs[i]), 0);
}

static void unmount(struct world *w, unsigned i)
{
	assert_int_equal(fs_close(w->fs[i]), 0);
	w->fs[i] = NULL;
}

static void announce(void *userdata _unused_, const struct check_finding *f)
{
	print_message("fsck: %s\n", f->text);
}

static void check(struct world *w, unsigned i)
{
	const struct check_conf conf = { .cache = MiB(16), .read_data = true, .finding = announce };
	struct check_result res;

	assert_int_equal(check_store(w->path[i], &conf, &res), 0);
	assert_int_equal(res.nr_left, 0);
}

static uint64_t make(struct fs *fs, uint64_t dir, const char *name, uint32_t mode, const char *target)
{
	struct names_new n = { .mode = mode, .target = target };
	struct stat st;

	assert_int_equal(names_make(fs, dir, name, &n, &owner, &st), 0);
	return st.st_ino;
}

static struct file *open_for(struct fs *fs, uint64_t ino, int flags)
{
	struct file *f;

	assert_int_equal(file_open(fs, ino, flags, &f), 0);
	return f;
}

static void write_file(struct world *w, uint64_t ino, uint64_t off)
{
	struct file *f = open_for(w->fs[OTHER], ino, O_RDWR);

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

static void make_tree(struct world *w)
{
	struct fs *fs = w->fs[OTHER];
	uint64_t job = make(fs, NS_ROOT_INO, "job", S_IFDIR | 0755, NULL), sub, file;
	struct stat st;

	w->top = make(fs, job, "step", S_IFDIR | 0750, NULL);
	sub = make(fs, w->top, "sub", S_IFDIR | 0700, NULL);
	make(fs, make(fs, sub, "deep", S_IFDIR | 0711, NULL), "pipe", S_IFIFO | 0600, NULL);
	file = make(fs, sub, "file", S_IFREG | 0640, NULL);
	write_file(w, file, 0);
	write_file(w, make(fs, w->top, "sparse", S_IFREG | 0600, NULL), SPARSE);
	make(fs, w->top, "empty", S_IFREG | 0600, NULL);
	make(fs, w->top, "soft", S_IFLNK | 0777, "sub/file");
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

static void encode_catalog(struct fs *fs, uint64_t dir, struct buf *ret)
{
	buf_clear(ret);
	assert_int_equal(catalog_write(fs, dir, &(struct catalog_sink){ collect, ret }), 0);
}

static void seal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_directory(w->fs[OTHER], w->top, &owner, &w->seal, &culprit), 0);
	encode_catalog(w->fs[OTHER], w->top, &w->catalog);
	w->s.ino = w->top;
	w->s.sealed_ns = w->seal.sealed_ns;
}

static void unseal(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;

	assert_int_equal(seal_undo(w->fs[OTHER], w->top, &owner, &culprit), 0);
}

static void seal_anew(struct world *w, const char *more)
{
	unseal(w);
	make(w->fs[OTHER], w->top, more, S_IFREG | 0600, NULL);
	seal(w);
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
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
		mount(w, i);
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
	seal(w);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	char command[128];

	for (unsigned i = 0; i < NR_STORES; i++) {
		if (w->fs[i])
			unmount(w, i);
		options_release(&w->o[i]);
	}
	for (unsigned i = 0; i < NR_STORES; i++)
		check(w, i);
	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	buf_release(&w->catalog);
	free(w->bytes);
	free(w);
	return 0;
}

/* --- taking --- */

struct reading {
	const uint8_t *p;
	size_t len, at, step;
	size_t crash_at; /* after so many bytes; 0: not at all */
	int error; /* at the end */
	struct world *w;
};

static ssize_t read_some(void *userdata, void *buf, size_t len)
{
	struct reading *r = userdata;
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

static int take_bytes(struct world *w, struct reading *r)
{
	return nodes_take(w->fs[HERE], &w->s, &(struct nodes_source){ read_some, r }, &w->owner, NULL);
}

static int take(struct world *w)
{
	return take_bytes(w, &(struct reading){ .p = w->catalog.data, .len = w->catalog.len, .step = 777 });
}

static uint64_t the_copy(struct world *w, struct ns_copy *ret)
{
	struct ns_copy another;
	uint64_t top = 0, next;

	assert_int_equal(nodes_next(w->fs[HERE], 0, &top, ret), 1);
	assert_int_equal(nodes_next(w->fs[HERE], top, &next, &another), 0);
	return top;
}

static unsigned nr_notes(struct world *w)
{
	struct ns_copy c;
	uint64_t top = 0;
	unsigned nr = 0;

	while (ns_next_copy(w->fs[HERE]->db, top, &top, &c) > 0)
		nr++;
	return nr;
}

static uint64_t look_up(struct fs *fs, uint64_t dir, const char *name)
{
	struct stat st;

	assert_int_equal(names_lookup(fs, dir, name, &st), 0);
	names_forget(fs, &(struct names_forget){ st.st_ino, 1 }, 1);
	return st.st_ino;
}

static void expect_bytes(struct world *w, uint64_t ino, uint64_t off)
{
	struct file *f = open_for(w->fs[HERE], ino, O_RDONLY);
	uint8_t *got = malloc(BYTES);

	assert_int_equal(content_read(f->content, got, BYTES, off), BYTES);
	assert_memory_equal(got, w->bytes, BYTES);
	free(got);
	file_close(w->fs[HERE], f);
}

/* Told anew it is the same: names, attributes, times, links, extended attributes, holes, chunks. */
static void expect_whole(struct world *w)
{
	_cleanup_(buf_release) struct buf again = BUF_EMPTY;
	struct ns_copy c;
	uint64_t top = the_copy(w, &c);

	assert_memory_equal(c.store, w->s.from.id, sizeof(c.store));
	assert_int_equal(c.ino, w->top);
	assert_int_equal(c.sealed_ns, w->seal.sealed_ns);
	assert_string_equal(c.name, "other");
	assert_string_equal(c.path, "job/step");
	encode_catalog(w->fs[HERE], top, &again);
	assert_int_equal(again.len, w->catalog.len);
	assert_memory_equal(again.data, w->catalog.data, again.len);
	expect_bytes(w, look_up(w->fs[HERE], top, "twin"), 0);
	expect_bytes(w, look_up(w->fs[HERE], top, "sparse"), SPARSE);
}

static bool always(void *userdata)
{
	(void)userdata;
	return true;
}

/* Large files are erased in the background. */
static void wait_for_reaper(struct world *w)
{
	reaper_wait(w->fs[HERE]->reaper, always, NULL);
}

static void expect_nothing(struct world *w)
{
	struct ns_inode in;
	struct ns_copy c;
	uint64_t ino, next;

	wait_for_reaper(w);
	assert_int_equal(nodes_next(w->fs[HERE], 0, &ino, &c), 0);
	assert_int_equal(nr_notes(w), 0);
	assert_int_equal(ns_next_orphan(w->fs[HERE]->db, 0, &ino), 0);
	assert_int_equal(engine_new_number(w->fs[HERE]->engine, &next), 0);
	for (ino = NS_ROOT_INO + 1; ino < next; ino++)
		assert_int_equal(ns_get_inode(w->fs[HERE]->db, ino, &in), 0);
}

static void a_copy_is_what_was_sealed(void **state)
{
	struct world *w = *state;
	struct ns_copy c;
	uint64_t top;

	assert_int_equal(take(w), 0);
	assert_int_equal(w->nr_fetched, 0); /* until somebody reads */
	expect_whole(w);
	assert_true(w->nr_fetched > 0);
	unmount(w, HERE);
	check(w, HERE);
	mount(w, HERE);
	expect_whole(w);
	top = the_copy(w, &c);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(ns_has_entries(w->fs[HERE]->db, NS_ROOT_INO), 0); /* no way leads there */
	assert_int_equal(look_up(w->fs[HERE], top, ".."), top);
}

static void nothing_of_a_copy_changes(void **state)
{
	struct attr_change mode = { .what = ATTR_MODE, .mode = 0777 };
	struct world *w = *state;
	struct fs *fs = w->fs[HERE];
	struct names_new n = { .mode = S_IFREG | 0600 };
	struct ns_copy c;
	struct inode *i;
	struct file *f;
	struct stat st;
	uint64_t top, twin;

	assert_int_equal(take(w), 0);
	top = the_copy(w, &c);
	twin = look_up(fs, top, "twin");
	assert_int_equal(names_make(fs, top, "new", &n, &owner, &st), -EROFS);
	assert_int_equal(names_unlink(fs, top, "twin"), -EROFS);
	assert_int_equal(names_rmdir(fs, top, "sub"), -EROFS);
	assert_int_equal(names_link(fs, twin, NS_ROOT_INO, "mine", NULL, &st), -EROFS);
	assert_int_equal(names_rename(fs, top, "twin", NS_ROOT_INO, "mine", 0), -EROFS);
	make(fs, NS_ROOT_INO, "own", S_IFREG | 0600, NULL);
	assert_int_equal(names_rename(fs, NS_ROOT_INO, "own", top, "twin", 0), -EROFS);
	assert_int_equal(file_open(fs, twin, O_WRONLY, &f), -EROFS);
	assert_int_equal(inode_get(fs->inodes, twin, &i), 0);
	assert_int_equal(attr_change(fs, i, &mode, &st), -EROFS);
	assert_int_equal(xattr_set(fs, i, 0, "user.a", "b", 1, 0, false), -EROFS);
	assert_int_equal(xattr_remove(fs, i, 0, "user.step"), -EROFS);
	names_put(fs, i);
	expect_whole(w);
}

static void a_copy_is_released_when_its_node_is_forgotten(void **state)
{
	static const struct cred stranger = { .uid = 1001, .gid = 100 };
	_cleanup_(buf_release) struct buf node = BUF_EMPTY;
	struct world *w = *state;
	struct fs *fs = w->fs[HERE];
	struct ns_copy c;
	uint64_t top;

	assert_int_equal(take(w), 0);
	top = the_copy(w, &c);
	assert_int_equal(seal_undo(fs, top, &owner, &node), -EROFS);
	assert_int_equal(seal_undo(fs, look_up(fs, top, "sub"), &owner, &node), -EROFS);
	assert_int_equal(abandon_copy(fs, look_up(fs, top, "sub"), &owner, &node), -EROFS);
	assert_int_equal(abandon_copy(fs, NS_ROOT_INO, &owner, &node), -EROFS);
	assert_int_equal(abandon_copy(fs, top, &stranger, &node), -EPERM);
	assert_false(engine_cluster_is_expected(fs->engine, w->owner.id)); /* who has a copy of it has not met it, ... */
	assert_int_equal(engine_cluster_register_peers(fs->engine, &w->owner, 1), 0);
	assert_int_equal(abandon_copy(fs, top, &owner, &node), -EHOSTDOWN);
	assert_int_equal(node.len, strlen(w->s.from.name));
	assert_memory_equal(node.data, w->s.from.name, node.len);
	expect_whole(w);
	assert_int_equal(engine_cluster_forget(fs->engine, w->s.from.name), 0);
	assert_int_equal(take(w), 0);
	assert_true(engine_cluster_is_forgotten(fs->engine, w->owner.id)); /* nor does another one bring it back */
	assert_int_equal(abandon_copy(fs, the_copy(w, &c), &owner, &node), 0);
	expect_nothing(w);
}

static void a_newer_copy_takes_the_place_of_the_older(void **state)
{
	struct world *w = *state;
	uint64_t first, second;
	struct ns_copy c;

	assert_int_equal(take(w), 0);
	first = the_copy(w, &c);
	seal_anew(w, "added");
	assert_int_equal(take(w), 0);
	second = the_copy(w, &c);
	assert_int_not_equal(first, second);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(nr_notes(w), 1);
	expect_whole(w);
	look_up(w->fs[HERE], second, "added");
}

static uint64_t copy_in_state(struct world *w, enum ns_copy_state state)
{
	struct ns_copy c;
	uint64_t top = 0;

	while (nodes_next(w->fs[HERE], top, &top, &c) > 0)
		if (c.state == state)
			return top;
	return 0;
}

static int take_as(struct world *w, enum ns_copy_state state)
{
	w->s.cached = state == NS_COPY_CACHED;
	return take(w);
}

static uint64_t nr_inodes(struct world *w)
{
	uint64_t next, nr = 0;
	struct ns_inode in;

	wait_for_reaper(w);
	assert_int_equal(engine_new_number(w->fs[HERE]->engine, &next), 0);
	for (uint64_t ino = NS_ROOT_INO + 1; ino < next; ino++)
		nr += ns_get_inode(w->fs[HERE]->db, ino, &in) > 0;
	return nr;
}

static void what_is_kept_stays_when_somebody_looks(void **state)
{
	struct world *w = *state;
	uint64_t kept, nr;
	struct ns_copy c;

	assert_int_equal(take_as(w, NS_COPY_KEPT), 0);
	kept = the_copy(w, &c);
	nr = nr_inodes(w);
	assert_int_equal(take_as(w, NS_COPY_CACHED), -EEXIST);
	assert_int_equal(the_copy(w, &c), kept);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(nr_notes(w), 1);
	assert_int_equal(nr_inodes(w), nr);
	expect_whole(w);

	/* Another seal than the one that is kept can be looked at beside it, ... */
	seal_anew(w, "added");
	assert_int_equal(take_as(w, NS_COPY_CACHED), 0);
	assert_int_equal(copy_in_state(w, NS_COPY_KEPT), kept);
	look_up(w->fs[HERE], copy_in_state(w, NS_COPY_CACHED), "added");
	assert_int_equal(nodes_drop_copy(w->fs[HERE], copy_in_state(w, NS_COPY_CACHED)), 0);
	assert_int_equal(the_copy(w, &c), kept);
	assert_int_equal(nr_inodes(w), nr);

	/* until that is kept. */
	assert_int_equal(take_as(w, NS_COPY_CACHED), 0);
	assert_int_equal(take_as(w, NS_COPY_KEPT), 0);
	the_copy(w, &c);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(nr_notes(w), 1);
	assert_int_equal(nr_inodes(w), nr + 1);
	expect_whole(w);
}

static void what_its_node_drops_goes_with_what_was_looked_at(void **state)
{
	struct world *w = *state;

	assert_int_equal(take_as(w, NS_COPY_KEPT), 0);
	seal_anew(w, "added");
	assert_int_equal(take_as(w, NS_COPY_CACHED), 0);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0);
	expect_nothing(w);
}

/* He has the directory, and comes to its files one after the other. */
static void who_is_in_a_copy_goes_on_when_it_is_kept(void **state)
{
	struct world *w = *state;
	uint64_t looked_at;
	struct ns_copy c;
	struct inode *i;

	assert_int_equal(take_as(w, NS_COPY_CACHED), 0);
	looked_at = the_copy(w, &c);
	assert_int_equal(inode_get(w->fs[HERE]->inodes, looked_at, &i), 0);
	assert_int_equal(take_as(w, NS_COPY_KEPT), 0);
	expect_bytes(w, look_up(w->fs[HERE], looked_at, "twin"), 0);
	assert_int_equal(view_trim(w->fs[HERE]->view), 0);
	expect_bytes(w, look_up(w->fs[HERE], looked_at, "sparse"), SPARSE);
	names_put(w->fs[HERE], i);
	assert_int_equal(view_trim(w->fs[HERE]->view), 1); /* though its node does not take part */
	the_copy(w, &c);
	assert_int_equal(c.state, NS_COPY_KEPT);
	expect_whole(w);
}

/* --- who looks while it is being kept --- */

/* Whose other node takes part, and what happens there, or here, before it has said the last of something. */
static struct asked {
	struct world *w; /* NULL: nobody does */
	struct answers *answers;
	enum question_kind kind;
	void (*before)(struct world *w); /* once */
	bool is_silent; /* it does not answer in time, ... */
	unsigned nr; /* of so many questions */
} asked;

int __wrap_cluster_nodes(struct cluster *c, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
int __wrap_cluster_ask(struct cluster *c, const uint8_t *id, const void *question, size_t len, struct buf *ret);

int __wrap_cluster_nodes(struct cluster *c _unused_, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self)
{
	*ret = asked.w ? malloc(2 * sizeof(**ret)) : NULL;
	*ret_nr = asked.w ? 2 : 0;
	*ret_self = 0;
	if (asked.w) {
		(*ret)[0] = (struct cluster_node){ .name = "here" };
		memcpy((*ret)[0].id, engine_store_id(asked.w->fs[HERE]->engine), CLUSTER_ID_LEN);
		(*ret)[1] = asked.w->owner;
	}
	return 0;
}

int __wrap_cluster_ask(struct cluster *c _unused_, const uint8_t *id, const void *question, size_t len, struct buf *ret)
{
	struct question q;

	asked.nr++;
	if (asked.is_silent)
		return -ETIMEDOUT;
	assert_int_equal(question_decode(question, len, &q), 0);
	assert_memory_equal(id, asked.w->owner.id, CLUSTER_ID_LEN);
	if (asked.before && q.kind == asked.kind) {
		void (*before)(struct world *w) = asked.before;

		asked.before = NULL;
		before(asked.w);
	}
	return answers_give(asked.answers, question, len, ret);
}

static int look(struct world *w, enum question_kind kind, void (*before)(struct world *w), uint64_t *ret_top)
{
	char path[] = "job/step";
	struct peer_list_seal s = { .ino = w->s.ino, .sealed_ns = w->s.sealed_ns, .name = "other", .path = path };
	struct peer_list *o;
	int r;

	memcpy(s.store, w->owner.id, sizeof(s.store));
	memcpy(s.holder, w->owner.id, sizeof(s.holder));
	asked = (struct asked){ .w = w, .kind = kind, .before = before };
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &asked.answers), 0);
	assert_int_equal(peer_list_new(w->fs[HERE], &o), 0);
	r = peer_list_open(o, &s, ret_top);
	peer_list_free(o);
	answers_free(asked.answers);
	asked = (struct asked){ 0 };
	return r;
}

static void keep(struct world *w)
{
	assert_int_equal(take_as(w, NS_COPY_KEPT), 0);
}

static void keep_anew(struct world *w)
{
	seal_anew(w, "added");
	keep(w);
}

static void who_looks_while_it_is_being_kept_sees_what_is_kept(void **state)
{
	struct world *w = *state;
	uint64_t top = 0;
	struct ns_copy c;

	assert_int_equal(look(w, QUESTION_CATALOG, keep, &top), 0); /* before his copy is made, ... */
	assert_int_equal(the_copy(w, &c), top);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(nr_notes(w), 1);
	expect_whole(w);
	assert_int_equal(nodes_drop_copy(w->fs[HERE], top), 0);
	assert_int_equal(look(w, QUESTION_HOLD, keep, &top), 0); /* and behind it */
	assert_int_equal(the_copy(w, &c), top);
	assert_int_equal(c.state, NS_COPY_KEPT);
	expect_whole(w);
	asked.w = w; /* so that what was only looked at could be had again */
	assert_int_equal(view_trim(w->fs[HERE]->view), 0);
	asked.w = NULL;
}

/* It is unsealed, sealed, and kept, before he has what he wanted: he drops that, and not what is kept. */
static void what_is_kept_anew_stays_when_who_looked_is_too_late(void **state)
{
	struct world *w = *state;
	struct ns_copy c;
	uint64_t top;

	assert_int_equal(look(w, QUESTION_HOLD, keep_anew, &top), -ENOENT);
	the_copy(w, &c);
	assert_int_equal(c.state, NS_COPY_KEPT);
	assert_int_equal(nr_notes(w), 1);
	expect_whole(w);
	seal_anew(w, "more");
	assert_int_equal(look(w, QUESTION_HOLD, unseal, &top), -ENOENT); /* of another one */
	assert_int_equal(nr_notes(w), 1);
	assert_int_not_equal(copy_in_state(w, NS_COPY_KEPT), 0);
}

static unsigned nr_asked_for_seals(struct world *w, struct peer_list *o)
{
	_cleanup_(peer_list_seals_release) struct peer_list_seals seals = { 0 };
	unsigned before = asked.nr;

	assert_int_equal(peer_list_seals(o, w->owner.id, &seals), 0);
	assert_int_equal(seals.nr, 1); /* of what is kept here */
	return asked.nr - before;
}

static void who_does_not_answer_is_not_asked_for_each_name(void **state)
{
	struct world *w = *state;
	struct peer_list *o;

	keep(w);
	assert_int_equal(peer_list_new(w->fs[HERE], &o), 0);
	asked = (struct asked){ .w = w, .is_silent = true };
	assert_int_equal(nr_asked_for_seals(w, o), 1);
	assert_int_equal(nr_asked_for_seals(w, o), 0);
	peer_list_forget(o);
	assert_int_equal(nr_asked_for_seals(w, o), 0);
	asked.is_silent = false; /* which is found some time, and then it is asked as ever */
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &asked.answers), 0);
	while (nr_asked_for_seals(w, o) == 0)
		usleep(1000);
	peer_list_forget(o);
	assert_int_equal(nr_asked_for_seals(w, o), 1);
	peer_list_free(o);
	answers_free(asked.answers);
	asked = (struct asked){ 0 };
}

static void what_is_open_can_be_read_after_its_copy_was_dropped(void **state)
{
	struct world *w = *state;
	struct ns_copy c;
	struct file *f;
	uint8_t got[PAGE];
	uint64_t twin, after;
	struct stat st;

	assert_int_equal(take(w), 0);
	assert_int_equal(names_lookup(w->fs[HERE], the_copy(w, &c), "twin", &st), 0); /* the kernel knows it */
	twin = st.st_ino;
	f = open_for(w->fs[HERE], twin, O_RDONLY);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0);
	assert_int_equal(nodes_next(w->fs[HERE], 0, &after, &c), 0);
	assert_int_equal(nr_notes(w), 0);
	assert_int_equal(content_read(f->content, got, PAGE, PAGE), PAGE);
	assert_memory_equal(got, w->bytes + PAGE, PAGE);
	file_close(w->fs[HERE], f);
	names_forget(w->fs[HERE], &(struct names_forget){ twin, 1 }, 1);
	wait_for_reaper(w);
	assert_int_equal(ns_next_orphan(w->fs[HERE]->db, 0, &after), 0);
	assert_int_equal(nodes_drop(w->fs[HERE], &w->s.from, w->top, INT64_MAX), 0); /* again is fine */
}

static void who_has_the_name_of_the_view_keeps_it(void **state)
{
	struct world *w = *state;
	struct view *v = w->fs[HERE]->view;
	uint64_t own;

	assert_non_null(v);
	w->fs[HERE]->view = NULL; /* as in a version that had none */
	own = make(w->fs[HERE], NS_ROOT_INO, VIEW_NAME, S_IFDIR | 0700, NULL);
	w->fs[HERE]->view = v;
	unmount(w, HERE);
	mount(w, HERE);
	assert_null(w->fs[HERE]->view);
	assert_int_equal(look_up(w->fs[HERE], NS_ROOT_INO, VIEW_NAME), own);
	assert_int_equal(names_rename(w->fs[HERE], NS_ROOT_INO, VIEW_NAME, NS_ROOT_INO, "mine", 0), 0);
	unmount(w, HERE);
	mount(w, HERE);
	assert_non_null(w->fs[HERE]->view);
	assert_int_equal(names_rmdir(w->fs[HERE], NS_ROOT_INO, VIEW_NAME), -EROFS);
}

/* --- what must not be believed --- */

static void a_catalog_that_is_cut_or_changed_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct reading r = { .p = w->catalog.data, .step = SIZE_MAX };
	uint8_t *changed = malloc(w->catalog.len + 1);
	size_t step = MAX(w->catalog.len / 97, (size_t)1);

	memcpy(changed, w->catalog.data, w->catalog.len);
	for (r.len = 0; r.len < w->catalog.len; r.len += step, r.at = 0)
		assert_int_equal(take_bytes(w, &r), -EBADMSG);
	r.p = changed;
	r.len = w->catalog.len;
	for (size_t i = 0; i < w->catalog.len; i += step) {
		changed[i] ^= 0x41;
		r.at = 0;
		assert_true(take_bytes(w, &r) < 0);
		changed[i] ^= 0x41;
	}
	changed[w->catalog.len] = 0; /* and something behind its end */
	r = (struct reading){ .p = changed, .len = w->catalog.len + 1, .step = SIZE_MAX };
	assert_int_equal(take_bytes(w, &r), -EBADMSG);
	r = (struct reading){ .p = changed, .len = w->catalog.len - 1, .step = SIZE_MAX, .error = -ETIMEDOUT };
	assert_int_equal(take_bytes(w, &r), -ETIMEDOUT);
	expect_nothing(w);
	free(changed);
}

static void another_catalog_than_was_said_is_refused(void **state)
{
	struct world *w = *state;
	struct nodes_seal right = w->s;

	w->s.ino++;
	assert_int_equal(take(w), -EBADMSG);
	w->s = right;
	w->s.sealed_ns--;
	assert_int_equal(take(w), -EBADMSG);
	w->s = right;
	w->s.from.id[3] ^= 1;
	assert_int_equal(take(w), -EBADMSG);
	w->s = right;
	memcpy(w->s.from.id, engine_store_id(w->fs[HERE]->engine), CLUSTER_ID_LEN);
	assert_int_equal(take(w), -EINVAL);
	w->s = right;
	for (const char *const *bad = (const char *const[]){ "/", "/a", "a/", "a//b", "..", "a/./b", NULL }; *bad; bad++) {
		w->s.path = *bad;
		assert_int_equal(take(w), -EINVAL);
	}
	w->s = right;
	for (const char *const *bad = (const char *const[]){ "", "a/b", ".", "..", NULL }; *bad; bad++) {
		snprintf(w->s.from.name, sizeof(w->s.from.name), "%s", *bad);
		assert_int_equal(take(w), -EINVAL);
	}
	w->s = right;
	expect_nothing(w);
}

/* A catalog of our own making: a top, and what `rec` says. */
static int take_made_up(struct world *w, const struct catalog_record *rec, unsigned nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct catalog_record top = { .type = CATALOG_INODE, .in.mode = S_IFDIR | 0755 };
	struct catalog_head head = { .ino = w->s.ino, .sealed_ns = w->s.sealed_ns };
	struct catalog_writer writer = { 0 };

	memcpy(head.store, w->s.from.id, sizeof(head.store));
	catalog_head_encode(&head, &b);
	catalog_record_encode(&writer, &top, &b);
	for (unsigned i = 0; i < nr; i++)
		catalog_record_encode(&writer, &rec[i], &b);
	catalog_end_encode(&writer, &b);
	return take_bytes(w, &(struct reading){ .p = b.data, .len = b.len, .step = SIZE_MAX });
}

static void what_a_liar_reports_is_refused(void **state)
{
	_cleanup_(buf_release) struct buf odd = BUF_EMPTY, far = BUF_EMPTY;
	struct world *w = *state;
	struct catalog_record twice[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFIFO | 0600 },
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFDIR | 0700 },
	};
	struct catalog_record attribute[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFIFO | 0600 },
		{ .type = CATALOG_XATTR, .name = "nobody.knows", .data = "x", .len = 1 },
	};
	struct catalog_record chunk[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFREG | 0600, .size = 100 },
		{ .type = CATALOG_PIECES },
	};
	struct catalog_record sparse[] = {
		{ .type = CATALOG_INODE, .name = "a", .in.mode = S_IFREG | 0600, .size = FAR },
		{ .type = CATALOG_PIECES },
	};
	struct ns_copy c;
	struct stat st;

	/* no chunk is as long as that */
	catalog_piece_encode(&(struct content_piece){ { 1, 2 }, 70001, 5, 100 }, &odd);
	chunk[1].data = odd.data;
	chunk[1].len = odd.len;
	assert_int_equal(take_made_up(w, twice, 2), -EBADMSG);
	assert_int_equal(take_made_up(w, attribute, 2), -EBADMSG);
	assert_int_equal(take_made_up(w, chunk, 2), -EBADMSG);
	expect_nothing(w);
	catalog_piece_encode(&(struct content_piece){ .len = FAR }, &far); /* takes no time */
	sparse[1].data = far.data;
	sparse[1].len = far.len;
	assert_int_equal(take_made_up(w, sparse, 2), 0);
	assert_int_equal(names_lookup(w->fs[HERE], the_copy(w, &c), "a", &st), 0);
	assert_int_equal(st.st_size, FAR);
	names_forget(w->fs[HERE], &(struct names_forget){ st.st_ino, 1 }, 1);
}

static void a_chunk_that_nobody_has_is_an_error_of_who_reads_it(void **state)
{
	struct world *w = *state;
	struct ns_copy c;
	struct file *f;
	uint8_t got[PAGE];

	assert_int_equal(take(w), 0);
	w->is_remote = true;
	f = open_for(w->fs[HERE], look_up(w->fs[HERE], the_copy(w, &c), "twin"), O_RDONLY);
	assert_int_equal(content_read(f->content, got, PAGE, 0), -EIO);
	w->is_remote = false;
	assert_int_equal(content_read(f->content, got, PAGE, 0), PAGE);
	assert_memory_equal(got, w->bytes, PAGE);
	file_close(w->fs[HERE], f);
}

/* --- what is answered --- */

static int give(struct answers *a, const struct question *q, struct buf *ret)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int r;

	question_encode(q, &b);
	do {
		buf_clear(ret);
		r = answers_give(a, b.data, b.len, ret);
	} while (r == -EINPROGRESS);
	return r;
}

static void a_directory_is_reported_and_pinned(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct world *w = *state;
	struct question q = { .kind = QUESTION_CATALOG, .ino = w->top, .sealed_ns = w->seal.sealed_ns };
	struct engine_stats before, after;
	struct answers *a;
	const void *p;
	bool is_last;
	size_t len;

	memcpy(q.store, w->s.from.id, sizeof(q.store));
	assert_int_equal(answers_new(w->fs[OTHER], w->dir, &a), 0);
	q.off = 100;
	assert_int_equal(give(a, &q, &b), 0);
	assert_int_equal(answer_catalog_decode(b.data, b.len, &is_last, &p, &len), 0);
	assert_true(is_last);
	assert_int_equal(len, w->catalog.len - 100);
	assert_memory_equal(p, w->catalog.data + 100, len);
	q.off = w->catalog.len + 1;
	assert_int_equal(give(a, &q, &b), -EINVAL);
	engine_stats(w->fs[OTHER]->engine, &before);
	q.kind = QUESTION_HOLD;
	q.off = 0;
	assert_int_equal(give(a, &q, &b), 0);
	engine_stats(w->fs[OTHER]->engine, &after);
	assert_int_equal(before.pinned_bytes, 0);
	assert_int_equal(after.pinned_bytes, after.stored_bytes); /* all there is lies in that directory */
	q.sealed_ns++;
	assert_int_equal(give(a, &q, &b), -ENODATA);
	q.sealed_ns--;
	unseal(w);
	assert_int_equal(give(a, &q, &b), -ENODATA);
	q.kind = QUESTION_CATALOG;
	assert_int_equal(give(a, &q, &b), -ENODATA); /* though it has been told before */
	assert_int_equal(answers_give(a, "what?", 5, &b), -EOPNOTSUPP);
	answers_free(a);
}

static uint32_t mode_of_copy(struct world *w)
{
	struct ns_inode in;
	struct ns_copy c;

	assert_int_equal(attr_load(w->fs[HERE], the_copy(w, &c), &in), 1);
	return in.mode;
}

/* What lies above it there is closed, and opened again: sealed as it is, and for as long as there is the copy. */
static void who_may_read_a_copy_is_reported_later(void **state)
{
	struct world *w = *state;
	struct ns_copy c;

	assert_int_equal(take(w), 0);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0750);
	assert_int_equal(nodes_set_access(w->fs[HERE], the_copy(w, &c), 0), 0);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0700);
	unmount(w, HERE);
	mount(w, HERE);
	assert_int_equal(mode_of_copy(w), S_IFDIR | 0700);
	assert_int_equal(nodes_set_access(w->fs[HERE], the_copy(w, &c), 050), 0);
	expect_whole(w);
}

/* --- crashes --- */

static void crash_taking(struct world *w, size_t at)
{
	struct reading r = { .p = w->catalog.data, .len = w->catalog.len, .step = 64, .crash_at = at, .w = w };

	assert_int_equal(take_bytes(w, &r), -EINTR);
	unmount(w, HERE);
	assert_int_equal(moment_restore(w->path[HERE]), 0);
	mount(w, HERE);
}

static void a_crash_while_a_copy_is_made_leaves_the_older_one(void **state)
{
	struct world *w = *state;

	for (size_t at = 60; at < w->catalog.len; at += w->catalog.len / 7) {
		crash_taking(w, at);
		expect_nothing(w);
	}
	assert_int_equal(take(w), 0);
	for (size_t at = 60; at < w->catalog.len; at += w->catalog.len / 7) {
		w->s.cached = !w->s.cached;
		crash_taking(w, at);
		assert_int_equal(nr_notes(w), 1);
		expect_whole(w);
	}
}

int main(void)
{
#define with_world(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		with_world(a_copy_is_what_was_sealed),
		with_world(nothing_of_a_copy_changes),
		with_world(a_copy_is_released_when_its_node_is_forgotten),
		with_world(a_newer_copy_takes_the_place_of_the_older),
		with_world(what_is_kept_stays_when_somebody_looks),
		with_world(what_its_node_drops_goes_with_what_was_looked_at),
		with_world(who_is_in_a_copy_goes_on_when_it_is_kept),
		with_world(who_looks_while_it_is_being_kept_sees_what_is_kept),
		with_world(what_is_kept_anew_stays_when_who_looked_is_too_late),
		with_world(who_does_not_answer_is_not_asked_for_each_name),
		with_world(what_is_open_can_be_read_after_its_copy_was_dropped),
		with_world(who_has_the_name_of_the_view_keeps_it),
		with_world(a_catalog_that_is_cut_or_changed_leaves_nothing),
		with_world(another_catalog_than_was_said_is_refused),
		with_world(what_a_liar_reports_is_refused),
		with_world(a_chunk_that_nobody_has_is_an_error_of_who_reads_it),
		with_world(a_directory_is_reported_and_pinned),
		with_world(a_crash_while_a_copy_is_made_leaves_the_older_one),
		with_world(who_may_read_a_copy_is_reported_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
