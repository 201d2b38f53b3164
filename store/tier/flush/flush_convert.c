/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The catalog is converted record by record. New chunks of a record are read, appended to the pack in memory, and have
 * their numbers in it before the record is written with runs. Chunks of varied lengths follow those of one length, so
 * that frames, each of which has one kind, become full. While the chunks of a record are read, those of the record
 * before it are appended. So a chunk that both have is read twice, and appended once.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"

/* The unknown chunks of the record: first those of one length, then those of varied lengths. */
static int list_wants(struct flush *f, struct record *k)
{
	k->nr_wants = k->nr_read = k->nr_appended = 0;
	for (unsigned varied = 0; varied < 2; varied++)
		for (unsigned i = 0; i < k->nr_pieces; i++) {
			const struct content_piece *p = &k->pieces[i];
			int r;

			if (p->chunk_len == 0 || (chunk_kind(p->chunk_len) == PACK_VARIED) != (varied == 1))
				continue;
			r = writer_use_chunk(f->w, p->fp, p->chunk_len);
			if (r < 0)
				return r;
			if (r > 0)
				continue;
			if (varied == 1 && p->chunk_len > PACK_VARIED_LEN_MAX)
				return -EBADMSG;
			k->wants[k->nr_wants++] = (struct tier_want){ .fp = p->fp, .len = p->chunk_len };
		}
	return 0;
}

/* Begins to read the next chunks of the record, as many as fit into its memory. */
static int begin_read(struct flush *f, struct record *k)
{
	size_t first = k->nr_read, len = 0;

	for (; k->nr_read < k->nr_wants && len + k->wants[k->nr_read].len <= READ_BYTES; k->nr_read++) {
		k->wants[k->nr_read].buf = k->bytes + len;
		len += k->wants[k->nr_read].len;
	}
	f->is_reading = k->nr_read > first;
	return f->is_reading ? f->c->read(f->c->userdata, k->wants + first, k->nr_read - first) : 0;
}

static int await_read(struct flush *f)
{
	bool waits = f->is_reading && f->c->await;

	f->is_reading = false;
	return waits ? f->c->await(f->c->userdata) : 0;
}

/* Appends the chunks that were read. */
static int append_read(struct flush *f, struct record *k)
{
	int r = 0;

	for (; k->nr_appended < k->nr_read && r == 0; k->nr_appended++) {
		const struct tier_want *c = &k->wants[k->nr_appended];

		if (!tier_known_find(&f->w->known, c->fp, c->len)) /* of this record or the one before it */
			r = writer_append_chunk(f->w, c, f->sums);
	}
	return r;
}

static int report_too_large(const struct flush *f)
{
	return log_errno(
		-EFBIG,
		"%s: its manifest in the tier would exceed %" PRIu64
		" bytes: it has too many small pieces, or large attributes. Seal its subdirectories one by one instead",
		f->c->path[0] ? f->c->path : "/", f->w->conf.manifest_max);
}

/* Is there room in the manifest for what it has so far? */
static int check_size(const struct flush *f)
{
	uint64_t len = sizeof(struct tier_manifest_disk) + strlen(f->c->path) +
		       f->nr_refs * sizeof(struct tier_pack_ref_disk) + f->catalog.len;

	return len <= f->w->conf.manifest_max ? 0 : report_too_large(f);
}

/* The number of one of the writer's packs in the manifest, plus 1. */
static int manifest_pack_number(struct flush *f, uint32_t pack, uint32_t *ret)
{
	if (pack >= f->index_room) {
		size_t room = MAX((size_t)pack + 1, 2 * f->index_room);
		uint32_t *index = reallocarray(f->index, room, sizeof(*index));
		uint32_t *order;

		if (!index)
			return -ENOMEM;
		f->index = index;
		order = reallocarray(f->order, room, sizeof(*order));
		if (!order)
			return -ENOMEM;
		f->order = order;
		memset(index + f->index_room, 0, (room - f->index_room) * sizeof(*index));
		f->index_room = room;
	}
	if (f->index[pack] == 0) {
		if (f->nr_refs == TIER_MANIFEST_PACKS_MAX)
			return report_too_large(f);
		f->order[f->nr_refs++] = pack;
		f->index[pack] = f->nr_refs;
	}
	*ret = f->index[pack];
	return 0;
}

static int encode_runs(struct flush *f, const struct record *k)
{
	struct tier_run run = { 0 };
	int r = 0;

	buf_clear(&f->runs);
	for (unsigned i = 0; i < k->nr_pieces && r == 0; i++) {
		const struct content_piece *p = &k->pieces[i];
		bool is_whole = p->chunk_len > 0 && p->from == 0 && p->len == p->chunk_len;
		struct tier_run next = { .nr = is_whole ? 1 : 0, .len = p->len };

		if (p->chunk_len > 0) {
			const struct tier_place *place = tier_known_find(&f->w->known, p->fp, p->chunk_len);

			assert(place);
			next.first = place->chunk;
			r = manifest_pack_number(f, place->pack, &next.pack);
		}
		if (!is_whole)
			next.from = p->from;
		if (is_whole && run.nr > 0 && run.pack == next.pack && run.first + run.nr == next.first) {
			run.nr++;
			run.len += next.len;
			continue;
		}
		if (i > 0)
			tier_run_encode(&run, &f->runs);
		run = next;
	}
	tier_run_encode(&run, &f->runs);
	buf_add_u8(&f->catalog, TIER_RUNS_TYPE);
	buf_add_varint(&f->catalog, f->runs.len);
	buf_add(&f->catalog, f->runs.data, f->runs.len);
	if (r == 0)
		r = buf_error(&f->runs);
	return r < 0 ? r : buf_error(&f->catalog);
}

/* Converts the record whose chunks have been read. */
static int convert_read(struct flush *f, struct record *k)
{
	int r = append_read(f, k);

	return r < 0 ? r : encode_runs(f, k);
}

/* Converts the last record, if that has not been done. */
static int convert_last(struct flush *f)
{
	struct record *k = TAKE(f->last);
	int r = await_read(f);

	return r < 0 || !k ? r : convert_read(f, k);
}

static int convert_pieces(struct flush *f, const struct catalog_record *rec)
{
	struct record *before = TAKE(f->last), *k = &f->records[before == f->records];
	struct cursor c = cursor_of(rec->data, rec->len);
	int r;

	writer_trim_known(f->w); /* keeps all chunks of `before`, which were used after the last trim */
	for (k->nr_pieces = 0; (r = catalog_piece_next(&c, &k->pieces[k->nr_pieces])) > 0;)
		if (++k->nr_pieces == CATALOG_PIECES_MAX)
			break;
	if (r >= 0)
		r = list_wants(f, k);
	if (r == 0)
		r = await_read(f);
	if (r == 0)
		r = begin_read(f, k);
	if (r == 0 && before)
		r = convert_read(f, before);
	while (r == 0 && k->nr_read < k->nr_wants) {
		r = await_read(f);
		if (r == 0)
			r = append_read(f, k);
		if (r == 0)
			r = begin_read(f, k);
	}
	f->last = r == 0 ? k : NULL;
	return r;
}

/* Sink of the source's catalog. */
static int convert_catalog(void *userdata, const void *p, size_t len)
{
	struct flush *f = userdata;
	struct catalog_record rec;
	size_t at = 0, used;
	int r;

	buf_add(&f->unread, p, len);
	r = buf_error(&f->unread);
	while (r == 0) {
		const uint8_t *record = f->unread.data + at;
		bool is_top = !f->reader.has_inode;

		r = catalog_reader_next(&f->reader, record, f->unread.len - at, &used, &rec);
		if (r <= 0)
			break;
		if (is_top && rec.type == CATALOG_INODE)
			f->uid = rec.in.uid;
		at += used;
		r = 0;
		if (rec.type == CATALOG_PIECES) {
			r = convert_pieces(f, &rec);
		} else {
			r = convert_last(f);
			buf_add(&f->catalog, record, used);
		}
		if (r == 0)
			r = check_size(f);
	}
	if (at > 0)
		memmove(f->unread.data, f->unread.data + at, f->unread.len - at);
	f->unread.len -= at;
	return r < 0 ? r : buf_error(&f->catalog);
}

/* The packs are in the tier afterwards, or none is being put. */
int flush_write_packs(struct flush *f)
{
	struct tier_writer *w = f->w;
	int r = f->c->catalog(f->c->userdata, &(struct tier_sink){ convert_catalog, f }), put;

	if (r == 0)
		r = convert_last(f);
	else
		(void)await_read(f); /* it writes to memory that is freed with the flush */
	if (r == 0 && !f->reader.at_end)
		r = -EBADMSG;
	if (r == 0)
		r = check_size(f);
	if (r == 0 && w->is_open)
		r = writer_close_pack(w, f->sums);
	put = writer_await_packs(w);
	return r < 0 ? r : put;
}
