/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing the view out. RocksDB runs without a log of its own here; its state on disk is that of one commit.
 *
 *   1. put dirty segments and sizes into the view's memtable, and commit, while changes continue
 *   2. lock out all changes
 *   3. put what is dirty again into the view and commit the rest of the log: the view is now the state at commit N;
 *      add N and the marks to it
 *   4. cut the memtable, allow changes again
 *   5. RocksDB writes it atomically. Crash before: the old view and a longer replay; after: the new view
 *   6. if the journal has grown: write a snapshot of the view at N into the journal; what came before N can be removed
 * Changes are blocked during steps 2 to 4: a commit of what arrived since step 1, and work in memory.
 */
#include "store/log/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/content.h"
#include "store/file/file_table.h"
#include "store/gc/backrefs.h"
#include "store/gc/moves.h"
#include "store/journal/journal.h"
#include "store/log/log_state.h"
#include "store/log/write_back.h"
#include "store/remote_hooks.h"
#include "store/space.h"

#define VIEW_FLUSH_BYTES MiB(32)
#define SNAPSHOT_BYTES MiB(64)
#define BATCH_CONTENTS 256 /* contents per batch: bounds its memory */
#define AHEAD_BYTES MiB(2) /* recipe bytes that may be written while changes are blocked: some milliseconds; and ... */
#define AHEAD_ROUNDS 4 /* ... attempts to get below that */
#define CHANGING_NS (50 * 1000 * 1000) /* a file changed more recently than this is likely to change again */

static uint64_t limit_of(const struct engine *e)
{
	return e->conf.view_flush_bytes ? e->conf.view_flush_bytes : VIEW_FLUSH_BYTES;
}

/* Bytes in memory that the next flush will write. */
static uint64_t waiting(struct engine *e)
{
	return db_view_unflushed(e->db) + files_dirty_memory(e);
}

bool view_wants_flush(struct engine *e)
{
	return waiting(e) > limit_of(e);
}

bool view_wants_snapshot(struct engine *e)
{
	uint64_t limit = e->conf.snapshot_bytes ? e->conf.snapshot_bytes : SNAPSHOT_BYTES;
	struct journal_stats st;

	journal_stats(e->journal, &st);
	/* Only after the journal has grown by the size of a snapshot: each byte is rewritten at most twice. */
	return journal_bytes_since_snapshot(e->journal) > MAX(limit, st.snapshot_bytes);
}

static void put_meta(struct db_batch *batch, const char *name, const void *value, size_t len)
{
	struct ns_key key = ns_key_meta(name);

	db_batch_put(batch, key.b, key.len, value, len);
}

struct log_view *log_view_new(void)
{
	struct log_view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	mutex_init(&v->flush_lock);
	rwlock_init(&v->lock);
	return v;
}

void log_view_free(struct log_view *v)
{
	if (!v)
		return;
	rwlock_release(&v->lock);
	mutex_release(&v->flush_lock);
	free(v);
}

void view_lock_shared(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_lock_shared(&e->view->lock);
}

void view_unlock_shared(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_unlock_shared(&e->view->lock);
}

void view_lock_exclusive(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_lock(&e->view->lock);
}

void view_unlock_exclusive(struct engine *e) NO_THREAD_SAFETY_ANALYSIS
{
	rwlock_unlock(&e->view->lock);
}

uint64_t view_layers_end(struct engine *e)
{
	return e->view->next_layer;
}

int view_put_position(struct db_batch *batch, struct engine *e, uint64_t number, const struct pack_marks *marks)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct le64 n = le64_put(number), logical = le64_put(files_logical(e));
	struct le64 layers = le64_put(e->view->next_layer);

	marks_encode(marks, &value);
	put_meta(batch, "commit", &n, sizeof(n));
	put_meta(batch, "marks", value.data, value.len);
	put_meta(batch, "logical", &logical, sizeof(logical));
	put_meta(batch, LAYERS_NOTE, &layers, sizeof(layers));
	if (backrefs_are_complete(e))
		put_meta(batch, "referrers", &n, sizeof(n));
	return buf_error(&value);
}

/* Put all dirty contents into the view's memtable. Changes are locked out, or no other thread runs yet. Readers are not
 * locked out: a content stays dirty and in memory until the view has it. */
int view_write_back(struct engine *e)
{
	_cleanup_(view_batch_release) struct view_batch batch;
	struct content *some[BATCH_CONTENTS];
	unsigned n;
	int r;

	r = view_batch_init(e, &batch);
	while (r == 0 && (n = files_take_dirty(e, some, BATCH_CONTENTS)) > 0) {
		for (unsigned i = 0; i < n && r == 0; i++) {
			mutex_lock(&some[i]->lock);
			r = content_write_back(some[i], &batch);
			mutex_unlock(&some[i]->lock);
		}
		if (r == 0)
			r = view_batch_apply(&batch);
		for (unsigned i = 0; i < n; i++) {
			if (r < 0) {
				files_put_back_dirty(e, some[i]);
				continue;
			}
			mutex_lock(&some[i]->lock);
			content_written_back(some[i]);
			mutex_unlock(&some[i]->lock);
			content_close(some[i]); /* the list's reference */
		}
	}
	return r;
}

/* A thread waiting for a lock is woken on release, but does not get the lock if it is retaken at once. */
static void give_way(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000 }, NULL);
}

static void wait_for_changes(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = CHANGING_NS }, NULL);
}

/* Write back the whole file in slices, dropping its lock in between; view_lock is held shared. 1: some of it is dirty
 * again. */
static int write_back_in_slices(struct content *c, struct view_batch *batch)
{
	uint64_t at = 0;
	int r;

	do {
		mutex_lock(&c->lock);
		r = content_write_back_slice(c, batch, &at);
		if (r == 0 && c->nr_clean < c->nr_segments)
			r = 2;
		if (r == 0)
			c->dirty = false;
		mutex_unlock(&c->lock);
		if (r == 1)
			give_way();
	} while (r == 1);
	return MIN(r, 1);
}

/* A file still being created would be dirty again at once, and is slower to change once the view has it. */
static bool is_changing(struct content *c)
{
	int64_t since;

	mutex_lock(&c->lock);
	since = (int64_t)now_ns() - c->logged.ctime_ns;
	mutex_unlock(&c->lock);
	return since >= 0 && since < CHANGING_NS;
}

/* Write back the content that has been dirty longest. A thread that locks out changes finds it on the list or
 * written. */
static int write_back_one(struct engine *e, struct view_batch *batch) REQUIRES_SHARED(view_lock)
{
	struct content *c;
	int r;

	if (files_take_dirty(e, &c, 1) == 0)
		return 0;
	r = is_changing(c) ? 1 : write_back_in_slices(c, batch);
	if (r == 0)
		content_close(c);
	else
		files_put_back_dirty(e, c);
	return MIN(r, 0);
}

/*
 * Write back what is dirty now, one content after the other, while changes continue. Nothing of the view reaches the
 * disk before it is cut, so until then it may mix several moments. Contents changed meanwhile are dirty again and left
 * for the next time, or for the cut.
 */
static int write_back_ahead(struct engine *e)
{
	_cleanup_(view_batch_release) struct view_batch batch;
	size_t nr = files_nr_dirty(e);
	int r;

	r = view_batch_init(e, &batch);
	for (; nr > 0 && r == 0; nr--) {
		view_lock_shared(e);
		r = write_back_one(e, &batch);
		view_unlock_shared(e);
	}
	return r;
}

static bool is_meta(const void *key, size_t len, const char *name)
{
	struct ns_key k = ns_key_meta(name);

	return len == k.len && memcmp(key, k.b, len) == 0;
}

int view_write_state(struct db *db, const struct db_snapshot *state, const struct pack_marks *marks,
		     struct journal_snapshot *s)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	marks_encode(marks, &rec);
	r = journal_snapshot_add(s, RECORD_MARKS, rec.data, rec.len);
	if (r == 0)
		r = db_iter_new(db, state, NULL, 0, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		/* Of the engine's own entries only these belong to the state; the others describe the view. */
		if (*(const uint8_t *)key == VIEW_META && !is_meta(key, key_len, "next_number") &&
		    !is_meta(key, key_len, MOVING_NOTE) && !is_meta(key, key_len, LAYERS_NOTE))
			continue;
		if (*(const uint8_t *)key == VIEW_BACKREF)
			continue; /* rebuilt from the recipes */
		buf_clear(&rec);
		buf_add_varint(&rec, key_len);
		buf_add(&rec, key, key_len);
		buf_add(&rec, value, value_len);
		r = buf_error(&rec);
		if (r == 0)
			r = journal_snapshot_add(s, RECORD_PUT, rec.data, rec.len);
	}
	return r;
}

static int write_snapshot(struct engine *e, uint64_t number, const struct pack_marks *marks, struct db_snapshot *state)
{
	struct journal_snapshot *s;
	int r;

	r = journal_snapshot_new(e->journal, number, &s);
	if (r < 0)
		return r;
	r = view_write_state(e->db, state, marks, s);
	if (r < 0) {
		journal_snapshot_abort(s);
		return r;
	}
	return journal_snapshot_commit(s);
}

/* The view on disk is the state at this commit. */
static bool is_on_disk(struct engine *e, uint64_t number)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta("commit");
	struct le64 n = le64_put(number);

	return db_view_is_flushed(e->db) && db_get(e->db, DB_VIEW, key.b, key.len, &value) > 0 &&
	       value.len == sizeof(n) && memcmp(value.data, &n, sizeof(n)) == 0;
}

/* Steps 1 to 4. *ret_state pins the view at *ret_number if a snapshot is requested. */
static int cut(struct engine *e, bool snapshot, uint64_t *ret_number, struct pack_marks *ret_marks,
	       struct db_snapshot **ret_state)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	bool clean = false; /* nothing to write */
	int r;

	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	r = write_back_ahead(e);
	for (int i = 1; i < AHEAD_ROUNDS && r == 0 && files_dirty_memory(e) > AHEAD_BYTES; i++) {
		wait_for_changes();
		r = write_back_ahead(e);
	}
	if (r == 0)
		r = engine_sync(e); /* commits most of it while changes still continue */
	if (r < 0)
		return r;
	view_lock_exclusive(e);
	if (e->remote)
		e->remote->cut_begin(e);
	r = view_write_back(e);
	if (r == 0)
		r = engine_sync(e);
	if (e->remote)
		e->remote->cut_lock(e);
	if (r == 0) {
		mutex_lock(&e->log->lock);
		*ret_number = journal_last(e->journal);
		*ret_marks = e->log->marks;
		mutex_unlock(&e->log->lock);
		clean = is_on_disk(e, *ret_number);
	}
	if (r == 0 && !clean)
		r = view_put_position(batch, e, *ret_number, ret_marks);
	if (r == 0 && !clean)
		r = db_batch_apply(batch);
	if (r == 0 && snapshot)
		r = db_snapshot_new(e->db, ret_state);
	if (r == 0 && !clean)
		r = db_view_flush_start(e->db);
	if (e->remote)
		e->remote->cut_end(e);
	view_unlock_exclusive(e);
	return r;
}

int view_flush(struct engine *e, bool snapshot)
{
	struct db_snapshot *state = NULL;
	struct pack_marks marks;
	uint64_t number = 0;
	int r;

	mutex_lock(&e->view->flush_lock);
	r = cut(e, snapshot, &number, &marks, &state);
	if (r == 0)
		r = db_view_flush_wait(e->db);
	/* otherwise there is a snapshot of this very state */
	if (r == 0 && snapshot && number > journal_snapshot_number(e->journal))
		r = write_snapshot(e, number, &marks, state);
	if (state)
		db_snapshot_free(state);
	mutex_unlock(&e->view->flush_lock);
	if (r < 0)
		log_errno(r, "store %s: the index could not be written out; the journal keeps everything", e->path);
	return r;
}

static bool is_much(struct engine *e)
{
	return waiting(e) > 3 * limit_of(e);
}

int view_bound_memory(struct engine *e)
{
	return is_much(e) ? view_flush(e, false) : 0;
}

int view_admit_growth(struct engine *e)
{
	bool much = is_much(e);
	int r = much ? 0 : space_check(e, waiting(e));

	if (!much && !io_is_full(r))
		return r;
	r = view_flush(e, false);
	return r < 0 ? r : space_check(e, waiting(e));
}
