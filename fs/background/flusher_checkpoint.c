/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A directory is flushed in this order:
 *   1. Save a durable note in the store with the number of the next manifest (flush_note.h).
 *   2. Put the packs, then the manifest (store/tier/flush/tier_flush.c).
 * After a crash between the two, a manifest of this number either is absent or has a seal of the note.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/background/flush_note.h"
#include "fs/background/flush_queue.h"
#include "fs/background/flusher_state.h"
#include "fs/fs.h"
#include "fs/seal/dir_path.h"
#include "fs/seal/seal_catalog.h"
#include "index/namespace_table.h"
#include "store/catalog/catalog_format.h"
#include "store/engine.h"
#include "store/tier/tier_worker.h"

#define UNREADABLE_DELAY_NS (60 * NS_PER_S)
#define TOO_LARGE_DELAY_NS (3600 * NS_PER_S) /* an attempt sends all chunks before it fails again */
#define CHANGED_DELAY_NS (NS_PER_S / 10) /* doubled each time, up to UNREADABLE_DELAY_NS */
#define TAKEN_MAX 3u /* consecutive attempts whose manifest number is taken, although it is not listed */

/* Reads a checkpoint from the store. */
struct source {
	struct flusher *f;
	uint64_t ino;
	int64_t sealed_ns;
	const struct tier_sink *to;
	int error; /* of the store; not of the tier */
	bool is_gone; /* it was unsealed meanwhile */

	/* The current record. */
	struct content *c; /* NULL: it has no chunks */
	uint64_t off;
	const struct content_piece *pieces;
	size_t nr;
	struct content_chunk chunks[CATALOG_PIECES_MAX];
};

static void set_pieces(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr)
{
	struct source *s = userdata;

	s->c = c;
	s->off = off;
	s->pieces = p;
	s->nr = nr;
}

/* Is the flush still wanted? A directory that was unsealed meanwhile is not flushed to its end. */
static bool is_wanted(void *userdata)
{
	struct source *s = userdata;
	struct ns_seal seal;
	int r = ns_get_seal(s->f->fs->db, s->ino, &seal);

	s->is_gone |= r == 0 || (r > 0 && (!seal.is_complete || seal.sealed_ns != s->sealed_ns));
	return !s->is_gone && flusher_is_running(s->f);
}

static int put_record(void *userdata, const void *p, size_t len)
{
	struct source *s = userdata;
	uint64_t bytes = 0;
	int r;

	(void)is_wanted(s);
	if (s->is_gone)
		return -ESTALE;
	r = s->to->put(s->to->userdata, p, len);
	for (size_t i = 0; i < s->nr; i++)
		bytes += s->pieces[i].len;
	s->nr = 0;
	mutex_lock(&s->f->lock);
	s->f->queue.current_bytes += bytes;
	mutex_unlock(&s->f->lock);
	if (r < 0)
		s->to = NULL; /* marks a failure of the sink, not of the store */
	return r;
}

static int write_catalog(void *userdata, const struct tier_sink *to)
{
	struct source *s = userdata;
	int r;

	s->to = to;
	r = catalog_write_located(s->f->fs, s->ino, &(struct catalog_sink){ put_record, s }, set_pieces);
	s->is_gone |= s->to && (r == -ENODATA || r == -ESTALE);
	if (r < 0 && s->to && !s->is_gone)
		s->error = r;
	return r;
}

/* The wants are in the order of the pieces, except that chunks of varied lengths come last. */
static int read_chunks(void *userdata, const struct tier_want *wants, size_t nr)
{
	struct source *s = userdata;
	uint64_t off = s->off, len = 0, repeated;
	size_t at = 0, seen = 0;
	int r;

	assert(nr <= ARRAY_SIZE(s->chunks));
	for (size_t i = 0; i < nr; i++) {
		for (seen = 0; seen < s->nr; seen++) {
			const struct content_piece *p = &s->pieces[at];

			if (p->chunk_len == wants[i].len && fp_equal(p->fp, wants[i].fp))
				break;
			off += p->len;
			if (++at == s->nr) {
				at = 0;
				off = s->off;
			}
		}
		if (seen == s->nr)
			return s->error = -EINVAL; /* not a chunk of this record */
		s->chunks[i] = (struct content_chunk){ off, wants[i].fp, wants[i].len, wants[i].buf };
		len += wants[i].len;
	}
	repeated = tier_worker_repeated_bytes(s->f->worker);
	io_rate_wait_while(s->f->rate, len + repeated - s->f->repeated_bytes, is_wanted, s);
	s->f->repeated_bytes = repeated;
	r = content_read_chunks(s->c, s->chunks, nr);
	if (r < 0)
		s->error = r;
	return r;
}

static void record_start(struct flusher *f, const struct flush_seal *s)
{
	mutex_lock(&f->lock);
	f->status.state = FLUSHER_FLUSHING; /* the reason of a failure stays until a flush succeeds */
	f->queue.current = s->ino;
	f->queue.current_bytes = 0;
	f->begun_ns = monotonic_ns();
	mutex_unlock(&f->lock);
}

static void record_end(struct flusher *f, const struct flush_seal *s, bool is_done, const struct tier_flushed *sums)
{
	mutex_lock(&f->lock);
	f->done_bytes += f->queue.current_bytes;
	f->done_ns += monotonic_ns() - f->begun_ns;
	f->queue.current = 0;
	if (is_done) {
		f->checked_ns = monotonic_ns();
		f->check_done = ++f->check_begun; /* a flush reads the log at its end */
		flush_queue_done(&f->queue, s);
		f->status.error = 0;
		f->status.reason[0] = '\0';
		f->status.nr_flushed += !sums->was_there;
		f->status.sent_bytes += sums->bytes;
		f->status.sent_chunks += sums->chunks;
		f->status.nr_packs += sums->packs;
	}
	mutex_unlock(&f->lock);
}

/* Postpones a checkpoint that cannot be flushed, so that others are. error 0: it changed during the flush. */
static void postpone(struct flusher *f, const struct flush_seal *s, const char *path, int error)
{
	uint64_t delay = error == -EFBIG ? TOO_LARGE_DELAY_NS : error < 0 ? UNREADABLE_DELAY_NS : CHANGED_DELAY_NS;
	struct flush_seal *own;
	int r;

	if (error < 0)
		log_warning("%s: cannot flush to the tier: %s; retrying in %u s", path, strerror(-error),
			    (unsigned)(delay / NS_PER_S));
	mutex_lock(&f->lock);
	own = flush_queue_find(&f->queue, s->ino);
	if (own && own->sealed_ns == s->sealed_ns)
		own->error = error;
	r = flush_queue_delay(&f->queue, s->ino, monotonic_ns(), delay, MAX(delay, UNREADABLE_DELAY_NS));
	f->status.nr_failures += error < 0;
	mutex_unlock(&f->lock);
	if (r < 0)
		sleep(1);
}

static int save_note(struct flusher *f, const struct flush_seal *s)
{
	int r;

	flush_note_add(&f->note, f->url, f->number, s->ino, s->sealed_ns);
	f->has_note = true; /* even if this fails: the note may have been written */
	r = flush_note_save(f->fs->engine, &f->note);
	return r;
}

/* 1; 0: unsealed meanwhile; <0 */
static int prepare_checkpoint(struct flusher *f, const struct flush_seal *s, struct tier_checkpoint *c, struct buf *path)
{
	struct ns_seal seal;
	int r = ns_get_seal(f->fs->db, s->ino, &seal);

	if (r == 0 || (r > 0 && (!seal.is_complete || seal.sealed_ns != s->sealed_ns)))
		return 0;
	if (r > 0)
		r = dir_path_prepend(f->fs, s->ino, path);
	if (r < 0)
		return r == -ENOENT ? 0 : r == -ELOOP ? -ENAMETOOLONG : r; /* removed, or renamed meanwhile */
	buf_add_u8(path, 0);
	c->ino = s->ino;
	c->sealed_ns = s->sealed_ns;
	c->files = seal.files;
	c->directories = seal.directories;
	c->bytes = seal.bytes;
	memcpy(c->root, seal.root, sizeof(c->root));
	r = buf_error(path);
	c->path = (const char *)path->data;
	return r < 0 ? r : 1;
}

/* The next connection compares all seals with the tier again. */
static void forget_what_is_in_tier(struct flusher *f)
{
	mutex_lock(&f->lock);
	for (size_t i = 0; i < f->queue.nr; i++)
		f->queue.v[i].is_in_tier = false;
	mutex_unlock(&f->lock);
}

struct seal_name {
	char text[40];
};

static struct seal_name name_of(const struct flush_seal *s)
{
	struct seal_name name;

	snprintf(name.text, sizeof(name.text), "directory %" PRIu64, s->ino);
	return name;
}

/* The store failed to read the checkpoint, or the tier to write it. */
static void handle_failure(struct flusher *f, const struct flush_seal *s, const struct source *from, const char *path,
			   int r)
{
	bool has_failed;

	if (r == -ECANCELED)
		return;
	has_failed = tier_worker_has_failed(f->worker);
	if (!has_failed || from->is_gone || from->error < 0 || r == -ENOMEM) {
		bool has_changed = from->is_gone || from->error == -ESTALE; /* unsealed, or recoded meanwhile */

		if (has_failed)
			flusher_disconnect(f);
		postpone(f, s, path, has_changed ? 0 : from->error < 0 ? from->error : r);
		return;
	}
	mutex_lock(&f->lock);
	flush_queue_failed(&f->queue, s);
	mutex_unlock(&f->lock);
	/* It may be an own manifest, put by an attempt whose response was lost. The next connection checks that. */
	if (r == -ENOTUNIQ && ++f->nr_taken == TAKEN_MAX) {
		flusher_stop_flushing(f, r, flusher_another_machine);
		return;
	}
	if (r == -ENOENT)
		forget_what_is_in_tier(f);
	if (r == -ENOTUNIQ)
		flusher_disconnect(f);
	else
		flusher_retry(f, r, name_of(s).text, path,
			      r == -ENOENT ? "objects were deleted from the tier: comparing all checkpoints again" :
			      r == -ESTALE ? "a collection has deleted packs that it needs" :
			      r == -EEXIST ? "something that is not an object has the name of its manifest" :
					     strerror(-r));
}

void flusher_flush_seal(struct flusher *f, const struct flush_seal *s)
{
	_cleanup_(freep) struct source *from = calloc(1, sizeof(*from));
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct tier_checkpoint c = { .catalog = write_catalog, .read = read_chunks, .userdata = from };
	struct tier_flushed sums = { 0 };
	int r = from ? prepare_checkpoint(f, s, &c, &path) : -ENOMEM;

	if (r == 0)
		return;
	if (r < 0) {
		postpone(f, s, name_of(s).text, r);
		return;
	}
	r = save_note(f, s);
	if (r < 0) {
		flusher_retry(f, r, "cannot prepare a checkpoint", NULL, strerror(-r));
		return;
	}
	from->f = f;
	from->ino = s->ino;
	from->sealed_ns = s->sealed_ns;
	record_start(f, s);
	r = tier_worker_flush(f->worker, &c, &sums);
	record_end(f, s, r == 0, &sums);
	if (r < 0) {
		handle_failure(f, s, from, c.path[0] ? c.path : "/", r);
		return;
	}
	f->number = MAX(f->number, sums.number);
	f->delay_ns = 0;
	f->nr_taken = 0;
	log_info("%s: flushed to tier %s; sent %" PRIu64 " chunks, %" PRIu64 " bytes in %" PRIu64 " packs",
		 c.path[0] ? c.path : "/", f->url, sums.chunks, sums.bytes, sums.packs);
}
