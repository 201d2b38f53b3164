/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Making frames durable.
 *
 *   1. take the marks as they are now
 *   2. wait for all frames below them to be written
 *   3. wipe the places of abandoned frames that are not wiped yet
 *   4. fdatasync the packs written to since the last sync
 *   5. fsync the directory if packs were created
 *
 * Then the marks are valid. A crash before that leaves bytes after the last committed marks, which the next mount cuts
 * off.
 *
 * A failed sync anywhere in the process may lose all data that is not durable yet (base/io.h), also in files whose own
 * fdatasync succeeds. After a failure everything since the last marks is therefore rewritten (pack_rewrite.c) before
 * the packs are synced; and the marks are valid only if no sync has failed meanwhile.
 *
 * Step 4 may begin in another thread (packs_sync_early()), which takes files off the list of those to sync; the sync
 * waits for it and then syncs the rest. A file that fails there is on the list again.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

static int wait_for_frames(struct packs *p, uint64_t number) REQUIRES(p->lock)
{
	assert(mutex_held(&p->lock));
	for (;;) {
		struct pack_frame *f = p->first;

		if (!f || f->number > number)
			return 0;
		/* A failed bulk frame is not retried and leaves the list soon; its writer has got the error. */
		for (; f && f->number <= number; f = f->next)
			if (f->error < 0 && f->abandoned == 0 && f->is_small)
				return f->error;
		cond_wait(&p->changed, &p->lock);
	}
}

/* Only one sync runs, and only a sync removes entries: the head stays on the list while the lock is dropped. */
static int wipe_unclean(struct packs *p) REQUIRES(p->lock)
{
	struct pack_frame *f, **at = &p->unclean;
	int r, result = 0;

	assert(mutex_held(&p->lock));
	while ((f = *at)) {
		mutex_unlock(&p->lock);
		r = packs_frame_wipe(f->file, f->frame);
		mutex_lock(&p->lock);
		if (r < 0) {
			result = r;
			at = &f->next;
			continue;
		}
		while (*at != f) /* others were added in front of it meanwhile */
			at = &(*at)->next;
		*at = f->next;
		packs_set_dirty(p, f->file);
		packs_frame_free(f);
	}
	return result;
}

static int sync_file(struct packs *p, struct pack_file *file)
{
	struct stat st;
	int r;

	r = io_sync(file->fd);
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 ": cannot sync", file->pack);
	if (fstat(file->fd, &st) == 0) {
		mutex_lock(&p->lock);
		if (!file->dirty) /* else a frame written since is already counted, and may be in st_blocks or not */
			packs_count_disk(p, file, (uint64_t)st.st_blocks * 512);
		mutex_unlock(&p->lock);
	}
	return 0;
}

/* Sync the files of the dirty list, which the caller owns now; those that fail become dirty again. */
static int sync_files(struct packs *p, struct pack_file *list)
{
	int r, result = 0;

	for (struct pack_file *file = list, *next; file; file = next) {
		next = file->next_dirty;
		mutex_lock(&p->lock);
		file->dirty = false;
		mutex_unlock(&p->lock);
		r = sync_file(p, file);
		if (r < 0) {
			result = r;
			mutex_lock(&p->lock);
			packs_set_dirty(p, file);
			mutex_unlock(&p->lock);
		}
		pack_file_put(p->files, file);
	}
	return result;
}

static int sync_dir(struct packs *p)
{
	int r = io_sync_dir(p->dirfd);

	return r < 0 ? log_errno(r, "packs: cannot sync directory") : 0;
}

static struct pack_marks marks_now(struct packs *p) REQUIRES(p->lock)
{
	struct pack_marks m = { .next_pack = p->next_pack, .counts = p->counts };

	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		m.stream[s] = p->streams[s].at;
	return m;
}

/* Sets `sync_number`: this sync covers the frames up to it. */
static void start_sync(struct packs *p) REQUIRES(p->lock)
{
	assert(mutex_held(&p->lock));
	p->syncing = true;
	while (p->creating)
		cond_wait(&p->changed, &p->lock);
	p->counts.nr_chunks += p->later.nr_chunks;
	p->counts.chunk_bytes += p->later.chunk_bytes;
	p->counts.nr_frames += p->later.nr_frames;
	p->counts.stored_bytes += p->later.stored_bytes;
	p->later = (struct pack_counts){ 0 };
	p->sync_number = p->last_number;
	p->sync_failures = io_sync_failures();
	p->sync_marks = marks_now(p);
}

/* Drops the lock during disk I/O. */
static int sync_dirty(struct packs *p) REQUIRES(p->lock)
{
	struct pack_file *dirty;
	bool dir_dirty;
	int r;

	dirty = TAKE(p->dirty);
	dir_dirty = p->dir_dirty;
	p->dir_dirty = false;
	mutex_unlock(&p->lock);
	r = sync_files(p, dirty);
	if (r >= 0 && dir_dirty)
		r = sync_dir(p);
	mutex_lock(&p->lock);
	p->dir_dirty |= r < 0 && dir_dirty;
	return r;
}

static int run_sync(struct packs *p, struct pack_marks *ret) REQUIRES(p->lock)
{
	uint64_t failures, rewritten_at = p->synced_failures;
	int r;

	assert(mutex_held(&p->lock));
	r = wait_for_frames(p, p->sync_number);
	if (r < 0)
		return r;
	r = wipe_unclean(p);
	if (r < 0)
		return r;
	p->sync_marks.counts = p->counts; /* includes all frames that were waited for */
	do {
		failures = io_sync_failures();
		r = failures == rewritten_at ? p->lost : packs_rewrite_unsynced(p);
		while (p->early)
			cond_wait(&p->changed, &p->lock);
		if (r >= 0)
			r = sync_dirty(p);
		if (r < 0)
			return r;
		rewritten_at = failures;
	} while (io_sync_failures() != failures);
	packs_unsynced_done(p);
	*ret = p->sync_marks;
	return 0;
}

void packs_sync_begin(struct packs *p)
{
	mutex_lock(&p->lock);
	while (p->syncing)
		cond_wait(&p->changed, &p->lock);
	start_sync(p);
	mutex_unlock(&p->lock);
}

int packs_sync_end(struct packs *p, struct pack_marks *ret)
{
	int r;

	mutex_lock(&p->lock);
	assert(p->syncing);
	r = run_sync(p, ret);
	p->syncing = false;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	return r;
}

/* The frames that are not durable. False: something else is not. */
static bool list_unsynced(const struct packs *p, struct pack_written *ret) REQUIRES(p->lock)
{
	ret->nr = 0;
	if (p->dir_dirty || p->unclean || p->unnoted > 0 || p->lost < 0 || io_sync_failures() != p->synced_failures)
		return false;
	for (size_t i = 0; i < p->nr_unsynced; i++) {
		const struct unsynced *u = &p->unsynced[i];

		if (u->number > p->sync_number)
			continue;
		if (u->kind != UNSYNCED_FRAME || ret->nr++ >= PACK_WRITTEN_MAX)
			return false;
		ret->frames[ret->nr - 1] = (struct pack_seal){ .pack = u->pack, .frame = u->frame, .seal = u->seal };
	}
	return true;
}

bool packs_sync_written(struct packs *p, struct pack_written *ret)
{
	bool listed;

	mutex_lock(&p->lock);
	assert(p->syncing);
	ret->nr = 0;
	listed = wait_for_frames(p, p->sync_number) == 0 && list_unsynced(p, ret);
	p->sync_marks.counts = p->counts; /* includes all frames that were waited for */
	ret->marks = p->sync_marks;
	mutex_unlock(&p->lock);
	return listed;
}

void packs_sync_early(struct packs *p)
{
	mutex_lock(&p->lock);
	if (p->syncing && !p->early) {
		p->early = true;
		(void)sync_dirty(p); /* files that failed are dirty again */
		p->early = false;
		cond_broadcast(&p->changed);
	}
	mutex_unlock(&p->lock);
}

void packs_forget_unsynced(struct packs *p)
{
	for (struct pack_frame *f = p->unclean, *next; f; f = next) {
		next = f->next;
		packs_frame_free(f);
	}
	for (struct pack_file *file = p->dirty, *next; file; file = next) {
		next = file->next_dirty;
		file->dirty = false;
		pack_file_put(p->files, file);
	}
	p->unclean = NULL;
	p->dirty = NULL;
}
