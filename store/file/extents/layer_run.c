/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/file/extents/layer_run.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/file/extents/segment.h"

int run_new(const struct segment_tree *t, size_t nr, struct run **ret)
{
	struct run *r = malloc(sizeof(*r) + nr * sizeof(struct layer *));
	struct segment *s = segment_tree_from(t, 0);

	if (!r)
		return -ENOMEM;
	*r = (struct run){ .refs = 1 };
	for (; r->nr < nr && s && s->number == r->nr && s->layers; s = segment_tree_from(t, s->number + 1)) {
		r->mapped += s->layers->mapped;
		r->v[r->nr++] = layer_get(s->layers);
	}
	if (r->nr < nr || s) {
		run_put(r);
		return 0;
	}
	*ret = r;
	return 1;
}

struct run *run_get(struct run *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
	return r;
}

void run_put(struct run *r)
{
	if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1)
		return;
	while (r->nr > 0)
		layer_put(r->v[--r->nr]);
	free(r);
}
