/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/seal/dir_path.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "fs/fs.h"
#include "fs/posix/attr.h"
#include "fs/seal/dir_names.h"
#include "index/namespace_table.h"

#define DEPTH_MAX 2048u

static int prepend(struct buf *path, const char *name, size_t len)
{
	struct buf longer = BUF_EMPTY;

	buf_add(&longer, name, len);
	if (path->len > 0)
		buf_add_u8(&longer, '/');
	buf_add(&longer, path->data, path->len);
	buf_release(path);
	buf_move(path, &longer);
	return buf_error(path);
}

int dir_path_prepend(struct fs *fs, uint64_t dir, struct buf *path)
{
	uint64_t parent = 0;
	struct ns_dirent d;
	int r = 0;

	for (unsigned depth = 0; dir != NS_ROOT_INO && r == 0; depth++) {
		r = depth < DEPTH_MAX ? attr_load_parent(fs, dir, &parent) : -ELOOP;
		if (r == 0)
			r = -ENOENT;
		if (r > 0)
			r = dir_names_find(fs->dir_names, fs->db, parent, dir, &d);
		if (r == 0)
			r = prepend(path, d.name, d.name_len);
		if (r == 0 && path->len > NS_PATH_MAX)
			r = -ELOOP;
		dir = parent;
	}
	return r;
}

int dir_path_check_depth(struct fs *fs, const struct ns_inode *of)
{
	uint64_t ino = of->ino, parent = of->parent;
	int r = 1;

	for (unsigned depth = 0; ino != NS_ROOT_INO && r > 0; depth++) {
		ino = parent;
		r = depth < DEPTH_MAX ? attr_load_parent(fs, ino, &parent) : -ENAMETOOLONG;
	}
	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

int dir_path_check(struct fs *fs, const struct buf *path, uint64_t dir)
{
	const char *at = (const char *)path->data, *end = at + path->len;
	struct ns_dirent d = { .ino = NS_ROOT_INO };
	char name[NS_NAME_MAX + 1];
	int r = 1;

	while (at < end && r > 0) {
		const char *slash = memchr(at, '/', (size_t)(end - at));
		size_t len = (size_t)((slash ? slash : end) - at);

		memcpy(name, at, len);
		name[len] = '\0';
		r = ns_find(fs->db, fs->key, d.ino, name, &d);
		at += len + 1;
	}
	return r < 0 ? r : r > 0 && d.ino == dir ? 0 : -ENOENT;
}
