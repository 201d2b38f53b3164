/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/dedup_tables.h"

#include <stdlib.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/dedup_state.h"

struct dedup *dedup_new(unsigned processors)
{
	struct dedup *d = aligned_alloc(_Alignof(struct dedup), sizeof(*d));

	if (!d)
		return NULL;
	*d = (struct dedup){ 0 };
	mutex_init(&d->absorb_lock);
	mutex_init(&d->append_lock);
	rwlock_init(&d->tables_lock);
	for (unsigned i = 0; i < FPTABLE_PARTS; i++)
		mutex_init(&d->part[i].lock);
	mutex_init(&d->filter.lock);
	cond_init(&d->absorbed);
	d->nr_shared = processors < 4 ? 1 : MIN(processors / 2, NR_SHARED_MAX);
	for (unsigned i = 0; i < d->nr_shared; i++)
		mutex_init(&d->shared[i].lock);
	mutex_init(&d->full.lock);
	cond_init(&d->full.written);
	return d;
}

void dedup_free(struct dedup *d)
{
	if (!d)
		return;
	fptable_release(&d->recent);
	fptable_release(&d->frozen);
	fptable_release(&d->kept);
	mutex_release(&d->filter.lock);
	fingerprint_filter_release(&d->filter.in_use);
	fingerprint_filter_release(&d->filter.next);
	cond_release(&d->full.written);
	mutex_release(&d->full.lock);
	for (unsigned i = 0; i < d->nr_shared; i++)
		mutex_release(&d->shared[i].lock);
	cond_release(&d->absorbed);
	for (unsigned i = 0; i < FPTABLE_PARTS; i++)
		mutex_release(&d->part[i].lock);
	rwlock_release(&d->tables_lock);
	mutex_release(&d->append_lock);
	mutex_release(&d->absorb_lock);
	free(d);
}

void dedup_abandon_frames(struct engine *e)
{
	struct dedup *d = e->dedup;

	while (d->full.nr_unwritten > 0)
		packs_frame_abandon(e->packs, d->full.unwritten[--d->full.nr_unwritten]);
	for (struct shared_frames *s = d->shared; s < d->shared + d->nr_shared; s++) {
		if (s->pages.f)
			packs_frame_abandon(e->packs, TAKE(s->pages.f));
		if (s->varied.f)
			packs_frame_abandon(e->packs, TAKE(s->varied.f));
	}
}

void dedup_stats(struct engine *e, struct engine_stats *ret)
{
	struct dedup *d = e->dedup;

	dedup_lock_shared(e);
	ret->fptable_entries = d->recent.nr + d->frozen.nr + d->kept.nr;
	ret->fptable_memory = fptable_memory(&d->recent) + fptable_memory(&d->frozen) + fptable_memory(&d->kept);
	ret->filter_memory = fingerprint_filter_bytes(&d->filter.in_use);
	dedup_unlock_shared(e);
}

void dedup_lock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_lock(&e->dedup->append_lock);
	rwlock_lock(&e->dedup->tables_lock);
}

void dedup_unlock(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_unlock(&e->dedup->tables_lock);
	mutex_unlock(&e->dedup->append_lock);
}

void dedup_lock_shared(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_lock_shared(&e->dedup->tables_lock);
}

void dedup_unlock_shared(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_unlock_shared(&e->dedup->tables_lock);
}

bool dedup_is_locked(struct engine *e)
{
	return mutex_held(&e->dedup->append_lock);
}

bool dedup_wait_for(struct engine *e, uint64_t timeout_ns) NO_THREAD_SAFETY_ANALYSIS
{
	bool in_time;

	rwlock_unlock(&e->dedup->tables_lock);
	in_time = cond_wait_for(&e->dedup->absorbed, &e->dedup->append_lock, timeout_ns);
	rwlock_lock(&e->dedup->tables_lock);
	return in_time;
}

void dedup_wake(struct engine *e)
{
	cond_broadcast(&e->dedup->absorbed);
}

void dedup_lock_tables(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_lock(&e->dedup->absorb_lock); /* excludes readers of `frozen` and `kept` that do not take append_lock */
	dedup_lock(e);
}

void dedup_unlock_tables(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	dedup_unlock(e);
	mutex_unlock(&e->dedup->absorb_lock);
}

struct fptable *dedup_table(struct engine *e, enum dedup_table which)
{
	struct dedup *d = e->dedup;

	assert(mutex_held(&d->append_lock));
	return which == DEDUP_RECENT ? &d->recent : which == DEDUP_FROZEN ? &d->frozen : &d->kept;
}

struct pack_frame *dedup_open_frame(struct engine *e, bool varied)
{
	assert(mutex_held(&e->dedup->append_lock));
	return varied ? e->dedup->shared[0].varied.f : e->dedup->shared[0].pages.f;
}
