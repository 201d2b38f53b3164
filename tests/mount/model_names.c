/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Operations on names. */
#include "model_op.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Something new under a free name: -1 if there is no room. Its ino comes with learn(). */
int add_new(struct worker *w, enum node_type type, uint32_t mode, int dir, const char *name, const char *op)
{
	struct tree *t = w->tree;
	int n = node_new(t, type, mode);

	if (n < 0)
		return -1;
	step_begin(t, op);
	t->pending = t->node[n].id;
	if (!dent_add(t, dir, name, n)) {
		t->node[n].type = NODE_NONE;
		return -1;
	}
	return n;
}

int learn(struct worker *w, int n, const char *path)
{
	struct stat st;

	DO(fstatat(w->dirfd, path, &st, AT_SYMLINK_NOFOLLOW));
	node_born(w->tree, n, st.st_ino);
	w->tree->pending = 0;
	return OP_OK;
}

int op_create(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE];
	int dir = random_dir(w), n, fd;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, openat(w->dirfd, path, O_CREAT | O_EXCL | O_RDWR, 0644));
		return OP_OK;
	}
	n = add_new(w, NODE_FILE, 0640, dir, name, "create");
	if (n < 0)
		return OP_OK;
	DO(fd = openat(w->dirfd, path, O_CREAT | O_EXCL | O_RDWR, 0640));
	DO(close(fd));
	return learn(w, n, path);
}

int op_mkdir(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE];
	int dir = random_dir(w), n;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, mkdirat(w->dirfd, path, 0755));
		return OP_OK;
	}
	if (depth_of(w->tree, dir) >= MAX_DEPTH)
		return OP_OK;
	n = add_new(w, NODE_DIR, 0750, dir, name, "mkdir");
	if (n < 0)
		return OP_OK;
	DO(mkdirat(w->dirfd, path, 0750));
	return learn(w, n, path);
}

int op_special(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], target[TARGET_SIZE];
	int dir = random_dir(w), n;
	bool fifo = roll(w, 4) == 0;

	random_name(w, name);
	path_of(w->tree, dir, name, path, sizeof(path));
	memset(target, 'a' + roll(w, 26), sizeof(target));
	target[1 + roll(w, sizeof(target) - 1)] = 0;
	target[sizeof(target) - 1] = 0;
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, symlinkat(target, w->dirfd, path));
		return OP_OK;
	}
	n = add_new(w, fifo ? NODE_FIFO : NODE_SYMLINK, fifo ? 0600 : 0777, dir, name, fifo ? "mkfifo" : "symlink");
	if (n < 0)
		return OP_OK;
	if (fifo) {
		DO(mkfifoat(w->dirfd, path, 0600));
		return learn(w, n, path);
	}
	strcpy(w->tree->node[n].target, target);
	node_changed(w->tree, n);
	DO(symlinkat(target, w->dirfd, path));
	return learn(w, n, path);
}

int op_link(struct worker *w)
{
	char name[NAME_SIZE], path[PATH_SIZE], from[PATH_SIZE];
	int d = random_dent(w, A(FILE) | A(SYMLINK) | A(FIFO)), dir = random_dir(w);

	if (d < 0)
		return OP_OK;
	random_name(w, name);
	dent_path(w, d, from);
	path_of(w->tree, dir, name, path, sizeof(path));
	if (dent_find(w->tree, dir, name) >= 0) {
		FAILS(EEXIST, linkat(w->dirfd, from, w->dirfd, path, 0));
		return OP_OK;
	}
	step_begin(w->tree, "link");
	if (!dent_add(w->tree, dir, name, w->tree->dent[d].node))
		return OP_OK;
	DO(linkat(w->dirfd, from, w->dirfd, path, 0));
	return OP_OK;
}

int op_unlink(struct worker *w)
{
	char path[PATH_SIZE];
	int d = random_dent(w, ANY);
	bool dir;

	if (d < 0)
		return OP_OK;
	dent_path(w, d, path);
	dir = w->tree->node[w->tree->dent[d].node].type == NODE_DIR;
	if (dir && !dir_is_empty(w->tree, w->tree->dent[d].node)) {
		FAILS(ENOTEMPTY, unlinkat(w->dirfd, path, AT_REMOVEDIR));
		return OP_OK;
	}
	step_begin(w->tree, dir ? "rmdir" : "unlink");
	dent_remove(w->tree, d);
	DO(unlinkat(w->dirfd, path, dir ? AT_REMOVEDIR : 0));
	return OP_OK;
}

/* What rename(2) says about moving d onto what `to` is, -1: nothing. 0: it works; -1: it does nothing. */
static int rename_error(const struct tree *t, int d, int dir, int to)
{
	int n = t->dent[d].node, m = to < 0 ? -1 : t->dent[to].node;
	bool is_dir = t->node[n].type == NODE_DIR;

	if (is_dir && is_below(t, dir, n))
		return to >= 0 && n == m ? -1 : EINVAL;
	if (m == n)
		return -1;
	if (m < 0)
		return 0;
	if (is_below(t, t->dent[d].dir, m) && m != 0)
		return ENOTEMPTY;
	if (is_dir && t->node[m].type != NODE_DIR)
		return ENOTDIR;
	if (!is_dir && t->node[m].type == NODE_DIR)
		return EISDIR;
	return is_dir && !dir_is_empty(t, m) ? ENOTEMPTY : 0;
}

int op_rename(struct worker *w)
{
	struct tree *t = w->tree;
	char name[NAME_SIZE], path[PATH_SIZE], from[PATH_SIZE];
	int d = random_dent(w, ANY), dir = random_dir(w), to, error;
	bool noreplace = roll(w, 4) == 0;

	if (d < 0)
		return OP_OK;
	random_name(w, name);
	to = dent_find(t, dir, name);
	dent_path(w, d, from);
	path_of(t, dir, name, path, sizeof(path));
	if (t->node[t->dent[d].node].type == NODE_DIR && depth_of(t, dir) >= MAX_DEPTH - 1)
		return OP_OK; /* keeps paths short */
	error = rename_error(t, d, dir, to);
	if (noreplace && to >= 0) {
		if (error <= 0) /* which error comes first is not promised */
			FAILS(EEXIST, renameat2(w->dirfd, from, w->dirfd, path, RENAME_NOREPLACE));
		return OP_OK;
	}
	if (error > 0) {
		FAILS(error, renameat(w->dirfd, from, w->dirfd, path));
		return OP_OK;
	}
	if (error == 0) {
		step_begin(t, "rename");
		if (to >= 0)
			dent_remove(t, to);
		dent_move(t, d, dir, name);
	}
	DO(renameat2(w->dirfd, from, w->dirfd, path, noreplace ? RENAME_NOREPLACE : 0));
	return OP_OK;
}

int op_exchange(struct worker *w)
{
	struct tree *t = w->tree;
	char path[PATH_SIZE], other[PATH_SIZE];
	int a = random_dent(w, ANY), b = random_dent(w, ANY);

	if (a < 0 || b < 0 || t->dent[a].node == t->dent[b].node)
		return OP_OK;
	dent_path(w, a, path);
	dent_path(w, b, other);
	if (is_below(t, t->dent[a].dir, t->dent[b].node) || is_below(t, t->dent[b].dir, t->dent[a].node)) {
		FAILS(EINVAL, renameat2(w->dirfd, path, w->dirfd, other, RENAME_EXCHANGE));
		return OP_OK;
	}
	if (t->node[t->dent[a].node].type == NODE_DIR || t->node[t->dent[b].node].type == NODE_DIR)
		if (depth_of(t, t->dent[a].dir) != depth_of(t, t->dent[b].dir))
			return OP_OK; /* keeps paths short */
	step_begin(t, "exchange");
	dent_exchange(t, a, b);
	DO(renameat2(w->dirfd, path, w->dirfd, other, RENAME_EXCHANGE));
	return OP_OK;
}
