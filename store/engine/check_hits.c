/*
 * Files that miss bytes, by name. Recipes know inodes only: hits are collected, and their names found together, by one
 * pass over all names. The path above a name is found upwards, directory by directory; names come sorted by directory,
 * so it is done once for each.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/le.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine/check_internal.h"

#define HITS_MAX 4096u
#define DEPTH_MAX 2048u

int hits_init(struct hits *h)
{
	*h = (struct hits){ .v = malloc(HITS_MAX * sizeof(*h->v)) };
	return h->v ? 0 : -ENOMEM;
}

void hits_release(struct hits *h)
{
	free(h->v);
	*h = (struct hits){ 0 };
}

int hits_add(struct check *k, struct hits *h, const struct hit *hit)
{
	struct hit *last = h->nr > 0 ? &h->v[h->nr - 1] : NULL;
	int r = 0;

	if (last && last->ino == hit->ino && last->off + last->len == hit->off && last->why == hit->why) {
		last->len += hit->len;
		return 0;
	}
	if (h->nr == HITS_MAX)
		r = hits_tell(k, h);
	if (r == 0)
		h->v[h->nr++] = *hit;
	return r;
}

/* --- paths --- */

/* The name of a directory in its parent. 1/0/<0. */
static int name_of_dir(struct check *k, uint64_t parent, uint64_t dir, struct ns_dirent *ret)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	int r = ns_readdir_open(k->db, parent, 0, &it);

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

/* The path of a directory with a slash at its end; "" for the root. What is not connected begins with "?/". */
static int path_of_dir(struct check *k, uint64_t dir, struct buf *ret)
{
	struct ns_inode in = { 0 };
	struct ns_dirent d;
	int r = 1;

	buf_clear(ret);
	for (unsigned depth = 0; dir != NS_ROOT_INO && r > 0; depth++) {
		r = depth < DEPTH_MAX ? ns_get_inode(k->db, dir, &in) : 0;
		if (r == -EBADMSG)
			r = 0; /* told elsewhere */
		if (r > 0)
			r = name_of_dir(k, in.parent, dir, &d);
		if (r > 0)
			prepend(ret, d.name, d.name_len);
		if (r == 0)
			prepend(ret, "?", 1);
		dir = in.parent;
	}
	return r < 0 ? r : buf_error(ret);
}

/* --- telling --- */

static const char *why_text(enum hit_why why)
{
	switch (why) {
	case HIT_NOWHERE:
		return "they are said to lie where no data can be, in";
	case HIT_NEVER_WRITTEN:
		return "they are said to lie where nothing was ever written, in";
	case HIT_MISSING:
		return "there is no data in";
	case HIT_TABLE:
		return "the fingerprints are damaged in";
	case HIT_CHUNK:
		return "the data is damaged in";
	case HIT_COLLECTED:
		return "the data has been collected in";
	}
	return "";
}

static void tell(struct check *k, const struct hit *hit, const char *path)
{
	struct check_finding f = { .area = CHECK_DATA, .path = path, .off = hit->off, .len = hit->len };
	char text[256], who[64] = "";

	if (!path)
		snprintf(who, sizeof(who), "inode %" PRIu64 ", which has no name: ", hit->ino);
	snprintf(text, sizeof(text),
		 "%sbytes %" PRIu64 " to %" PRIu64 " cannot be read: %s pack %" PRIu32 " offset %" PRIu32, who,
		 hit->off, hit->off + hit->len - 1, why_text(hit->why), hit->addr.pack, hit->addr.off);
	f.text = text;
	check_tell(k, &f);
}

static size_t first_of(const struct hits *h, uint64_t ino)
{
	size_t lo = 0, hi = h->nr;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (h->v[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void tell_file(struct check *k, const struct hits *h, uint64_t ino, const char *path)
{
	for (size_t i = first_of(h, ino); i < h->nr && h->v[i].ino == ino; i++)
		tell(k, &h->v[i], path);
}

static bool is_hit(const struct hits *h, uint64_t ino)
{
	size_t i = first_of(h, ino);

	return i < h->nr && h->v[i].ino == ino;
}

/* All names that lead to hit files; a file with several is told under each. */
static int tell_names(struct check *k, const struct hits *h, bool *told)
{
	_cleanup_(buf_release) struct buf dir_path = BUF_EMPTY, path = BUF_EMPTY;
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_DIRENT;
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t dir, last_dir = 0;
	struct ns_dirent d;
	int r;

	r = db_iter_new(k->db, NULL, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (check_entry(&k->key, key, key_len, value, value_len))
			continue;
		ns_dirent_decode(be64_get((const uint8_t *)key + 9), value, value_len, &d);
		if (!is_hit(h, d.ino))
			continue;
		dir = be64_get((const uint8_t *)key + 1);
		r = dir == last_dir ? 0 : path_of_dir(k, dir, &dir_path);
		if (r < 0)
			return r;
		last_dir = dir;
		buf_clear(&path);
		buf_add(&path, dir_path.data, dir_path.len);
		buf_add(&path, d.name, (size_t)d.name_len + 1);
		if (buf_error(&path) < 0)
			return -ENOMEM;
		tell_file(k, h, d.ino, (const char *)path.data);
		told[first_of(h, d.ino)] = true;
	}
	return r;
}

int hits_tell(struct check *k, struct hits *h)
{
	_cleanup_(freep) bool *told = calloc(HITS_MAX, sizeof(*told));
	int r;

	if (!told)
		return -ENOMEM;
	r = h->nr > 0 ? tell_names(k, h, told) : 0;
	if (r < 0)
		return r;
	for (size_t i = 0; i < h->nr; i++) {
		k->res.nr_lost_files += h->v[i].ino != h->last_ino;
		k->res.lost_bytes += h->v[i].len;
		h->last_ino = h->v[i].ino;
		if (!told[first_of(h, h->v[i].ino)])
			tell(k, &h->v[i], NULL);
	}
	h->nr = 0;
	return 0;
}
