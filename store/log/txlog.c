/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The single ordered log. A change is appended and applied to the view's memtable under one lock, so the view always
 * matches the log. It reaches the disk only through view.c, at a commit.
 */
#include "store/log/txlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "index/recipes.h"
#include "store/engine_state.h"
#include "store/file/content.h"
#include "store/gc/backrefs.h"
#include "store/journal/journal.h"
#include "store/log/log_state.h"
#include "store/log/record_format.h"
#include "store/log/view.h"
#include "store/space.h"

#define PENDING_MAX MiB(32) /* beyond this, a writer commits after adding to the log */
/* If commits fail, the log keeps growing up to these limits, because it must fit into one journal group. The limit for
 * small changes is higher, so that files can still be deleted. */
#define PENDING_REFUSED MiB(64)
#define PENDING_REFUSED_SMALL MiB(128)
#define SMALL_CHANGE KiB(4)
/* Log bytes that may wait for a commit on a full disk: they must fit into the reserve, with all deletions after
 * them. */
#define PENDING_WHEN_FULL KiB(64)

struct txlog *txlog_new(void)
{
	struct txlog *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	mutex_init(&l->lock);
	cond_init(&l->leader_cond);
	l->waiters_end = &l->waiters;
	return l;
}

void txlog_free(struct txlog *l)
{
	if (!l)
		return;
	buf_release(&l->pending);
	cond_release(&l->leader_cond);
	mutex_release(&l->lock);
	free(l);
}

void log_stats(struct engine *e, struct engine_stats *ret)
{
	mutex_lock(&e->log->lock);
	ret->unsynced_age_ns = e->log->pending.len > 0 ? monotonic_ns() - e->log->oldest_ns : 0;
	ret->journal_number = journal_last(e->journal);
	mutex_unlock(&e->log->lock);
}

bool log_is_committed(struct engine *e, uint64_t end)
{
	bool committed;

	mutex_lock(&e->log->lock);
	committed = end <= e->log->committed;
	mutex_unlock(&e->log->lock);
	return committed;
}

void engine_tx_put(struct engine_tx *tx, struct ns_key key, const void *value, size_t len)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;

	buf_add_varint(&rec, key.len);
	buf_add(&rec, key.b, key.len);
	buf_add(&rec, value, len);
	tx->records.failed |= buf_error(&rec) < 0;
	journal_record_add(&tx->records, RECORD_PUT, rec.data, rec.len);
}

void engine_tx_del(struct engine_tx *tx, struct ns_key key)
{
	journal_record_add(&tx->records, RECORD_DEL, key.b, key.len);
}

void engine_tx_del_prefix(struct engine_tx *tx, struct ns_key prefix)
{
	journal_record_add(&tx->records, RECORD_DEL_PREFIX, prefix.b, prefix.len);
}

void engine_tx_drop_content(struct engine_tx *tx, uint64_t ino)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY;

	buf_add_varint(&rec, ino);
	tx->records.failed |= buf_error(&rec) < 0;
	journal_record_add(&tx->records, RECORD_DROP, rec.data, rec.len);
}

void engine_tx_release(struct engine_tx *tx)
{
	buf_release(&tx->records);
}

/* Key by key: a range tombstone would be a single entry, but every get in RocksDB then visits all of them (measured on
 * a loaded machine: after 20,000 unlinks an unlink took 11 ms on average). */
static int batch_del_prefix(struct engine *e, struct db_batch *batch, const void *prefix, size_t len)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	r = db_iter_new(e->db, NULL, prefix, len, NULL, 0, &it);
	if (r < 0)
		return r;
	while ((r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0)
		db_batch_del(batch, key, key_len);
	return r;
}

/* Add the back-references of a recipe. In a snapshot layers precede the recipes that name them; with the batch so far
 * applied to the view they can be read. */
static int refer(struct engine *e, uint64_t ino, uint64_t segment, const void *recipe, size_t len, struct db_batch *batch)
{
	_cleanup_(backrefs_release) struct backrefs refs = { .ino = ino };
	int r = recipe_has_layer(recipe, len) ? db_batch_apply(batch) : 0;

	if (r == 0)
		r = backrefs_add_recipe(&refs, e->db, segment, recipe, len);
	backrefs_put(&refs, batch);
	return r == -EBADMSG ? 0 : r; /* a recipe that does not decode is reported when it is used */
}

static void take_layers_note(struct engine *e, const void *key, size_t key_len, const void *value, size_t len)
{
	struct ns_key note = ns_key_meta(LAYERS_NOTE);
	struct le64 v;

	if (*(const uint8_t *)key != VIEW_META || key_len != note.len || memcmp(key, note.b, note.len) != 0 ||
	    len != sizeof(v))
		return;
	memcpy(&v, value, sizeof(v));
	e->view->next_layer = MAX(e->view->next_layer, le64_get(v));
}

static int apply_put(struct engine *e, const void *p, size_t len, struct db_batch *batch)
{
	struct cursor c = cursor_of(p, len);
	uint64_t key_len = cursor_varint(&c), ino, segment;
	const void *key;

	if (key_len == 0 || key_len > sizeof(((struct ns_key *)0)->b))
		return -EBADMSG;
	key = cursor_take(&c, (size_t)key_len);
	if (!key)
		return -EBADMSG;
	db_batch_put(batch, key, (size_t)key_len, c.p, cursor_left(&c));
	take_layers_note(e, key, (size_t)key_len, c.p, cursor_left(&c));
	/* Recipes appear as puts in snapshots only. */
	if (recipe_key_decode(key, (size_t)key_len, &ino, &segment) == 0)
		return refer(e, ino, segment, c.p, cursor_left(&c), batch);
	return 0;
}

static int apply_drop(struct engine *e, const void *p, size_t len, struct db_batch *batch)
{
	struct cursor cur = cursor_of(p, len);
	uint64_t ino = cursor_varint(&cur);

	return cursor_done(&cur) ? content_drop(e, ino, batch) : -EBADMSG;
}

static int apply_replace(struct engine *e, enum record_type type, const void *p, size_t len)
{
	struct replace rp;
	struct content *c;
	int r;

	r = replace_decode(type, p, len, &rp);
	if (r < 0)
		return r;
	r = content_open(e, rp.ino, &c);
	if (r == 0) {
		r = content_replay(c, &rp);
		content_close(c);
	}
	free(rp.x);
	return r;
}

static int apply_clone(struct engine *e, const void *p, size_t len)
{
	struct content *from = NULL, *to = NULL;
	struct clone cl;
	int r;

	r = clone_decode(p, len, &cl);
	if (r < 0)
		return r;
	r = content_open(e, cl.from, &from);
	if (r == 0)
		r = content_open(e, cl.ino, &to);
	if (r == 0)
		r = content_clone_again(from, to, &cl);
	content_close(to);
	content_close(from);
	return r;
}

int log_apply_record(struct engine *e, uint8_t type, const void *p, size_t len, struct db_batch *batch)
{
	switch (type) {
	case RECORD_MARKS:
	case RECORD_FRAMES:
		return 0; /* handled by the readers of the journal */
	case RECORD_PUT:
		return apply_put(e, p, len, batch);
	case RECORD_DEL:
		db_batch_del(batch, p, len);
		return 0;
	case RECORD_DEL_PREFIX:
		if (len == 0)
			return -EBADMSG;
		return batch_del_prefix(e, batch, p, len);
	case RECORD_DROP:
		return apply_drop(e, p, len, batch);
	case RECORD_REPLACE:
	case RECORD_PATCH:
		return apply_replace(e, type, p, len);
	case RECORD_CLONE:
		return apply_clone(e, p, len);
	default:
		return -EBADMSG;
	}
}

static int apply_all(struct engine *e, const struct buf *records, struct db_batch *batch)
{
	struct journal_iter it = journal_iter(records->data, records->len);
	const void *p;
	uint8_t type;
	size_t len;
	int r;

	while ((r = journal_iter_next(&it, &type, &p, &len)) > 0) {
		r = log_apply_record(e, type, p, len, batch);
		if (r < 0)
			return r;
	}
	return r;
}

/* Called under the lock, so that the order of appending is the order of applying. */
static int append_locked(struct engine *e, const void *records, size_t len, uint64_t *ret_end)
{
	assert(mutex_held(&e->log->lock));
	if (buf_reserve(&e->log->pending, len) < 0)
		return -ENOMEM;
	if (e->log->pending.len == 0)
		e->log->oldest_ns = monotonic_ns();
	buf_add(&e->log->pending, records, len);
	e->log->end += len;
	*ret_end = e->log->end;
	return 0;
}

/* Is there room in the log? If not, returns the error of the last commit. */
static int admit_locked(struct engine *e, size_t len) REQUIRES(e->log->lock)
{
	size_t max = len <= SMALL_CHANGE ? PENDING_REFUSED_SMALL : PENDING_REFUSED;

	assert(mutex_held(&e->log->lock));
	return e->log->pending.len > max ? e->log->last_error : 0;
}

static int admit(struct engine *e, size_t len)
{
	int r;

	mutex_lock(&e->log->lock);
	r = admit_locked(e, len);
	mutex_unlock(&e->log->lock);
	return r;
}

/* Is there room on the disk for this change and all pending ones? If not, pending ones are committed at once while
 * there is a reserve: on a full disk they would otherwise wait forever, and every later deletion with them. */
int log_admit_growth(struct engine *e, size_t len)
{
	size_t waiting;
	int r;

	mutex_lock(&e->log->lock);
	waiting = e->log->pending.len;
	mutex_unlock(&e->log->lock);
	r = space_check(e, 2 * (waiting + len)); /* once in the journal, once in the index */
	if (!io_is_full(r))
		return r;
	if (waiting + len > PENDING_WHEN_FULL) {
		int q = engine_sync(e);

		if (q < 0)
			return q;
	}
	return reserve_is_there(e) ? 0 : r;
}

/* Change the view and append to the log, or do neither. */
static int append_with_batch(struct engine *e, const struct buf *records, struct db_batch *batch, uint64_t *ret_end)
{
	int r;

	mutex_lock(&e->log->lock);
	r = buf_reserve(&e->log->pending, records->len); /* so that appending cannot fail */
	if (r == 0)
		r = db_batch_apply(batch);
	if (r == 0)
		r = append_locked(e, records->data, records->len, ret_end);
	mutex_unlock(&e->log->lock);
	return r;
}

int engine_tx_apply(struct engine *e, struct engine_tx *tx)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	uint64_t end;
	int r;

	if (e->read_only)
		return -EROFS;
	r = buf_error(&tx->records);
	if (r == 0)
		r = admit(e, tx->records.len);
	if (r == 0 && tx->grows)
		r = log_admit_growth(e, tx->records.len);
	if (r < 0)
		return r;
	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	view_lock_shared(e);
	r = apply_all(e, &tx->records, batch); /* into the batch; only a drop has an effect yet */
	if (r == 0)
		r = append_with_batch(e, &tx->records, batch, &end);
	view_unlock_shared(e);
	buf_clear(&tx->records);
	if (r == 0)
		log_throttle(e);
	return r;
}

int log_append_with_batch(struct engine *e, const struct buf *records, struct db_batch *batch, uint64_t *ret_end)
{
	int r = buf_error(records);

	if (r == 0)
		r = admit(e, records->len);
	return r < 0 ? r : append_with_batch(e, records, batch, ret_end);
}

int log_append_records(struct engine *e, const struct buf *records, uint64_t *ret_end)
{
	int r = buf_error(records);

	if (r < 0)
		return r;
	mutex_lock(&e->log->lock);
	r = admit_locked(e, records->len);
	if (r == 0)
		r = append_locked(e, records->data, records->len, ret_end);
	mutex_unlock(&e->log->lock);
	return r;
}

int log_append(struct engine *e, uint8_t type, const struct buf *record, uint64_t *ret_end)
{
	_cleanup_(buf_release) struct buf framed = BUF_EMPTY;

	journal_record_add(&framed, type, record->data, record->len);
	framed.failed |= buf_error(record) < 0;
	return log_append_records(e, &framed, ret_end);
}

void log_throttle(struct engine *e)
{
	bool full;

	mutex_lock(&e->log->lock);
	full = e->log->pending.len > PENDING_MAX && !e->log->last_error;
	mutex_unlock(&e->log->lock);
	if (full)
		engine_sync(e); /* errors are kept for callers that request durability */
}

#define NUMBERS_AT_ONCE 4096 /* reserved in the log together; a crash skips the unused ones */

/* The end of the next batch is in the log before any of its numbers is used, so no number is issued twice after a
 * crash. */
static int reserve_numbers(struct engine *e) REQUIRES(e->log->lock)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	struct le64 end = le64_put(e->log->numbers_end + NUMBERS_AT_ONCE);
	uint64_t log_end;
	int r;

	engine_tx_put(&tx, ns_key_meta("next_number"), &end, sizeof(end));
	r = buf_error(&tx.records);
	if (r < 0)
		return r;
	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	r = apply_all(e, &tx.records, batch);
	if (r < 0)
		return r;
	r = db_batch_apply(batch);
	if (r < 0)
		return r;
	r = append_locked(e, tx.records.data, tx.records.len, &log_end);
	if (r < 0)
		return r;
	e->log->numbers_end += NUMBERS_AT_ONCE;
	return 0;
}

int engine_new_number(struct engine *e, uint64_t *ret)
{
	int r = 0;

	if (e->read_only)
		return -EROFS;
	view_lock_shared(e);
	mutex_lock(&e->log->lock);
	if (e->log->next_number == e->log->numbers_end)
		r = reserve_numbers(e);
	if (r == 0)
		*ret = e->log->next_number++;
	mutex_unlock(&e->log->lock);
	view_unlock_shared(e);
	return r;
}
