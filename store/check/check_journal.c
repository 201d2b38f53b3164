/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks the journal: every group in use, and every record in it, without applying any.
 *
 * The pass also gathers what only the journal has: removed packs, and chunks freed by commits that are not in the
 * index. The index represents an earlier commit and may rightly still refer to those.
 *
 * A damaged journal is rebuilt from the index, if that is sound, which is known only after the view has been checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/check/check_internal.h"
#include "store/engine_state.h"
#include "store/journal/journal.h"
#include "store/journal/journal_repair.h"
#include "store/log/joint.h"
#include "store/log/view.h"
#include "store/remote_hooks.h"

void check_journal_close(struct check *k)
{
	journal_close(TAKE(k->journal));
	free(TAKE(k->removed));
	free(TAKE(k->tail));
	if (remote_check)
		remote_check->free(TAKE(k->notes));
	k->nr_removed = k->size_removed = k->nr_tail = k->size_tail = 0;
	k->nr_journal_why = 0;
	k->has_tail_totals = k->journal_bad = false;
	k->last = 0;
}

/* Reported later, when it is known whether it can be repaired. */
static void _printf_(2, 3) journal_is_bad(struct check *k, const char *fmt, ...)
{
	va_list ap;

	k->journal_bad = true;
	if (k->nr_journal_why == ARRAY_SIZE(k->journal_why))
		return;
	va_start(ap, fmt);
	vsnprintf(k->journal_why[k->nr_journal_why++], CHECK_TEXT, fmt, ap);
	va_end(ap);
}

/* --- freed chunks --- */

static bool is_damage(int r)
{
	return r == -EBADMSG || r == -EIO || r == -ENOENT;
}

static int add_removed(struct check *k, uint32_t pack)
{
	if (k->nr_removed == k->size_removed) {
		size_t size = MAX(2 * k->size_removed, (size_t)64);
		uint32_t *more = reallocarray(k->removed, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->removed = more;
		k->size_removed = size;
	}
	k->removed[k->nr_removed++] = pack;
	return 0;
}

static int add_tail(struct check *k, uint32_t pack, uint32_t frame, const void *value, size_t len)
{
	struct tail_frame t = { .pack = pack, .frame = frame, .number = k->nr_tail };

	if (frame != UINT32_MAX && freed_frame_decode(value, len, &t.freed) < 0)
		return 0; /* reported already */
	if (k->nr_tail == k->size_tail) {
		size_t size = MAX(2 * k->size_tail, (size_t)64);
		struct tail_frame *more = reallocarray(k->tail, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->tail = more;
		k->size_tail = size;
	}
	k->tail[k->nr_tail++] = t;
	return 0;
}

static void set_tail_totals(struct check *k, const void *value, size_t len)
{
	if (freed_totals_decode(value, len, &k->tail_totals) == 0) /* else reported already */
		k->has_tail_totals = true;
}

static int compare_packs(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int compare_places(const void *a, const void *b)
{
	const struct tail_frame *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return (x->frame > y->frame) - (x->frame < y->frame);
}

static int compare_tail(const void *a, const void *b)
{
	const struct tail_frame *x = a, *y = b;
	int r = compare_places(a, b);

	return r ? r : (x->number > y->number) - (x->number < y->number);
}

/* Sorts, and keeps the last entry of each place. */
static void sort_collected(struct check *k)
{
	size_t n = 0;

	if (remote_check)
		remote_check->sort(k->notes);
	if (k->nr_removed > 0)
		qsort(k->removed, k->nr_removed, sizeof(*k->removed), compare_packs);
	if (k->nr_tail == 0)
		return;
	qsort(k->tail, k->nr_tail, sizeof(*k->tail), compare_tail);
	for (size_t i = 0; i < k->nr_tail; i++)
		if (i + 1 == k->nr_tail || compare_places(&k->tail[i], &k->tail[i + 1]) != 0)
			k->tail[n++] = k->tail[i];
	k->nr_tail = n;
}

bool check_is_removed(const struct check *k, uint32_t pack)
{
	return k->nr_removed > 0 && bsearch(&pack, k->removed, k->nr_removed, sizeof(pack), compare_packs);
}

const struct tail_frame *check_tail_of(const struct check *k, uint32_t pack, uint32_t frame)
{
	struct tail_frame t = { .pack = pack, .frame = frame };

	return k->nr_tail > 0 ? bsearch(&t, k->tail, k->nr_tail, sizeof(t), compare_places) : NULL;
}

/* Adds the removed packs listed in the index. Unreadable entries are reported when the view is checked. */
static int load_removed(struct check *k)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = freed_key_totals();
	const void *key, *value;
	size_t key_len, value_len;
	uint32_t pack, frame;
	int r = db_iter_new(k->db, NULL, prefix.b, prefix.len, NULL, 0, &it);

	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0)
		if (freed_key_decode(key, key_len, &pack, &frame) == 0 && pack > 0 && frame == UINT32_MAX)
			r = add_removed(k, pack);
	return is_damage(r) ? 0 : r;
}

/* --- records --- */

struct group {
	uint64_t number;
	bool is_snapshot, is_first_part;
	uint64_t nr; /* records so far */
};

static const char *record_put(struct check *k, const struct group *g, const void *p, size_t len, int *r)
{
	struct cursor c = cursor_of(p, len);
	uint64_t key_len = cursor_varint(&c);
	const uint8_t *key = key_len > 0 ? cursor_take(&c, (size_t)key_len) : NULL;
	bool is_tail = !g->is_snapshot && g->number > k->meta.commit;
	uint32_t pack, frame;
	const char *why;

	if (!key)
		return "its key does not decode";
	why = check_entry(&k->key, key, (size_t)key_len, c.p, cursor_left(&c));
	if (!why && key[0] == VIEW_SHARE && is_tail && remote_check)
		*r = remote_check->add(&k->notes, key, (size_t)key_len, c.p, cursor_left(&c));
	if (why || key[0] != VIEW_FREED)
		return why;
	freed_key_decode(key, (size_t)key_len, &pack, &frame);
	if (pack > 0 && frame == UINT32_MAX)
		*r = add_removed(k, pack);
	if (pack > 0 && *r == 0 && is_tail)
		*r = add_tail(k, pack, frame, c.p, cursor_left(&c));
	if (pack == 0 && is_tail)
		set_tail_totals(k, c.p, cursor_left(&c));
	return NULL;
}

static const char *record_replace(enum record_type type, const void *p, size_t len, int *r)
{
	struct replace rp;

	*r = replace_decode(type, p, len, &rp);
	if (*r == -EBADMSG) {
		*r = 0;
		return "a change of bytes does not decode";
	}
	if (*r == 0)
		free(rp.x);
	return NULL;
}

static const char *record_drop(const void *p, size_t len)
{
	struct cursor c = cursor_of(p, len);

	cursor_varint(&c);
	return cursor_done(&c) ? NULL : "a removal does not decode";
}

static const char *record_marks(struct check *k, const void *p, size_t len)
{
	struct pack_marks m;

	if (marks_decode(p, len, &m) < 0)
		return "its marks do not decode";
	if (k->has_marks && m.next_pack < k->marks.next_pack)
		return "its marks go back";
	k->marks = m;
	k->has_marks = true;
	return NULL;
}

static const char *check_record(struct check *k, const struct group *g, uint8_t type, const void *p, size_t len, int *r)
{
	struct pack_written written;
	struct clone cl;

	if ((type == RECORD_MARKS) != (g->nr == 0 && g->is_first_part))
		return "it does not begin with marks";
	if (g->is_snapshot && type != RECORD_MARKS && type != RECORD_PUT)
		return "it is a snapshot that contains changes";
	switch (type) {
	case RECORD_MARKS:
		return record_marks(k, p, len);
	case RECORD_PUT:
		return record_put(k, g, p, len, r);
	case RECORD_DEL:
	case RECORD_DEL_PREFIX:
		return len > 0 && check_table_is_known(*(const uint8_t *)p) ? NULL : "a removal names an unknown table";
	case RECORD_DROP:
		return record_drop(p, len);
	case RECORD_REPLACE:
	case RECORD_PATCH:
		return record_replace(type, p, len, r);
	case RECORD_CLONE:
		return clone_decode(p, len, &cl) < 0 ? "a clone does not decode" : NULL;
	case RECORD_FRAMES:
		return frames_decode(p, len, &written) < 0 ? "the frames of a commit do not decode" : NULL;
	default:
		return "a record has an unknown type";
	}
}

/* The checksums are valid: a malformed record was written so. */
static int check_group(struct check *k, struct group *g, const void *records, size_t len)
{
	struct journal_iter it = journal_iter(records, len);
	const char *why = NULL;
	const void *p;
	uint8_t type;
	size_t n;
	int r;

	while ((r = journal_iter_next(&it, &type, &p, &n)) > 0 && !why) {
		int e = 0;

		why = check_record(k, g, type, p, n, &e);
		if (e < 0)
			return e;
		g->nr++;
	}
	if (r < 0)
		why = "its records do not decode";
	if (why)
		journal_is_bad(k, "%s %" PRIu64 ": %s", g->is_snapshot ? "snapshot" : "commit", g->number, why);
	return 0;
}

static int read_groups(struct check *k)
{
	_cleanup_(journal_reader_freep) struct journal_reader *reader = NULL;
	struct group g = { .is_first_part = true };
	struct journal_stats st;
	uint64_t number, bytes = 0;
	const void *records;
	bool is_snapshot;
	size_t len;
	int r;

	journal_stats(k->journal, &st);
	r = journal_read(k->journal, 0, &reader);
	while (r >= 0 && (r = journal_read_next(reader, &number, &is_snapshot, &records, &len)) > 0) {
		g.is_first_part = number != g.number || is_snapshot != g.is_snapshot;
		g.number = number;
		g.is_snapshot = is_snapshot;
		g.nr = 0;
		r = check_group(k, &g, records, len);
		k->res.nr_groups++;
		bytes += len;
		if (r == 0)
			r = check_step(k, "journal", bytes, MAX(st.disk_bytes, bytes), true);
	}
	return r;
}

/* Can a mount apply the commits that are not in the index? */
static int check_reach(struct check *k)
{
	_cleanup_(journal_reader_freep) struct journal_reader *reader = NULL;
	int r;

	if (!k->db || k->journal_bad)
		return 0;
	if (k->meta.commit > k->last) {
		journal_is_bad(k, "ends with commit %" PRIu64 ", but the index has seen %" PRIu64, k->last,
			       k->meta.commit);
		return 0;
	}
	r = journal_read(k->journal, k->meta.commit, &reader);
	if (r == -ENOENT) {
		snprintf(k->db_why, sizeof(k->db_why),
			 "stands for commit %" PRIu64 ", and the journal does not go back so far", k->meta.commit);
		db_close(TAKE(k->db));
		r = 0;
	}
	return r;
}

/* A mount drops the last group if its frames are missing. */
static int settle_last(struct check *k, bool read_only)
{
	struct packs_conf conf = { .key = &k->key, .read_only = read_only };

	memcpy(conf.store_id, k->dirs.sb.store_id, sizeof(conf.store_id));
	return MIN(joint_settle(k->journal, k->db ? k->meta.commit : 0, k->dirs.packs, &conf), 0);
}

int check_journal(struct check *k)
{
	struct journal_conf conf = { .read_only = true };
	int r;

	k->has_marks = false;
	memcpy(conf.store_id, k->dirs.sb.store_id, sizeof(conf.store_id));
	r = journal_open(k->dirs.journal, &conf, &k->journal);
	if (r == 0)
		r = settle_last(k, true);
	if (r == 0) {
		k->last = MAX(journal_last(k->journal), journal_snapshot_number(k->journal));
		r = read_groups(k);
	}
	if (is_damage(r)) {
		journal_is_bad(k, "a file of it is damaged or missing");
		r = 0;
	}
	if (r == 0 && k->journal)
		r = check_reach(k);
	if (r == 0 && k->journal_bad && k->db) { /* the index is the only source left */
		k->marks = k->meta.marks;
		k->has_marks = k->meta.commit > 0;
		r = load_removed(k);
	}
	if (r < 0)
		return r;
	sort_collected(k);
	k->res.commit = MAX(k->last, k->meta.commit);
	k->res.unapplied = k->db && k->last > k->meta.commit ? k->last - k->meta.commit : 0;
	return 0;
}

int check_repair_counts(struct check *k, const struct pack_counts *counts)
{
	_cleanup_(buf_release) struct buf rec = BUF_EMPTY, group = BUF_EMPTY;
	struct pack_marks marks = k->marks;
	struct journal_conf conf = { 0 };
	int r;

	marks.counts = *counts;
	marks_encode(&marks, &rec);
	journal_record_add(&group, RECORD_MARKS, rec.data, rec.len);
	if (buf_error(&rec) < 0 || buf_error(&group) < 0)
		return -ENOMEM;
	journal_close(TAKE(k->journal));
	memcpy(conf.store_id, k->dirs.sb.store_id, sizeof(conf.store_id));
	r = journal_open(k->dirs.journal, &conf, &k->journal);
	if (r == 0)
		r = settle_last(k, false);
	return r < 0 ? r : journal_append(k->journal, group.data, group.len);
}

/* --- rebuilding --- */

/* 1: rebuilt; 0: would lose commits, which is not allowed; <0. `text` describes the outcome. */
static int remake(struct check *k, char text[CHECK_TEXT])
{
	struct journal_conf conf = { 0 };
	struct journal_remake *m;
	uint64_t last, lost;
	int r;

	memcpy(conf.store_id, k->dirs.sb.store_id, sizeof(conf.store_id));
	r = journal_remake_new(k->dirs.journal, &conf, k->meta.commit, &m, &last, &lost);
	if (r < 0)
		return r;
	if (lost > 0 && !k->conf->discard_commits) {
		journal_remake_abort(m);
		snprintf(text, CHECK_TEXT,
			 "; -y discards commits %" PRIu64 " to %" PRIu64 ", at least one of which is damaged", last + 1,
			 lost);
		return 0;
	}
	r = view_write_state(k->db, NULL, &k->meta.marks, journal_remake_snapshot(m));
	if (r < 0) {
		journal_remake_abort(m);
		return r;
	}
	r = journal_remake_commit(m);
	if (r < 0)
		return r;
	snprintf(text, CHECK_TEXT, "; rebuilt from the index, up to commit %" PRIu64, last);
	if (lost > 0)
		check_found(k, CHECK_JOURNAL, false, "journal: commits %" PRIu64 " to %" PRIu64 " are lost", last + 1,
			    lost);
	return 1;
}

int check_repair_journal(struct check *k)
{
	char done[CHECK_TEXT];
	int r = 0;

	if (!k->db || k->meta.commit == 0 || k->nr_view > 0)
		snprintf(done, sizeof(done), "; there is no sound index to rebuild it from");
	else if (!k->conf->repair)
		snprintf(done, sizeof(done), "; -p rebuilds it from the index, which stands for commit %" PRIu64,
			 k->meta.commit);
	else
		r = remake(k, done);
	if (r < 0)
		snprintf(done, sizeof(done), "; cannot rebuild: %s", strerror(-r));
	for (unsigned i = 0; i < k->nr_journal_why; i++)
		check_found(k, CHECK_JOURNAL, r > 0, "journal: %s%s", k->journal_why[i], done);
	return r > 0;
}
