/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/series.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "base/le.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "index/namespace_table.h"

#define NR_SETS 4096u /* power of two */
#define NR_WAYS 4u
#define NR_NAMED_FILES 8192u
#define NR_NAMED_DIRS 1024u
#define SCAN_ENTRIES 1000

enum { LAST_NUMBER, IN_DIR_SERIES, ALL_NUMBERS, FIRST_NUMBER, ALL_BUT_LAST };

/* Name hashed to mark a directory as scanned. */
#define SCANNED ""

struct slot {
	uint64_t key, ino, used; /* used: value of `clock` at the last use */
};

struct series_keys {
	uint64_t key[SERIES_MAX];
};

/* Series derived from the name of an inode. */
struct named {
	uint64_t ino;
	struct series_keys keys;
};

struct series {
	struct mutex lock; /* leaf */
	struct named files[NR_NAMED_FILES] GUARDED_BY(lock); /* indexed by inode number; the latest wins */
	struct named dirs[NR_NAMED_DIRS] GUARDED_BY(lock);
	uint64_t clock GUARDED_BY(lock);
	struct slot slot[NR_SETS][NR_WAYS] GUARDED_BY(lock);
};

int series_new(struct series **ret)
{
	struct series *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	mutex_init(&s->lock);
	*ret = s;
	return 0;
}

void series_free(struct series *s)
{
	if (!s)
		return;
	mutex_release(&s->lock);
	free(s);
}

/* Length of the name without temporary suffixes. */
static size_t stem_length(const char *name)
{
	static const char *const suffixes[] = { ".tmp", ".part", ".new" };
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t n = strlen(suffixes[i]);

		if (len > n && strcmp(name + len - n, suffixes[i]) == 0)
			return len - n;
	}
	return len;
}

static bool is_digit(const char *name, size_t i)
{
	return isdigit((unsigned char)name[i]);
}

/* Hash of `scope` and the name, with the numbers from index `from` up to, not including, `to` replaced. Never 0. */
static uint64_t hash(const struct fs *fs, uint64_t scope, const char *name, unsigned from, unsigned to)
{
	uint8_t bytes[8 + NS_NAME_MAX + 1];
	size_t stem = MIN(stem_length(name), (size_t)NS_NAME_MAX), n = 8;
	unsigned number = 0; /* numbers completed so far */
	uint64_t h;

	be64_put(bytes, scope);
	for (size_t i = 0; i < stem; i++) {
		bool begins = is_digit(name, i) && (i == 0 || !is_digit(name, i - 1));

		if (!is_digit(name, i) || number < from || number >= to)
			bytes[n++] = (uint8_t)name[i];
		else if (begins)
			bytes[n++] = '#';
		number += is_digit(name, i) && (i + 1 == stem || !is_digit(name, i + 1));
	}
	h = fp_hash64(fs->key, bytes, n);
	return h ? h : 1;
}

static unsigned nr_numbers(const char *name)
{
	size_t stem = stem_length(name);
	unsigned n = 0;

	for (size_t i = 0; i < stem; i++)
		n += is_digit(name, i) && (i + 1 == stem || !is_digit(name, i + 1));
	return n;
}

/* The most likely first. `dir_series`: series of the directory by its last number, 0: unknown. */
static struct series_keys keys_of(const struct fs *fs, uint64_t dir, uint64_t dir_series, const char *name)
{
	unsigned n = nr_numbers(name);

	return (struct series_keys){ {
		[LAST_NUMBER] = hash(fs, dir, name, n - 1, n), /* no number: the name itself */
		[IN_DIR_SERIES] = dir_series ? hash(fs, dir_series, name, 0, 0) : 0,
		[ALL_NUMBERS] = n > 1 ? hash(fs, dir, name, 0, n) : 0,
		[FIRST_NUMBER] = n > 1 ? hash(fs, dir, name, 0, 1) : 0,
		[ALL_BUT_LAST] = n > 2 ? hash(fs, dir, name, 0, n - 1) : 0,
	} };
}

static struct series_keys file_keys(struct series *s, uint64_t ino)
{
	struct named n;

	mutex_lock(&s->lock);
	n = s->files[ino % NR_NAMED_FILES];
	mutex_unlock(&s->lock);
	return n.ino == ino ? n.keys : (struct series_keys){ 0 };
}

/* 0: unknown. */
static uint64_t dir_series(struct series *s, uint64_t ino)
{
	struct named n;

	mutex_lock(&s->lock);
	n = s->dirs[ino % NR_NAMED_DIRS];
	mutex_unlock(&s->lock);
	return n.ino == ino ? n.keys.key[LAST_NUMBER] : 0;
}

void series_named(struct fs *fs, uint64_t ino, bool is_dir, uint64_t dir, const char *name)
{
	struct series *s = fs->series;
	struct named n = { ino, keys_of(fs, dir, dir_series(s, dir), name) };

	mutex_lock(&s->lock);
	*(is_dir ? &s->dirs[ino % NR_NAMED_DIRS] : &s->files[ino % NR_NAMED_FILES]) = n;
	mutex_unlock(&s->lock);
}

static struct slot *find_slot(struct series *s, uint64_t key) REQUIRES(s->lock)
{
	struct slot *set = s->slot[key & (NR_SETS - 1)];

	for (unsigned i = 0; i < NR_WAYS; i++)
		if (set[i].key == key)
			return &set[i];
	return NULL;
}

/* The slot of `key`, or else the least recently used one. */
static struct slot *claim(struct series *s, uint64_t key) REQUIRES(s->lock)
{
	struct slot *set = s->slot[key & (NR_SETS - 1)], *oldest = &set[0];
	struct slot *found = find_slot(s, key);

	if (found)
		return found;
	for (unsigned i = 1; i < NR_WAYS; i++)
		if (set[i].used < oldest->used)
			oldest = &set[i];
	return oldest;
}

static void put_latest(struct series *s, uint64_t key, uint64_t ino)
{
	mutex_lock(&s->lock);
	*claim(s, key) = (struct slot){ key, ino, ++s->clock };
	mutex_unlock(&s->lock);
}

static uint64_t get_latest(struct series *s, uint64_t key)
{
	struct slot *slot;
	uint64_t ino = 0;

	mutex_lock(&s->lock);
	slot = find_slot(s, key);
	if (slot) {
		slot->used = ++s->clock;
		ino = slot->ino;
	}
	mutex_unlock(&s->lock);
	return ino;
}

static void put_all(struct series *s, const struct series_keys *keys, uint64_t ino)
{
	for (unsigned n = 0; n < SERIES_MAX; n++)
		if (keys->key[n] != 0)
			put_latest(s, keys->key[n], ino);
}

void series_closed(struct fs *fs, uint64_t ino)
{
	struct series_keys keys = file_keys(fs->series, ino);

	put_all(fs->series, &keys, ino);
}

void series_renamed(struct fs *fs, uint64_t ino, uint64_t dir, const char *name)
{
	struct series_keys old = file_keys(fs->series, ino), keys;
	bool was_latest = false;

	series_named(fs, ino, dir_series(fs->series, ino) != 0, dir, name);
	keys = file_keys(fs->series, ino);
	for (unsigned n = 0; n < SERIES_MAX; n++)
		was_latest |= old.key[n] != 0 && get_latest(fs->series, old.key[n]) == ino;
	if (was_latest)
		put_all(fs->series, &keys, ino);
}

static bool is_newer(struct fs *fs, const struct ns_content *c, uint64_t than)
{
	struct ns_content other;

	return than == 0 || content_peek(fs->engine, than, &other) < 0 || other.mtime_ns < c->mtime_ns;
}

/* For each series without a more recent entry, record the file with the latest mtime. */
static void scan(struct fs *fs, uint64_t dir, uint64_t series)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_content c;
	struct ns_dirent d;

	if (ns_readdir_open(fs->db, dir, 0, &it) < 0)
		return;
	for (unsigned i = 0; i < SCAN_ENTRIES && ns_readdir_next(it, &d) > 0; i++) {
		struct series_keys keys;

		if (d.type != DT_REG || content_peek(fs->engine, d.ino, &c) < 0 || c.size == 0)
			continue;
		keys = keys_of(fs, dir, series, d.name);
		for (unsigned n = 0; n < SERIES_MAX; n++)
			if (keys.key[n] != 0 && is_newer(fs, &c, get_latest(fs->series, keys.key[n])))
				put_latest(fs->series, keys.key[n], d.ino);
	}
}

/* The most recently created sibling of `dir` in the same series, 0: none. */
static uint64_t sibling(struct fs *fs, uint64_t dir, uint64_t series)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_inode in;
	struct ns_dirent d;
	uint64_t latest = 0;

	if (ns_get_inode(fs->db, dir, &in) <= 0 || ns_readdir_open(fs->db, in.parent, 0, &it) < 0)
		return 0;
	for (unsigned i = 0; i < SCAN_ENTRIES && ns_readdir_next(it, &d) > 0; i++)
		if (d.type == DT_DIR && d.ino != dir && keys_of(fs, in.parent, 0, d.name).key[LAST_NUMBER] == series)
			latest = MAX(latest, d.ino);
	return latest;
}

static void scan_once(struct fs *fs, uint64_t dir, bool beside)
{
	uint64_t scanned = hash(fs, dir, SCANNED, 0, 0), series, other;

	if (get_latest(fs->series, scanned) != 0)
		return;
	put_latest(fs->series, scanned, NS_ROOT_INO);
	series = dir_series(fs->series, dir);
	other = beside && series ? sibling(fs, dir, series) : 0;
	if (other != 0)
		scan(fs, other, series);
	scan(fs, dir, series);
}

static bool contains_inode(const uint64_t *inos, unsigned n, uint64_t ino)
{
	while (n-- > 0)
		if (inos[n] == ino)
			return true;
	return false;
}

unsigned series_champions(struct fs *fs, uint64_t ino, uint64_t dir, uint64_t *ret)
{
	struct series_keys keys = file_keys(fs->series, ino);
	unsigned nr = 0;

	if (dir != 0)
		scan_once(fs, dir, keys.key[IN_DIR_SERIES] && get_latest(fs->series, keys.key[IN_DIR_SERIES]) == 0);
	for (unsigned n = 0; n < SERIES_MAX; n++) {
		uint64_t latest = keys.key[n] ? get_latest(fs->series, keys.key[n]) : 0;

		if (latest != 0 && latest != ino && !contains_inode(ret, nr, latest))
			ret[nr++] = latest;
	}
	return nr;
}
