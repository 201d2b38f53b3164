/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/small_frames.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/dedup/dedup_state.h"
#include "store/engine_state.h"

struct shared_frames *shared_frames_take(struct engine *e) NO_THREAD_SAFETY_ANALYSIS /* returns with its lock held */
{
	struct dedup *d = e->dedup;

	for (unsigned i = 0; i < d->nr_shared; i++)
		if (mutex_trylock(&d->shared[i].lock))
			return &d->shared[i];
	mutex_lock(&d->shared[0].lock);
	return &d->shared[0];
}

void shared_frames_put(struct shared_frames *s) NO_THREAD_SAFETY_ANALYSIS
{
	mutex_unlock(&s->lock);
}

static void add_filling(struct engine *e, unsigned nr)
{
	struct full_frames *full = &e->dedup->full;

	mutex_lock(&full->lock);
	full->nr_filling += nr;
	full->nr += nr;
	mutex_unlock(&full->lock);
}

static int make_room(struct engine *e, struct open_frame *o, const struct batch *b, unsigned i, struct pack_frame **full,
		     unsigned *nr_full) REQUIRES_SHARED(append_lock)
{
	if (o->f && !pack_frame_takes(o->f, batch_len(b, i))) {
		struct pack_frame *now = TAKE(o->f);

		if (e->remote)
			now = e->remote->defer(e, now);
		if (now) {
			full[(*nr_full)++] = now;
			add_filling(e, 1);
		}
	}
	if (o->f)
		return 0;
	o->tweak = b->tweak;
	return packs_frame_open(e->packs, PACK_SMALL, b->page, &o->f);
}

/* Compressed if any file in it requests it, unless it holds several domains: how well bytes compress together reveals how
 * similar they are. */
static void set_compression(const struct open_frame *o, const struct batch *b)
{
	if (!fp_equal(b->tweak, o->tweak))
		pack_frame_set_uncompressed(o->f);
	else if (b->compression.kind != PACK_COMPRESS_NONE)
		pack_frame_set_compression(o->f, b->compression);
}

int small_frame_for(struct engine *e, struct shared_frames *s, const struct batch *b, unsigned i,
		    struct pack_frame **full, unsigned *nr_full, struct pack_frame **ret)
{
	struct open_frame *o = b->page ? &s->pages : &s->varied;
	int r = make_room(e, o, b, i, full, nr_full);

	if (r < 0)
		return r;
	*ret = o->f;
	set_compression(o, b);
	return 0;
}

bool small_frames_have_room(const struct engine *e)
{
	return e->dedup->full.nr < NR_UNWRITTEN_MAX;
}

void small_frame_write(struct engine *e, struct pack_frame *f)
{
	struct full_frames *full = &e->dedup->full;
	int r = packs_frame_write(e->packs, f);

	mutex_lock(&full->lock);
	full->nr_filling--;
	if (r < 0) {
		full->unwritten[full->nr_unwritten++] = f;
		full->error = r;
	} else {
		full->nr--;
	}
	cond_broadcast(&full->written);
	mutex_unlock(&full->lock);
}

int small_frames_wait(struct engine *e)
{
	struct full_frames *full = &e->dedup->full;
	bool tried = false;
	int r = 0;

	mutex_lock(&full->lock);
	while (full->nr_filling + full->nr_unwritten >= NR_UNWRITTEN_MAX) {
		struct pack_frame *f;

		if (full->nr_filling > 0) {
			cond_wait(&full->written, &full->lock);
			continue;
		}
		if (tried) {
			r = full->error;
			break;
		}
		tried = true;
		f = full->unwritten[--full->nr_unwritten];
		full->nr_filling++;
		mutex_unlock(&full->lock);
		small_frame_write(e, f);
		mutex_lock(&full->lock);
	}
	mutex_unlock(&full->lock);
	return r;
}

/* Moves the frames whose writes have failed to `frames`. Returns their number. */
static size_t take_unwritten(struct engine *e, struct pack_frame **frames)
{
	struct full_frames *full = &e->dedup->full;
	size_t nr;

	mutex_lock(&full->lock);
	nr = full->nr_unwritten;
	memcpy(frames, full->unwritten, nr * sizeof(*frames));
	full->nr_unwritten = 0;
	full->nr -= (unsigned)nr;
	mutex_unlock(&full->lock);
	return nr;
}

/* Takes all small frames. The caller frees the array, which has room for the deferred ones. */
static int take_frames(struct engine *e, struct pack_frame ***ret, size_t *ret_nr) REQUIRES(append_lock)
{
	struct dedup *d = e->dedup;
	size_t nr_max = ARRAY_SIZE(d->full.unwritten) + 2 * d->nr_shared, nr;
	int nr_deferred = e->remote ? e->remote->sync_room(e, nr_max) : 0;
	_cleanup_(freep) struct pack_frame **frames = NULL;

	if (nr_deferred < 0)
		return nr_deferred;
	frames = calloc(nr_max + (size_t)nr_deferred, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	nr = take_unwritten(e, frames);
	for (struct shared_frames *s = d->shared; s < d->shared + d->nr_shared; s++) {
		if (s->pages.f)
			frames[nr++] = TAKE(s->pages.f);
		if (s->varied.f)
			frames[nr++] = TAKE(s->varied.f);
	}
	*ret = TAKE(frames);
	*ret_nr = nr;
	return 0;
}

/*
 * Called by a commit: writes every chunk that the log refers to, and makes it durable. The sync point is set under
 * append_lock, which excludes all batches, when no shared frame is open: a thread is writing every frame before it.
 */
static int write_frames(struct engine *e, bool *ret_is_remote, struct pack_marks *ret)
{
	_cleanup_(freep) struct pack_frame **frames = NULL;
	bool is_remote = false;
	size_t nr = 0;
	int r;

	dedup_lock(e);
	r = take_frames(e, &frames, &nr);
	if (r < 0) {
		dedup_unlock(e);
		return r;
	}
	if (e->remote)
		is_remote = e->remote->sync_begin(e, frames, &nr);
	if (!is_remote)
		add_filling(e, (unsigned)nr);
	packs_sync_begin(e->packs);
	dedup_unlock(e);
	*ret_is_remote = is_remote;
	if (is_remote)
		return e->remote->sync_frames(e, frames, nr, ret);
	for (size_t i = 0; i < nr; i++)
		small_frame_write(e, frames[i]);
	return 0;
}

int dedup_sync_frames(struct engine *e, struct pack_marks *ret)
{
	bool is_remote;
	int r = write_frames(e, &is_remote, ret);

	return r < 0 || is_remote ? r : packs_sync_end(e->packs, ret); /* fails if a frame could not be written */
}

int dedup_write_frames(struct engine *e, struct pack_written *ret)
{
	bool is_remote;
	int r;

	assert(!e->remote);
	r = write_frames(e, &is_remote, &ret->marks);
	return r < 0 ? r : packs_sync_written(e->packs, ret);
}
