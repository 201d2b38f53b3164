#include "fs/series.h"

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
#include "fs/inode.h"
#include "index/namespace.h"

#define NR_SETS 1024u /* power of two */
#define NR_WAYS 4u
#define SCAN_ENTRIES 1000

/* A key of its own for "this directory has been looked through". */
#define SCANNED ""

struct slot {
	uint64_t key, ino, used; /* used: the table's clock at the last use */
};

struct series {
	struct mutex lock; /* leaf */
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

/* Length without the suffixes that writers use until a file is complete. */
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

uint64_t series_key(const struct fs *fs, uint64_t dir, const char *name)
{
	uint8_t bytes[8 + NS_NAME_MAX + 1];
	size_t stem = MIN(stem_length(name), (size_t)NS_NAME_MAX), n = 8;
	uint64_t key;

	be64_put(bytes, dir);
	for (size_t i = 0; i < stem; i++) {
		bool digit = isdigit((unsigned char)name[i]);

		if (digit && i > 0 && isdigit((unsigned char)name[i - 1]))
			continue;
		bytes[n++] = digit ? '#' : (uint8_t)name[i];
	}
	key = fp_hash64(fs->key, bytes, n);
	return key ? key : 1;
}

static struct slot *find(struct series *s, uint64_t key) REQUIRES(s->lock)
{
	struct slot *set = s->slot[key & (NR_SETS - 1)];

	for (unsigned i = 0; i < NR_WAYS; i++)
		if (set[i].key == key)
			return &set[i];
	return NULL;
}

/* Its slot, or that of whatever was not used longest. */
static struct slot *claim(struct series *s, uint64_t key) REQUIRES(s->lock)
{
	struct slot *set = s->slot[key & (NR_SETS - 1)], *oldest = &set[0];
	struct slot *found = find(s, key);

	if (found)
		return found;
	for (unsigned i = 1; i < NR_WAYS; i++)
		if (set[i].used < oldest->used)
			oldest = &set[i];
	return oldest;
}

static void put(struct series *s, uint64_t key, uint64_t ino)
{
	mutex_lock(&s->lock);
	*claim(s, key) = (struct slot){ key, ino, ++s->clock };
	mutex_unlock(&s->lock);
}

static uint64_t get(struct series *s, uint64_t key)
{
	struct slot *slot;
	uint64_t ino = 0;

	mutex_lock(&s->lock);
	slot = find(s, key);
	if (slot) {
		slot->used = ++s->clock;
		ino = slot->ino;
	}
	mutex_unlock(&s->lock);
	return ino;
}

void series_closed(struct fs *fs, uint64_t key, uint64_t ino)
{
	if (key != 0)
		put(fs->series, key, ino);
}

void series_renamed(struct fs *fs, uint64_t ino, uint64_t dir, const char *name)
{
	uint64_t key = series_key(fs, dir, name), old = inodes_set_series(fs->inodes, ino, key);

	if (old != 0 && old != key && get(fs->series, old) == ino)
		put(fs->series, key, ino);
}

/* Fill in each series of the directory that is not known, with its file of the latest mtime. */
static void scan(struct fs *fs, uint64_t dir)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_content c, best;
	struct ns_dirent d;

	if (ns_readdir_open(fs->db, dir, 0, &it) < 0)
		return;
	for (unsigned i = 0; i < SCAN_ENTRIES && ns_readdir_next(it, &d) > 0; i++) {
		uint64_t key, known;

		if (d.type != DT_REG || content_peek(fs->engine, d.ino, &c) < 0 || c.size == 0)
			continue;
		key = series_key(fs, dir, d.name);
		known = get(fs->series, key);
		if (known == 0 || content_peek(fs->engine, known, &best) < 0 || best.mtime_ns < c.mtime_ns)
			put(fs->series, key, d.ino);
	}
}

uint64_t series_champion(struct fs *fs, uint64_t key, uint64_t dir)
{
	uint64_t scanned, ino;

	if (key == 0)
		return 0;
	ino = get(fs->series, key);
	if (ino != 0 || dir == 0)
		return ino;
	scanned = series_key(fs, dir, SCANNED);
	if (get(fs->series, scanned) != 0)
		return 0;
	put(fs->series, scanned, NS_ROOT_INO);
	scan(fs, dir);
	return get(fs->series, key);
}
