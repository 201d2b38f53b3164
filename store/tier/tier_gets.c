/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/tier_gets.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

int tier_gets_init(struct tier *t, struct tier_gets *ret)
{
	*ret = (struct tier_gets){ 0 };
	return tier_queue_new(t, &ret->queue);
}

void tier_gets_release(struct tier_gets *g)
{
	tier_queue_free(g->queue); /* waits */
	for (unsigned i = 0; i < TIER_GETS_MAX; i++)
		free(g->v[i].bytes);
	*g = (struct tier_gets){ 0 };
}

bool tier_gets_is_full(const struct tier_gets *g, size_t len)
{
	return g->nr == TIER_GETS_MAX || (g->nr > 0 && g->bytes + len > TIER_GETS_BYTES);
}

int tier_gets_start(struct tier_gets *g, struct tier_object_name name, uint64_t off, size_t len, uint32_t tag)
{
	struct tier_got *o = &g->v[(g->first + g->nr) % TIER_GETS_MAX];
	uint8_t *bytes = malloc(MAX(len, (size_t)1));

	assert(!tier_gets_is_full(g, len));
	if (!bytes)
		return -ENOMEM;
	*o = (struct tier_got){ .name = name, .bytes = bytes, .tag = tag };
	o->q = (struct tier_request){ .op = TIER_GET, .name = o->name.s, .off = off, .buf = bytes, .len = len };
	g->nr++;
	g->bytes += len;
	tier_start(g->queue, &o->q);
	return 0;
}

static void drop_returned(struct tier_gets *g)
{
	struct tier_got *o = &g->v[g->first];

	if (!g->is_returned)
		return;
	free(TAKE(o->bytes));
	g->bytes -= o->q.len;
	g->first = (g->first + 1) % TIER_GETS_MAX;
	g->nr--;
	g->is_returned = false;
}

struct tier_got *tier_gets_next(struct tier_gets *g)
{
	drop_returned(g);
	if (g->nr == 0)
		return NULL;
	while (!g->v[g->first].is_completed)
		container_of(tier_next(g->queue), struct tier_got, q)->is_completed = true;
	g->is_returned = true;
	return &g->v[g->first];
}
