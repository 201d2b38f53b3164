/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Deletes layers that no recipe needs any more from the view.
 *
 * While the recipes of the snapshot are read for marking, the layers below them are collected in a set. A layer of the
 * snapshot that is not in this set, and that has a number assigned before the snapshot, cannot be referred to again: a
 * later recipe refers to new layers, or to those of a segment in memory. Segments in memory are covered by the
 * snapshot: when it was taken, changes were locked out and everything dirty had been written, so every segment in
 * memory was equal to its recipe.
 *
 * The journal has no record of this. A crash before the view is flushed leaves the layers for the next collection.
 * After the flush they are gone, in a state without recipes that refer to them.
 */
#include <errno.h>

#include "base/util.h"
#include "index/db.h"
#include "store/gc/gc.h"
#include "store/file/extents/layer_stack.h"
#include "store/log/view.h"

#define LAYERS_AT_ONCE 4096u /* deleted in one batch */

void gc_layers_begin(struct gc *g)
{
	g->layers.wanted = g->conf->delete && !g->layers.done;
	g->layers.end = view_layers_end(g->e);
	layer_set_release(&g->layers.live);
}

int gc_layers_note(struct gc *g, const struct stack *s)
{
	int r = 0;

	for (unsigned i = 0; g->layers.wanted && i < s->nr && r == 0; i++)
		if (s->v[i].layer > 0)
			r = layer_set_add(&g->layers.live, s->v[i].layer);
	return r;
}

/* 1: continue. */
static int delete_some(struct gc *g, struct db_iter *it, struct db_batch *batch)
{
	size_t key_len, value_len, n = 0;
	const void *key, *value;
	uint64_t layer;
	int r = 1, q;

	while (n < LAYERS_AT_ONCE && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (layer_key_decode(key, key_len, &layer) < 0 || layer >= g->layers.end ||
		    layer_set_has(&g->layers.live, layer))
			continue; /* malformed keys are left to the checker */
		db_batch_del(batch, key, key_len);
		n++;
	}
	if (r < 0 || n == 0)
		return r;
	view_lock_shared(g->e);
	q = db_batch_apply(batch);
	view_unlock_shared(g->e);
	if (q < 0)
		return q;
	g->report->nr_freed_layers += n;
	return r;
}

int gc_layers_sweep(struct gc *g)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = layer_prefix();
	int r;

	if (!g->layers.wanted)
		return 0;
	r = db_batch_new(g->e->db, &batch);
	if (r == 0)
		r = db_iter_new(g->e->db, g->state, prefix.b, prefix.len, NULL, 0, &it);
	if (r == 0)
		do
			r = delete_some(g, it, batch);
		while (r > 0);
	g->layers.wanted = false;
	g->layers.done = r == 0;
	layer_set_release(&g->layers.live);
	return r;
}
