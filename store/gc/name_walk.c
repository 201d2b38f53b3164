/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/name_walk.h"

#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "index/namespace_table.h"
#include "store/check/check_rules.h"

#define DEPTH_MAX 2048u

int name_walk_open(struct db *db, const struct fp_key *key, struct name_walk *ret)
{
	const uint8_t prefix = VIEW_DIRENT;

	*ret = (struct name_walk){ .db = db, .key = key };
	return db_iter_new(db, NULL, &prefix, 1, NULL, 0, &ret->it);
}

void name_walk_release(struct name_walk *w)
{
	if (w->it)
		db_iter_free(w->it);
	buf_release(&w->path);
	buf_release(&w->dir_path);
	*w = (struct name_walk){ 0 };
}

static void decode(const struct name_walk *w, struct ns_dirent *ret)
{
	ns_dirent_decode(be64_get((const uint8_t *)w->dirent + 9), w->value, w->value_len, ret);
}

int name_walk_next(struct name_walk *w)
{
	struct ns_dirent d;
	size_t key_len;
	int r;

	while ((r = db_iter_next(w->it, &w->dirent, &key_len, &w->value, &w->value_len)) > 0)
		if (!check_entry(w->key, w->dirent, key_len, w->value, w->value_len)) {
			decode(w, &d);
			w->ino = d.ino;
			return 1;
		}
	return r;
}

/* The name of a directory in its parent. 1/0/<0. */
static int name_of_dir(struct name_walk *w, uint64_t parent, uint64_t dir, struct ns_dirent *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	int r = ns_readdir_open(w->db, parent, 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, ret)) > 0)
		if (ret->ino == dir)
			return 1;
	return r == -EBADMSG ? 0 : r;
}

static void prepend(struct buf *path, const char *name, size_t len)
{
	struct buf longer = BUF_EMPTY;

	buf_add(&longer, name, len);
	buf_add_u8(&longer, '/');
	buf_add(&longer, path->data, path->len);
	buf_release(path);
	buf_move(path, &longer);
}

/* Prepends the path that a mount shows for a replica (mpi-agent/daemon/nodes/node_view.h). 1; 0: `top` is none; <0 */
static int prepend_copy(struct name_walk *w, uint64_t top)
{
	struct ns_replica c;
	int r = ns_get_replica(w->db, top, &c);

	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	if (c.path[0])
		prepend(&w->dir_path, c.path, strlen(c.path));
	prepend(&w->dir_path, c.name, strlen(c.name));
	prepend(&w->dir_path, ".ckptfs/nodes", strlen(".ckptfs/nodes"));
	return 1;
}

/* Sets w->dir_path to the path of this directory, with a trailing slash; "" for the root. */
static int find_dir_path(struct name_walk *w, uint64_t dir)
{
	struct ns_inode in = { 0 };
	struct ns_dirent d;
	int r = 1;

	buf_clear(&w->dir_path);
	for (unsigned depth = 0; dir != NS_ROOT_INO && r > 0; depth++) {
		r = depth < DEPTH_MAX ? ns_get_inode(w->db, dir, &in) : 0;
		if (r == -EBADMSG)
			r = 0; /* reported elsewhere */
		if (r > 0 && in.parent == dir) {
			r = prepend_copy(w, dir);
			if (r > 0)
				return buf_error(&w->dir_path);
		}
		if (r > 0)
			r = name_of_dir(w, in.parent, dir, &d);
		if (r > 0)
			prepend(&w->dir_path, d.name, d.name_len);
		if (r == 0)
			prepend(&w->dir_path, "?", 1);
		dir = in.parent;
	}
	return r < 0 ? r : buf_error(&w->dir_path);
}

int name_walk_path(struct name_walk *w)
{
	uint64_t dir = be64_get((const uint8_t *)w->dirent + 1);
	struct ns_dirent d;
	int r = dir == w->dir ? 0 : find_dir_path(w, dir);

	if (r < 0)
		return r;
	w->dir = dir;
	decode(w, &d);
	buf_clear(&w->path);
	buf_add(&w->path, w->dir_path.data, w->dir_path.len);
	buf_add(&w->path, d.name, (size_t)d.name_len + 1);
	return buf_error(&w->path);
}
