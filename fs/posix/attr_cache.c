/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/attr_cache.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "index/namespace_table.h"

#define NR_SHARDS 64u /* powers of two; about 1 MiB in all */
#define NR_SETS 32u
#define NR_WAYS 4u

struct slot {
	struct ns_inode in; /* ino 0: empty */
	uint64_t used; /* value of `clock` at the last use */
};

/*
 * Each with a lock of its own: a request that looks up one directory after the other, as for the path of a deep one,
 * holds a lock most of the time, and does so for a long time whenever its thread loses the processor.
 */
struct shard {
	alignas(64) struct mutex lock; /* leaf */
	uint64_t clock GUARDED_BY(lock), changes GUARDED_BY(lock);
	struct slot slot[NR_SETS][NR_WAYS] GUARDED_BY(lock);
};

struct attr_cache {
	struct shard shard[NR_SHARDS];
};

int attr_cache_new(struct attr_cache **ret)
{
	struct attr_cache *c = aligned_alloc(alignof(struct attr_cache), sizeof(*c));

	if (!c)
		return -ENOMEM;
	memset(c, 0, sizeof(*c));
	for (unsigned i = 0; i < NR_SHARDS; i++)
		mutex_init(&c->shard[i].lock);
	*ret = c;
	return 0;
}

void attr_cache_free(struct attr_cache *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < NR_SHARDS; i++)
		mutex_release(&c->shard[i].lock);
	free(c);
}

static struct shard *shard_of(struct attr_cache *c, uint64_t ino)
{
	return &c->shard[ino % NR_SHARDS];
}

static struct slot *set_of(struct shard *c, uint64_t ino) REQUIRES(c->lock)
{
	return c->slot[ino / NR_SHARDS % NR_SETS];
}

static struct slot *find_slot(struct shard *c, uint64_t ino) REQUIRES(c->lock)
{
	struct slot *set = set_of(c, ino);

	for (unsigned i = 0; i < NR_WAYS; i++)
		if (set[i].in.ino == ino)
			return &set[i];
	return NULL;
}

static void put_slot(struct shard *c, const struct ns_inode *in) REQUIRES(c->lock)
{
	struct slot *set = set_of(c, in->ino), *to = find_slot(c, in->ino);

	for (unsigned i = 0; i < NR_WAYS && !to; i++)
		if (set[i].in.ino == 0)
			to = &set[i];
	if (!to) {
		to = &set[0];
		for (unsigned i = 1; i < NR_WAYS; i++)
			if (set[i].used < to->used)
				to = &set[i];
	}
	*to = (struct slot){ *in, ++c->clock };
}

bool attr_cache_get(struct attr_cache *all, uint64_t ino, struct ns_inode *ret, uint64_t *ret_ticket)
{
	struct shard *c = shard_of(all, ino);
	struct slot *s;

	mutex_lock(&c->lock);
	s = find_slot(c, ino);
	if (s) {
		*ret = s->in;
		s->used = ++c->clock;
	}
	*ret_ticket = c->changes;
	mutex_unlock(&c->lock);
	return s != NULL;
}

void attr_cache_fill(struct attr_cache *all, const struct ns_inode *in, uint64_t ticket)
{
	struct shard *c = shard_of(all, in->ino);

	mutex_lock(&c->lock);
	if (c->changes == ticket)
		put_slot(c, in);
	mutex_unlock(&c->lock);
}

void attr_cache_change(struct attr_cache *all, const struct ns_inode *in)
{
	struct shard *c = shard_of(all, in->ino);

	mutex_lock(&c->lock);
	c->changes++;
	put_slot(c, in);
	mutex_unlock(&c->lock);
}

void attr_cache_drop(struct attr_cache *all, uint64_t ino)
{
	struct shard *c = shard_of(all, ino);
	struct slot *s;

	mutex_lock(&c->lock);
	c->changes++;
	s = find_slot(c, ino);
	if (s)
		s->in.ino = 0;
	mutex_unlock(&c->lock);
}

void attr_cache_clear(struct attr_cache *all)
{
	for (unsigned i = 0; i < NR_SHARDS; i++) {
		struct shard *c = &all->shard[i];

		mutex_lock(&c->lock);
		c->changes++;
		memset(c->slot, 0, sizeof(c->slot));
		mutex_unlock(&c->lock);
	}
}
