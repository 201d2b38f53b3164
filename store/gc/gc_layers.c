/*
 * Layers that no recipe needs any more go from the view.
 *
 * While the recipes of a pinned state are read for their marks, the layers below them are noted. What of that state was
 * not noted, and has a number that had been given by then, nobody can name again: a recipe that is made later names new
 * layers, or those of a segment in memory. And what is in memory was in that state, too: when it was pinned changes
 * were locked out and all that was dirty had been written, so that every segment in memory was as its recipe was.
 *
 * No record of the journal tells of it. A crash before the view is written out leaves the layers there, for the next
 * collection; after it they are gone, with a state whose recipes do not name them.
 */
#include <errno.h>

#include "base/util.h"
#include "index/db.h"
#include "store/engine/gc.h"
#include "store/engine/stack.h"

#define LAYERS_AT_ONCE 4096u /* deleted in one batch */

void gc_layers_begin(struct gc *g)
{
	g->layers.wanted = g->conf->delete && !g->layers.done;
	g->layers.end = g->e->next_layer;
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

/* 1: go on. */
static int delete_some(struct gc *g, struct db_iter *it, struct db_batch *batch)
{
	size_t key_len, value_len, n = 0;
	const void *key, *value;
	uint64_t layer;
	int r = 1, q;

	while (n < LAYERS_AT_ONCE && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		if (layer_key_decode(key, key_len, &layer) < 0 || layer >= g->layers.end ||
		    layer_set_has(&g->layers.live, layer))
			continue; /* what is no key of one is the checker's */
		db_batch_del(batch, key, key_len);
		n++;
	}
	if (r < 0 || n == 0)
		return r;
	rwlock_lock_shared(&g->e->view_lock);
	q = db_batch_apply(batch);
	rwlock_unlock_shared(&g->e->view_lock);
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
