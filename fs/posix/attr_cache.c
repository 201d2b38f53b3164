/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/posix/attr_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "index/namespace_table.h"

#define NR_SETS 2048u /* power of two; about 1 MiB in all */
#define NR_WAYS 4u

struct slot {
	struct ns_inode in; /* ino 0: empty */
	uint64_t used; /* value of `clock` at the last use */
};

struct attr_cache {
	struct mutex lock; /* leaf */
	uint64_t clock GUARDED_BY(lock), changes GUARDED_BY(lock);
	struct slot slot[NR_SETS][NR_WAYS] GUARDED_BY(lock);
};

int attr_cache_new(struct attr_cache **ret)
{
	struct attr_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	mutex_init(&c->lock);
	*ret = c;
	return 0;
}

void attr_cache_free(struct attr_cache *c)
{
	if (!c)
		return;
	mutex_release(&c->lock);
	free(c);
}

static struct slot *find_slot(struct attr_cache *c, uint64_t ino) REQUIRES(c->lock)
{
	struct slot *set = c->slot[ino & (NR_SETS - 1)];

	for (unsigned i = 0; i < NR_WAYS; i++)
		if (set[i].in.ino == ino)
			return &set[i];
	return NULL;
}

static void put_slot(struct attr_cache *c, const struct ns_inode *in) REQUIRES(c->lock)
{
	struct slot *set = c->slot[in->ino & (NR_SETS - 1)], *to = find_slot(c, in->ino);

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

bool attr_cache_get(struct attr_cache *c, uint64_t ino, struct ns_inode *ret, uint64_t *ret_ticket)
{
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

void attr_cache_fill(struct attr_cache *c, const struct ns_inode *in, uint64_t ticket)
{
	mutex_lock(&c->lock);
	if (c->changes == ticket)
		put_slot(c, in);
	mutex_unlock(&c->lock);
}

void attr_cache_change(struct attr_cache *c, const struct ns_inode *in)
{
	mutex_lock(&c->lock);
	c->changes++;
	put_slot(c, in);
	mutex_unlock(&c->lock);
}

void attr_cache_drop(struct attr_cache *c, uint64_t ino)
{
	struct slot *s;

	mutex_lock(&c->lock);
	c->changes++;
	s = find_slot(c, ino);
	if (s)
		s->in.ino = 0;
	mutex_unlock(&c->lock);
}

void attr_cache_clear(struct attr_cache *c)
{
	mutex_lock(&c->lock);
	c->changes++;
	memset(c->slot, 0, sizeof(c->slot));
	mutex_unlock(&c->lock);
}
