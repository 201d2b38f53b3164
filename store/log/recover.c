/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recovery at open, and rebuilding the index.
 *
 * The view on disk is the state at a commit N recorded in it. The journal groups after N are applied in order, by the
 * same code that applied them first. The marks of the last group give the ends of the packs; bytes beyond them belong
 * to no commit. Recovery changes neither packs nor journal, so a crash during recovery is the same as a crash before
 * it; except that it settles the last group, if that was a joint commit (joint.c).
 */
#include "store/log/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine_state.h"
#include "store/file/file_table.h"
#include "store/file/write_back.h"
#include "store/gc/backrefs.h"
#include "store/journal/journal.h"
#include "store/log/joint.h"
#include "store/log/log_state.h"
#include "store/log/record_format.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

#define REPLAY_FLUSH_BYTES MiB(64)

struct replay {
	struct engine *e;
	struct db_batch *batch;
	struct pack_marks marks;
	uint64_t number; /* of the last group applied */
};

/* A size in a snapshot counts towards the total; later changes update it themselves. */
static void count_snapshot_put(struct engine *e, const void *p, size_t len)
{
	struct cursor c = cursor_of(p, len);
	uint64_t key_len = cursor_varint(&c);
	const uint8_t *key = cursor_take(&c, (size_t)key_len);
	struct ns_content content;

	if (key && key_len > 0 && key[0] == VIEW_CONTENT && ns_content_decode(c.p, cursor_left(&c), &content) == 0)
		files_add_logical(e, (int64_t)content.mapped);
}

static int replay_group(struct replay *rp, uint64_t number, bool is_snapshot, const void *records, size_t len)
{
	struct journal_iter it = journal_iter(records, len);
	const void *p;
	uint8_t type;
	size_t n;
	int r;

	while ((r = journal_iter_next(&it, &type, &p, &n)) > 0) {
		if (type == RECORD_DEL_PREFIX || type == RECORD_DROP)
			r = db_batch_apply(rp->batch); /* these read the view */
		if (r >= 0)
			r = type == RECORD_MARKS ? marks_decode(p, n, &rp->marks) :
						   log_apply_record(rp->e, type, p, n, rp->batch);
		if (r < 0)
			break;
		if (is_snapshot && type == RECORD_PUT)
			count_snapshot_put(rp->e, p, n);
	}
	if (r < 0)
		return log_errno(r, "journal: group %" PRIu64 " cannot be applied", number);
	rp->number = number;
	return db_batch_apply(rp->batch);
}

/*
 * Bound memory during a long replay: write everything so far to the view, as of this group. Inside a snapshot the view
 * is not a consistent state and records no position: after a crash, replay starts over and puts the same entries again.
 */
static int replay_flush(struct replay *rp, bool in_snapshot)
{
	int r = files_write_back(rp->e);

	if (r == 0 && !in_snapshot)
		r = view_put_position(rp->batch, rp->e, rp->number, &rp->marks);
	if (r == 0)
		r = db_batch_apply(rp->batch);
	if (r == 0)
		r = db_view_flush_start(rp->e->db);
	if (r == 0)
		r = db_view_flush_wait(rp->e->db);
	return r;
}

static int replay_all(struct replay *rp, uint64_t after)
{
	_cleanup_(journal_reader_freep) struct journal_reader *reader = NULL;
	struct engine *e = rp->e;
	uint64_t number, groups = 0;
	const void *records;
	bool is_snapshot;
	size_t len;
	int r;

	r = journal_read(e->journal, after, &reader);
	if (r == -ENOENT)
		return log_cause(-ENODATA,
				 "store %s: the index is older than the journal goes back: run fsck.ckptfs --rebuild %s",
				 e->path, e->path);
	if (r < 0)
		return r;
	while ((r = journal_read_next(reader, &number, &is_snapshot, &records, &len)) > 0) {
		bool full = db_view_unflushed(e->db) + files_dirty_memory(e) > REPLAY_FLUSH_BYTES;

		if (full)
			r = replay_flush(rp, is_snapshot);
		if (r >= 0)
			r = replay_group(rp, number, is_snapshot, records, len);
		if (r < 0)
			return r;
		groups++;
	}
	if (r == 0 && groups > 0)
		log_info("store %s: replayed %s of the journal", e->path, human_nr(groups, "group").s);
	return r;
}

static int get_le64(struct engine *e, const char *name, uint64_t *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta(name);
	struct le64 v;
	int r;

	r = db_get(e->db, DB_VIEW, key.b, key.len, &value);
	if (r <= 0)
		return r;
	if (value.len != sizeof(v))
		return log_cause(-EBADMSG, "index: %s is damaged", name);
	memcpy(&v, value.data, sizeof(v));
	*ret = le64_get(v);
	return 1;
}

static int get_marks(struct engine *e, struct pack_marks *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_key key = ns_key_meta("marks");
	int r;

	r = db_get(e->db, DB_VIEW, key.b, key.len, &value);
	return r <= 0 ? r : marks_decode(value.data, value.len, ret);
}

/* The last group may name frames that did not reach the disk. */
static int settle_last(struct engine *e, uint64_t position)
{
	struct packs_conf conf = { .key = &e->key, .read_only = e->dirs.frozen };

	memcpy(conf.store_id, e->dirs.sb.store_id, sizeof(conf.store_id));
	return MIN(joint_settle(e->journal, position, e->dirs.packs, &conf), 0);
}

static int load_numbers(struct engine *e)
{
	uint64_t next = NS_ROOT_INO + 1;
	int r;

	r = get_le64(e, "next_number", &next);
	if (r < 0)
		return r;
	e->log->next_number = e->log->numbers_end = next;
	return 0;
}

int recover_view(struct engine *e, struct pack_marks *ret)
{
	_cleanup_(db_batch_freep) struct db_batch *batch = NULL;
	struct replay rp = { .e = e, .marks.next_pack = 1 };
	uint64_t position = 0, logical = 0, backrefs = 0;
	int r;

	r = db_batch_new(e->db, &batch);
	if (r < 0)
		return r;
	rp.batch = batch;
	r = get_le64(e, "commit", &position);
	if (r >= 0)
		r = get_le64(e, "logical", &logical);
	if (r >= 0)
		r = get_le64(e, "backrefs", &backrefs);
	e->view->next_layer = 1;
	if (r >= 0)
		r = get_le64(e, LAYERS_NOTE, &e->view->next_layer);
	if (r >= 0)
		r = get_marks(e, &rp.marks);
	if (r < 0)
		return r;
	if (position > MAX(journal_last(e->journal), journal_snapshot_number(e->journal)))
		return log_cause(-EBADMSG,
				 "store %s: the journal ends at commit %" PRIu64 ", the index has seen %" PRIu64
				 ": the journal is damaged",
				 e->path, journal_last(e->journal), position);
	if (e->dirs.frozen && position < MAX(journal_last(e->journal), journal_snapshot_number(e->journal)))
		return log_cause(-EROFS,
				 "store %s: it was not unmounted, and its disk is read-only: mount it once where it can be written, or a copy of it",
				 e->path);
	r = settle_last(e, position);
	if (r < 0)
		return r;
	files_add_logical(e, (int64_t)logical);
	/* 0: a new view, and all of its recipes pass through here */
	backrefs_set_complete(e, backrefs == position);
	rp.number = position;
	r = replay_all(&rp, position);
	if (r < 0)
		return r;
	r = load_numbers(e);
	if (r < 0)
		return r;
	*ret = rp.marks;
	return 0;
}
