/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/small_frames.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/dedup/dedup_state.h"
#include "store/engine_state.h"

/* Tweak of the first chunk in the shared frame. */
static struct fp *shared_tweak(struct engine *e, const struct batch *b) REQUIRES(append_lock)
{
	return b->page ? &e->dedup->small_tweak : &e->dedup->varied_tweak;
}

/* The shared frame for chunks like these. */
static struct pack_frame **shared_frame(struct engine *e, const struct batch *b) REQUIRES(append_lock)
{
	return b->page ? &e->dedup->small : &e->dedup->varied;
}

static int make_room(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full)
	REQUIRES(append_lock)
{
	struct pack_frame **f = shared_frame(e, b);

	if (*f && !pack_frame_takes(*f, batch_len(b, i))) {
		struct pack_frame *now = TAKE(*f);

		if (e->remote)
			now = e->remote->defer(e, now);
		if (now) {
			full[(*nr_full)++] = now;
			e->dedup->nr_filling++;
		}
	}
	if (*f)
		return 0;
	*shared_tweak(e, b) = b->tweak;
	return packs_frame_open(e->packs, PACK_SMALL, b->page, f);
}

/* Compressed if any file in it requests it, unless it holds several domains: how well bytes compress together reveals how
 * similar they are. */
static void set_compression(struct engine *e, const struct batch *b, struct pack_frame *f) REQUIRES(append_lock)
{
	if (!fp_equal(b->tweak, *shared_tweak(e, b)))
		pack_frame_set_uncompressed(f);
	else if (b->compression.kind != PACK_COMPRESS_NONE)
		pack_frame_set_compression(f, b->compression);
}

int small_frame_for(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full,
		    struct pack_frame **ret)
{
	int r = make_room(e, b, i, full, nr_full);

	if (r < 0)
		return r;
	*ret = *shared_frame(e, b);
	set_compression(e, b, *ret);
	return 0;
}

int small_frames_refuse(const struct engine *e)
{
	return e->dedup->nr_unwritten >= NR_UNWRITTEN_MAX ? e->dedup->unwritten_error : 0;
}

void small_frame_write(struct engine *e, struct pack_frame *f)
{
	int r = packs_frame_write(e->packs, f);

	dedup_lock(e);
	if (r < 0) {
		e->dedup->unwritten[e->dedup->nr_unwritten++] = f;
		e->dedup->unwritten_error = r;
	}
	e->dedup->nr_filling--;
	dedup_wake(e);
	dedup_unlock(e);
}

void small_frames_wait(struct engine *e)
{
	bool tried = false;

	while (e->dedup->nr_filling + e->dedup->nr_unwritten >= NR_UNWRITTEN_MAX) {
		struct pack_frame *f;

		if (e->dedup->nr_filling > 0) {
			dedup_wait(e);
			continue;
		}
		if (tried)
			return;
		tried = true;
		f = e->dedup->unwritten[--e->dedup->nr_unwritten];
		e->dedup->nr_filling++;
		dedup_unlock(e);
		small_frame_write(e, f);
		dedup_lock(e);
	}
}

/* Take all small frames, in an array that the caller frees; it has room for the deferred ones. */
static int take_frames(struct engine *e, struct pack_frame ***ret, size_t *ret_nr) REQUIRES(append_lock)
{
	int nr_deferred = e->remote ? e->remote->sync_room(e, e->dedup->nr_unwritten + 2) : 0;
	_cleanup_(freep) struct pack_frame **frames = NULL;
	size_t nr = 0;

	if (nr_deferred < 0)
		return nr_deferred;
	frames = calloc(e->dedup->nr_unwritten + 2 + (size_t)nr_deferred, sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	while (e->dedup->nr_unwritten > 0)
		frames[nr++] = e->dedup->unwritten[--e->dedup->nr_unwritten];
	if (e->dedup->small)
		frames[nr++] = TAKE(e->dedup->small);
	if (e->dedup->varied)
		frames[nr++] = TAKE(e->dedup->varied);
	*ret = TAKE(frames);
	*ret_nr = nr;
	return 0;
}

/*
 * Called by a commit: write every chunk that the log refers to, then make them durable. The sync point is set under
 * append_lock, which also excludes batches that append beside others, when no small frame is open: every frame before it
 * is being written by some thread.
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
		e->dedup->nr_filling += (unsigned)nr;
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
