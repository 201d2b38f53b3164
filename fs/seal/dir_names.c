/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/seal/dir_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/mutex.h"
#include "base/util.h"
#include "index/namespace_table.h"

#define NR_SETS 8192u /* power of two; 1 MiB in all */
#define NR_WAYS 8u

struct hint {
	uint64_t ino; /* 0: empty */
	uint64_t cookie;
};

struct dir_names {
	struct mutex lock; /* leaf */
	struct hint hint[NR_SETS][NR_WAYS] GUARDED_BY(lock);
};

int dir_names_new(struct dir_names **ret)
{
	struct dir_names *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	mutex_init(&n->lock);
	*ret = n;
	return 0;
}

void dir_names_free(struct dir_names *n)
{
	if (!n)
		return;
	mutex_release(&n->lock);
	free(n);
}

/* Inode numbers of checkpoints often have the same distance. */
static struct hint *set_of(struct dir_names *n, uint64_t ino) REQUIRES(n->lock)
{
	return n->hint[(ino * UINT64_C(0x9e3779b97f4a7c15)) >> 32 & (NR_SETS - 1)];
}

static bool get_hint(struct dir_names *n, uint64_t ino, uint64_t *ret_cookie)
{
	struct hint *set;
	bool found = false;

	mutex_lock(&n->lock);
	set = set_of(n, ino);
	for (unsigned i = 0; i < NR_WAYS && !found; i++) {
		found = set[i].ino == ino;
		*ret_cookie = set[i].cookie;
	}
	mutex_unlock(&n->lock);
	return found;
}

/* Is `a` needed later than `b`, after `now`? Smaller ones than that have been listed. */
static bool is_later(uint64_t a, uint64_t b, uint64_t now)
{
	return a - now > b - now;
}

/* In a full set those stay that are needed next after `now`. */
static void put_hint(struct dir_names *n, const struct ns_dirent *d, uint64_t now)
{
	struct hint *set, *to;

	mutex_lock(&n->lock);
	set = set_of(n, d->ino);
	to = &set[0];
	for (unsigned i = 0; i < NR_WAYS && to->ino != d->ino; i++)
		if (set[i].ino == d->ino || (to->ino != 0 && (set[i].ino == 0 || is_later(set[i].ino, to->ino, now))))
			to = &set[i];
	if (to->ino == 0 || !is_later(d->ino, to->ino, now))
		*to = (struct hint){ d->ino, d->cookie };
	mutex_unlock(&n->lock);
}

/* 1; 0: the directory has another name by now; <0 */
static int read_hint(struct db *db, uint64_t parent, uint64_t dir, uint64_t cookie, struct ns_dirent *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(db, parent, cookie - 1, &it);

	if (r >= 0)
		r = ns_readdir_next(it, &d);
	if (r <= 0 || d.cookie != cookie || d.ino != dir)
		return MIN(r, 0);
	*ret = d;
	return 1;
}

/* Reads on after the name was found: the others are asked for next. */
static int read_parent(struct dir_names *n, struct db *db, uint64_t parent, uint64_t dir, struct ns_dirent *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	bool found = false;
	int r = ns_readdir_open(db, parent, 0, &it);

	while (r >= 0 && (r = cancel_check()) == 0 && (r = ns_readdir_next(it, &d)) > 0) {
		if (d.type == DT_DIR)
			put_hint(n, &d, dir);
		if (d.ino == dir) {
			*ret = d;
			found = true;
		}
	}
	return found ? 0 : r < 0 ? r : -ENOENT;
}

int dir_names_find(struct dir_names *n, struct db *db, uint64_t parent, uint64_t dir, struct ns_dirent *ret)
{
	uint64_t cookie;
	int r = get_hint(n, dir, &cookie) ? read_hint(db, parent, dir, cookie, ret) : 0;

	return r < 0 ? r : r > 0 ? 0 : read_parent(n, db, parent, dir, ret);
}
