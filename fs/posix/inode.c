/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/inode.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/util.h"
#include "store/engine.h"

#define FIRST_SIZE 1024u /* power of two */

struct inodes {
	struct engine *engine; /* constant */
	struct mutex lock; /* inside fs.names; nothing inside it */
	struct inode **chain GUARDED_BY(lock);
	size_t size GUARDED_BY(lock); /* of chain: a power of two, at least half of `nr` */
	size_t nr GUARDED_BY(lock);
};

int inodes_new(struct engine *e, struct inodes **ret)
{
	struct inodes *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->chain = calloc(FIRST_SIZE, sizeof(struct inode *));
	if (!t->chain) {
		free(t);
		return -ENOMEM;
	}
	t->engine = e;
	t->size = FIRST_SIZE;
	mutex_init(&t->lock);
	*ret = t;
	return 0;
}

void inodes_free(struct inodes *t)
{
	if (!t)
		return;
	for (size_t b = 0; b < t->size; b++)
		for (struct inode *i = t->chain[b], *next; i; i = next) {
			next = i->next;
			free(i);
		}
	mutex_release(&t->lock);
	free(t->chain);
	free(t);
}

uint64_t inodes_count(struct inodes *t)
{
	uint64_t nr;

	mutex_lock(&t->lock);
	nr = t->nr;
	mutex_unlock(&t->lock);
	return nr;
}

/* Inode numbers are assigned in order, so their low bits are well distributed. */
static struct inode **bucket(struct inode **chain, size_t size, uint64_t ino)
{
	return &chain[ino & (size - 1)];
}

static struct inode *find_inode(struct inodes *t, uint64_t ino) REQUIRES(t->lock)
{
	struct inode *i;

	assert(mutex_held(&t->lock));
	for (i = *bucket(t->chain, t->size, ino); i; i = i->next)
		if (i->ino == ino)
			return i;
	return NULL;
}

static void grow(struct inodes *t) REQUIRES(t->lock)
{
	size_t size = t->size * 2;
	struct inode **chain = calloc(size, sizeof(struct inode *));

	assert(mutex_held(&t->lock));
	if (!chain)
		return; /* keep the longer chains */
	for (size_t b = 0; b < t->size; b++)
		for (struct inode *i = t->chain[b], *next; i; i = next) {
			struct inode **to = bucket(chain, size, i->ino);

			next = i->next;
			i->next = *to;
			*to = i;
		}
	free(t->chain);
	t->chain = chain;
	t->size = size;
}

static struct inode *add_inode(struct inodes *t, uint64_t ino) REQUIRES(t->lock)
{
	struct inode *i = calloc(1, sizeof(*i));
	struct inode **to;

	assert(mutex_held(&t->lock));
	if (!i)
		return NULL;
	if (t->nr >= 2 * t->size)
		grow(t);
	to = bucket(t->chain, t->size, ino);
	i->ino = ino;
	i->next = *to;
	*to = i;
	t->nr++;
	return i;
}

static void erase(struct inodes *t, struct inode *i) REQUIRES(t->lock)
{
	struct inode **at = bucket(t->chain, t->size, i->ino);

	assert(mutex_held(&t->lock));
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	t->nr--;
	free(i);
}

static int get_inode(struct inodes *t, uint64_t ino, uint64_t lookups, struct inode **ret)
{
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (!i)
		i = add_inode(t, ino);
	if (i) {
		i->pins++;
		i->nlookup += lookups;
	}
	mutex_unlock(&t->lock);
	if (!i)
		return -ENOMEM;
	*ret = i;
	return 0;
}

int inode_get(struct inodes *t, uint64_t ino, struct inode **ret)
{
	return get_inode(t, ino, 0, ret);
}

int inode_get_lookup(struct inodes *t, uint64_t ino, struct inode **ret)
{
	return get_inode(t, ino, 1, ret);
}

struct inode *inode_find(struct inodes *t, uint64_t ino)
{
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i)
		i->pins++;
	mutex_unlock(&t->lock);
	return i;
}

/* Free an idle entry. true: it has unfinished work and was kept. */
static bool free_if_idle(struct inodes *t, struct inode *i) REQUIRES(t->lock)
{
	assert(mutex_held(&t->lock));
	if (i->pins > 0 || i->nlookup > 0)
		return false;
	if (i->orphan || i->atime_dirty)
		return true;
	erase(t, i);
	return false;
}

bool inode_put(struct inodes *t, struct inode *i)
{
	bool rest;

	if (!i)
		return false;
	mutex_lock(&t->lock);
	assert(i->pins > 0);
	i->pins--;
	rest = free_if_idle(t, i);
	mutex_unlock(&t->lock);
	return rest;
}

bool inode_forget(struct inodes *t, uint64_t ino, uint64_t n)
{
	bool rest = false;
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i) {
		i->nlookup -= MIN(n, i->nlookup);
		rest = free_if_idle(t, i);
	}
	mutex_unlock(&t->lock);
	return rest;
}

bool inodes_atime(struct inodes *t, uint64_t ino, int64_t *ret_ns)
{
	bool dirty = false;
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i && i->atime_dirty) {
		*ret_ns = i->atime_ns;
		dirty = true;
	}
	mutex_unlock(&t->lock);
	return dirty;
}

void inodes_written(struct inodes *t, uint64_t ino)
{
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i) {
		i->atime_dirty = false;
		i->atime_ns = 0;
	}
	mutex_unlock(&t->lock);
}

bool inodes_has(struct inodes *t, uint64_t ino)
{
	bool has;

	mutex_lock(&t->lock);
	has = find_inode(t, ino) != NULL;
	mutex_unlock(&t->lock);
	return has;
}

bool inodes_set_orphan(struct inodes *t, uint64_t ino, bool orphan)
{
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i)
		i->orphan = orphan;
	mutex_unlock(&t->lock);
	return i != NULL;
}

void inodes_set_privileged(struct inodes *t, uint64_t ino)
{
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i)
		i->privileged = true;
	mutex_unlock(&t->lock);
}

void inode_count_writer(struct inodes *t, struct inode *i, int by)
{
	mutex_lock(&t->lock);
	assert(by > 0 || i->nr_writers > 0);
	i->nr_writers += (uint32_t)by;
	mutex_unlock(&t->lock);
}

bool inodes_has_writers(struct inodes *t, uint64_t ino)
{
	struct inode *i;
	bool has;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	has = i && i->nr_writers > 0;
	mutex_unlock(&t->lock);
	return has;
}

static size_t list_writers(struct inodes *t, uint64_t *inos) REQUIRES(t->lock)
{
	size_t nr = 0;

	for (size_t b = 0; b < t->size; b++) {
		for (const struct inode *i = t->chain[b]; i; i = i->next) {
			if (i->nr_writers == 0)
				continue;
			if (inos)
				inos[nr] = i->ino;
			nr++;
		}
	}
	return nr;
}

int inodes_with_writers(struct inodes *t, uint64_t **ret, size_t *ret_nr)
{
	uint64_t *inos;
	size_t nr;

	mutex_lock(&t->lock);
	nr = list_writers(t, NULL);
	inos = malloc(MAX(nr, 1u) * sizeof(*inos));
	if (inos)
		list_writers(t, inos);
	mutex_unlock(&t->lock);
	if (!inos)
		return -ENOMEM;
	*ret = inos;
	*ret_nr = nr;
	return 0;
}

static struct inode_rest rest_of(const struct inode *i)
{
	return (struct inode_rest){ i->ino, i->atime_ns, i->orphan, i->atime_dirty };
}

bool inodes_take_idle(struct inodes *t, uint64_t ino, struct inode_rest *ret)
{
	bool idle = false;
	struct inode *i;

	mutex_lock(&t->lock);
	i = find_inode(t, ino);
	if (i && i->pins == 0 && i->nlookup == 0) {
		*ret = rest_of(i);
		erase(t, i);
		idle = true;
	}
	mutex_unlock(&t->lock);
	return idle;
}

bool inodes_take_any(struct inodes *t, struct inode_rest *ret)
{
	struct content *open = NULL;
	bool found = false;

	mutex_lock(&t->lock);
	/* Cut off empty chains at the end, so that taking all entries costs one pass. */
	while (t->nr > 0 && !t->chain[t->size - 1])
		t->size--;
	if (t->nr > 0) {
		struct inode *i = t->chain[t->size - 1];

		*ret = rest_of(i);
		open = i->content; /* the file was still open when the daemon was stopped */
		t->chain[t->size - 1] = i->next;
		t->nr--;
		free(i);
		found = true;
	}
	mutex_unlock(&t->lock);
	content_close(open);
	return found;
}

int inode_content_open(struct inodes *t, struct inode *i, struct content **ret)
{
	struct content *c = inode_content(t, i), *extra = NULL;
	int r;

	if (c) {
		*ret = c;
		return 0;
	}
	r = content_open(t->engine, i->ino, &c); /* may read from disk, so not under the lock */
	if (r < 0)
		return r;
	mutex_lock(&t->lock);
	if (i->nr_content++ == 0)
		i->content = c;
	else
		extra = c; /* another thread was faster; both point to the same object, counted twice */
	*ret = i->content;
	mutex_unlock(&t->lock);
	content_close(extra);
	return 0;
}

struct content *inode_content(struct inodes *t, struct inode *i)
{
	struct content *c = NULL;

	mutex_lock(&t->lock);
	if (i->nr_content > 0) {
		i->nr_content++;
		c = i->content;
	}
	mutex_unlock(&t->lock);
	return c;
}

void inode_content_close(struct inodes *t, struct inode *i)
{
	struct content *last = NULL;

	mutex_lock(&t->lock);
	assert(i->nr_content > 0);
	if (--i->nr_content == 0)
		last = TAKE(i->content);
	mutex_unlock(&t->lock);
	content_close(last);
}
