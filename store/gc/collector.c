/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/collector.h"

#include <stdlib.h>

#include "store/engine_state.h"
#include "store/gc/gc_state.h"

struct collector *collector_new(void)
{
	struct collector *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	mutex_init(&g->lock);
	mutex_init(&g->totals_lock);
	atomic_init(&g->unpunched, true); /* before a crash */
	return g;
}

void collector_free(struct collector *g)
{
	if (!g)
		return;
	free(g->moving.m);
	mutex_release(&g->totals_lock);
	mutex_release(&g->lock);
	free(g);
}

bool gc_trylock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	return mutex_trylock(&e->gc->lock);
}

void gc_wait_lock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_lock(&e->gc->lock);
}

void gc_unlock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_unlock(&e->gc->lock);
}

bool gc_begin(struct engine *e)
{
	return !atomic_exchange(&e->gc->running, true);
}

void gc_end(struct engine *e)
{
	atomic_store(&e->gc->running, false);
}

bool gc_is_running(const struct engine *e)
{
	return atomic_load(&e->gc->running);
}

bool gc_has_window(const struct engine *e)
{
	return atomic_load(&e->gc->window);
}
