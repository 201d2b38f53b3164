/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks every name against every inode. Names refer to arbitrary inodes, so they are counted for a window of inodes at
 * a time, as large as memory allows, with a pass over all names for each window.
 *
 * Directories form one tree: every directory has one name, in the directory that it records as its parent. So going
 * upwards ends at the root or in a cycle, and in a cycle one parent has a number that is not below its child's. The way
 * upwards is followed only from such directories, which are those that were moved.
 *
 * Everything in a sealed directory is marked as sealed. A directory that is marked lies in a sealed one or has a seal
 * record. Other names of a sealed file may be anywhere. In a tree that is being removed (fs/seal/reaper.c) a file that
 * has lost one of its names is no longer marked.
 *
 * A replica of a directory sealed on another node is a tree of its own: its top has a replica record, is its own parent
 * and has no name. Nothing lies in two trees.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/conf.h"
#include "base/le.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"

#define ENTRIES_PER_STEP 4096u
#define WINDOW_MIN 1024u
#define DEPTH_MAX (1u << 18) /* a sealed directory has no more entries below it */

struct named {
	uint64_t ino, parent;
	uint32_t nlink, nr_names;
	uint8_t type; /* DT_* */
	bool is_sealed, is_copy, is_top; /* is_top: top of a replica */
};

struct names {
	struct check *k;
	struct db_iter *inodes;
	struct named *v;
	size_t nr, max;
	uint64_t first, last; /* inodes of the window; the last window is open-ended */
	bool at_end;
	uint64_t dir; /* the current directory, and its flags */
	bool is_dir_sealed, is_dir_replica;
};

static void _printf_(2, 3) found_name(struct check *k, const char *fmt, ...)
{
	char text[CHECK_TEXT + 300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	check_found_in_view(k, CHECK_NAMES, text);
}

/* Top of a replica. A directory that is its own parent without a replica record is reported as a cycle. */
static bool is_top(struct check *k, const struct ns_inode *in)
{
	struct ns_replica c;

	return S_ISDIR(in->mode) && in->flags & INODE_REPLICA && in->parent == in->ino &&
	       ns_get_replica(k->db, in->ino, &c) > 0;
}

/* Does the way up from a directory end? Brent's cycle detection. */
static int check_way_up(struct check *k, const struct ns_inode *from)
{
	struct ns_inode in = *from;
	uint64_t mark = from->ino, steps = 0, limit = 2;
	int r = 1;

	while (r > 0 && in.ino != NS_ROOT_INO && !is_top(k, &in)) {
		r = ns_get_inode(k->db, in.parent, &in);
		if (r > 0 && in.ino == mark) {
			found_name(k, "directory %" PRIu64 ": contains itself", from->ino);
			return 0;
		}
		if (++steps == limit) {
			mark = in.ino;
			limit *= 2;
		}
	}
	return r == -EBADMSG ? 0 : MIN(r, 0); /* a broken way up is reported as a missing name */
}

/* Reads the next inodes, as many as fit the window. */
static int fill_window(struct names *n)
{
	const void *key, *value;
	size_t key_len, value_len;
	struct ns_inode in;
	int r = 1;

	n->nr = 0;
	while (n->nr < n->max && (r = db_iter_next(n->inodes, &key, &key_len, &value, &value_len)) > 0) {
		if (check_entry(&n->k->key, key, key_len, value, value_len))
			continue;
		ns_inode_decode(be64_get((const uint8_t *)key + 1), value, value_len, &in);
		n->v[n->nr++] = (struct named){
			in.ino,
			in.parent,
			in.nlink,
			0,
			(uint8_t)IFTODT(in.mode),
			in.flags & INODE_SEALED,
			in.flags & INODE_REPLICA,
			is_top(n->k, &in),
		};
		if (S_ISDIR(in.mode) && in.nlink > 0 && in.ino != NS_ROOT_INO && in.parent >= in.ino)
			r = check_way_up(n->k, &in);
		if (r < 0)
			return r;
	}
	n->at_end = r == 0;
	n->last = n->at_end ? UINT64_MAX : n->v[n->nr - 1].ino;
	return MIN(r, 0);
}

static int compare_inos(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = ((const struct named *)b)->ino;

	return (x > y) - (x < y);
}

/* Reads the flags of a directory; names are sorted by directory, so once for each. A directory that is missing or does
 * not decode is reported elsewhere. */
static int look_at_dir(struct names *n, uint64_t dir)
{
	struct ns_inode in;
	int r;

	if (dir == n->dir)
		return 0;
	r = ns_get_inode(n->k->db, dir, &in);
	n->dir = dir;
	n->is_dir_sealed = r > 0 && in.flags & INODE_SEALED;
	n->is_dir_replica = r > 0 && in.flags & INODE_REPLICA;
	return r == -EBADMSG ? 0 : MIN(r, 0);
}

/*
 * May a sealed directory have entries that are not sealed? It may if it belongs to a tree that was being sealed or
 * unsealed when the store was last in use (fs/seal/seal.c) or, with `has_removed`, to a removed tree that is being
 * deleted (fs/seal/reaper.c). The top of the latter has no links, or is gone already.
 */
static bool is_partly_sealed(struct check *k, uint64_t dir, bool has_removed)
{
	struct ns_inode in;
	struct ns_seal seal;
	int r = ns_get_inode(k->db, dir, &in);

	for (unsigned depth = 0; r > 0 && depth < DEPTH_MAX; depth++) {
		if (in.nlink == 0)
			return has_removed;
		if (ns_get_seal(k->db, in.ino, &seal) > 0)
			return !seal.is_complete;
		if (!(in.flags & INODE_SEALED) || in.ino == NS_ROOT_INO)
			return false;
		r = ns_get_inode(k->db, in.parent, &in);
	}
	return r == 0 && has_removed;
}

static void check_seal(struct names *n, uint64_t dir, const struct ns_dirent *d, const struct named *in)
{
	struct ns_seal seal;

	if (n->is_dir_sealed && !in->is_sealed && !is_partly_sealed(n->k, dir, in->type != DT_DIR))
		found_name(n->k, "name '%.100s' in directory %" PRIu64 ": the directory is sealed, but inode %" PRIu64 " is not",
			   d->name, dir, d->ino);
	if (!n->is_dir_sealed && in->is_sealed && in->type == DT_DIR && ns_get_seal(n->k->db, d->ino, &seal) == 0)
		found_name(n->k, "inode %" PRIu64 ": is marked as sealed, but in no directory that is", d->ino);
	if (n->is_dir_replica != in->is_copy)
		found_name(n->k,
			   "name '%.100s' in directory %" PRIu64 ": only one of the directory and inode %" PRIu64
			   " belongs to a replica",
			   d->name, dir, d->ino);
}

static void check_name(struct names *n, uint64_t dir, const struct ns_dirent *d)
{
	struct named *in = n->nr > 0 ? bsearch(&d->ino, n->v, n->nr, sizeof(*n->v), compare_inos) : NULL;

	if (!in) {
		found_name(n->k,
			   "name '%.100s' in directory %" PRIu64 ": leads to inode %" PRIu64 ", which does not exist",
			   d->name, dir, d->ino);
		return;
	}
	in->nr_names++;
	check_seal(n, dir, d, in);
	if (d->type != in->type)
		found_name(n->k,
			   "name '%.100s' in directory %" PRIu64 ": has type %u, but inode %" PRIu64 " is of type %u",
			   d->name, dir, d->type, d->ino, in->type);
	if (in->type == DT_DIR && in->parent != dir)
		found_name(n->k, "name '%.100s' in directory %" PRIu64 ": directory %" PRIu64 " says it lies in %" PRIu64,
			   d->name, dir, d->ino, in->parent);
}

static int go_through_names(struct names *n)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_DIRENT;
	const void *key, *value;
	size_t key_len, value_len;
	struct ns_dirent d;
	uint64_t nr = 0, dir;
	int r = db_iter_new(n->k->db, NULL, &prefix, 1, NULL, 0, &it);

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (check_entry(&n->k->key, key, key_len, value, value_len))
			continue;
		ns_dirent_decode(be64_get((const uint8_t *)key + 9), value, value_len, &d);
		dir = be64_get((const uint8_t *)key + 1);
		if (d.ino >= n->first && d.ino <= n->last) {
			r = look_at_dir(n, dir);
			if (r < 0)
				return r;
			check_name(n, dir, &d);
		}
		r = ++nr % ENTRIES_PER_STEP == 0 ? check_step(n->k, "links", nr, n->k->res.nr_names, false) : 0;
	}
	return r;
}

static void check_numbers_of_names(struct names *n)
{
	for (const struct named *in = n->v; in < n->v + n->nr; in++) {
		uint64_t want = in->nlink;

		if (in->type == DT_DIR)
			want = in->ino == NS_ROOT_INO || in->nlink == 0 || in->is_top ? 0 : 1;
		if (in->nr_names == want)
			continue;
		if (in->nr_names == 0)
			found_name(n->k, "inode %" PRIu64 ": has no name", in->ino);
		else
			found_name(n->k, "inode %" PRIu64 ": has %s, should have %" PRIu64, in->ino,
				   human_nr(in->nr_names, "name").s, want);
	}
}

int check_names(struct check *k)
{
	_cleanup_(db_iter_freep) struct db_iter *inodes = NULL;
	_cleanup_(freep) struct named *v = NULL;
	struct names n = { .k = k, .max = (size_t)MAX(k->conf->cache / 8 / sizeof(*v), (uint64_t)WINDOW_MIN) };
	const uint8_t prefix = VIEW_INODE;
	int r;

	n.v = v = calloc(n.max, sizeof(*v));
	if (!v)
		return -ENOMEM;
	r = db_iter_new(k->db, NULL, &prefix, 1, NULL, 0, &inodes);
	n.inodes = inodes;
	while (r == 0 && !n.at_end) {
		r = fill_window(&n);
		if (r == 0)
			r = go_through_names(&n);
		if (r == 0)
			check_numbers_of_names(&n);
		n.first = n.last + 1;
	}
	return r;
}
