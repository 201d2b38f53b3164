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

#include "base/io.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/file_table.h"
#include "store/file/write_back.h"
#include "store/gc/backrefs.h"
#include "store/gc/moves.h"
#include "store/journal/journal.h"
#include "store/log/log_state.h"
#include "store/log/record_format.h"
#include "store/remote_hooks.h"
#include "store/space.h"

#define VIEW_FLUSH_BYTES MiB(32)
#define SNAPSHOT_BYTES MiB(64)

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

uint64_t view_number_layer(struct engine *e)
{
	return e->view->next_layer++;
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
		put_meta(batch, "backrefs", &n, sizeof(n));
	return buf_error(&value);
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
static int cut_view(struct engine *e, bool snapshot, uint64_t *ret_number, struct pack_marks *ret_marks,
		    struct db_snapshot **ret_state)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	bool clean = false; /* nothing to write */
	int r;

	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	r = files_write_back_ahead(e);
	if (r == 0)
		r = engine_sync(e); /* commits most of it while changes still continue */
	if (r < 0)
		return r;
	view_lock_exclusive(e);
	if (e->remote)
		e->remote->cut_begin(e);
	r = files_write_back(e);
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
	r = cut_view(e, snapshot, &number, &marks, &state);
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
