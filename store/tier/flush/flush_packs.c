/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunks to packs. One pack is in memory and open; others are being put. Chunks are shared with packs that a manifest
 * names, and with those that this writer has put itself. If the name of a pack is taken, a flush that ended early has
 * put it, or another node is putting it.
 *
 * The names of packs are derived from their content. So one that is cut off or has other tables was damaged in the
 * tier, and is replaced.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/flush/flush_state.h"
#include "store/tier/tier_pack_memory.h"

int writer_add_pack(struct tier_writer *w, const struct tier_footer *f)
{
	int r = list_grow(&w->packs, w->nr_packs, &w->packs_room, sizeof(*w->packs));

	if (r == 0)
		r = list_grow(&w->is_dropped, w->nr_packs, &w->dropped_room, sizeof(*w->is_dropped));
	if (r == 0)
		r = list_grow(&w->is_unproven, w->nr_packs, &w->unproven_room, sizeof(*w->is_unproven));
	if (r < 0)
		return r;
	w->packs[w->nr_packs] = *f;
	w->is_unproven[w->nr_packs] = false;
	w->is_dropped[w->nr_packs++] = false;
	return 0;
}

static int open_pack(struct tier_writer *w)
{
	int r = writer_add_pack(w, &(struct tier_footer){ 0 });

	if (r < 0)
		return r;
	tier_pack_reserve(&w->data, w->conf.pack_bytes);
	w->is_open = true;
	w->nr_chunks = 0;
	return 0;
}

static void close_frame(struct tier_writer *w)
{
	struct pack_table_disk d;

	if (w->frame.nr_chunks == 0)
		return;
	pack_table_encode(&w->frame, &w->key, TIER_PACK_NUMBER + (uint32_t)w->log.generation,
			  (uint32_t)(w->tables.len / PACK_BLOCK), &d);
	buf_add(&w->tables, &d, sizeof(d));
	w->frame.nr_chunks = 0;
	w->frame_len = 0;
}

int writer_replace_object(struct tier_writer *w, const char *name, const void *data, size_t len)
{
	struct tier_request q = { .op = TIER_PUT, .name = name, .data = data, .len = len };

	log_warning("tier %s: %s: is damaged there; it is replaced", tier_where(w->tier), name);
	return tier_call(w->tier, &q);
}

/*
 * The name of a pack is taken. Its id is the digest of its tables, so the object there has the same chunks, unless it
 * was damaged: it must have this length, tables and footer. Reading its data would take as long as sending it.
 */
static int check_pack(struct tier_writer *w, const struct sending *s)
{
	const struct tier_footer_disk *own = (const void *)(s->bytes.data + s->bytes.len - sizeof(*own));
	uint64_t data_len = le64_get(own->data_len);
	size_t len = s->bytes.len - (size_t)data_len;
	_cleanup_(freep) uint8_t *there = malloc(len);
	struct tier_request q = { .op = TIER_GET, .name = s->name.s, .off = data_len, .buf = there, .len = len };
	int r = there ? tier_call(w->tier, &q) : -ENOMEM;

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && q.got == len && q.size == s->bytes.len && memcmp(there, s->bytes.data + data_len, len) == 0)
		return 0;
	return writer_replace_object(w, s->name.s, s->bytes.data, s->bytes.len);
}

static int end_pack(struct tier_writer *w, struct tier_request *q)
{
	struct sending *s = container_of(q, struct sending, q);
	int r = q->result == -EEXIST ? check_pack(w, s) : q->result;

	w->is_sending[s - w->sending] = false;
	w->has_failed |= r < 0;
	buf_clear(&s->bytes); /* new memory for the next pack would cost a page fault for each page */
	return r < 0 ? log_errno(r, "tier %s: %s: cannot put the pack", tier_where(w->tier), s->name.s) : 0;
}

/* Ends the packs that have been put, and waits for one if there are as many as allowed. */
static int end_packs(struct tier_writer *w)
{
	struct tier_request *q;
	int r = 0;

	while (r == 0 && (q = tier_completed(w->queue)))
		r = end_pack(w, q);
	if (r == 0 && tier_in_flight(w->queue) == w->conf.packs_in_flight)
		r = end_pack(w, tier_next(w->queue));
	return r;
}

int writer_await_packs(struct tier_writer *w)
{
	struct tier_request *q;
	int r = 0;

	while ((q = tier_next(w->queue))) {
		int one = end_pack(w, q);

		r = r < 0 ? r : one;
	}
	return r;
}

/* Frees the memory for packs that are not in flight: until the next flush, hours may pass. */
void writer_free_buffers(struct tier_writer *w)
{
	for (unsigned i = 0; i < PACKS_IN_FLIGHT_MAX; i++)
		if (!w->is_sending[i])
			buf_release(&w->sending[i].bytes);
	if (!w->is_open)
		buf_release(&w->data);
}

int writer_close_pack(struct tier_writer *w, struct tier_flushed *sums)
{
	struct tier_footer *f = &w->packs[w->nr_packs - 1];
	struct tier_footer_disk d;
	struct sending *s = NULL;
	struct buf spare;
	int r;

	close_frame(w);
	*f = (struct tier_footer){
		.data_len = w->data.len,
		.nr_frames = (uint32_t)(w->tables.len / PACK_BLOCK),
	};
	memcpy(f->key_id, w->conf.key.id, sizeof(f->key_id));
	tier_tables_id(w->tables.data, w->tables.len, f->id);
	tier_footer_encode(f, &d);
	buf_add(&w->data, w->tables.data, w->tables.len);
	buf_add(&w->data, &d, sizeof(d));
	buf_clear(&w->tables);
	w->is_open = false;
	r = buf_error(&w->tables) < 0 ? -ENOMEM : buf_error(&w->data);
	if (r == 0)
		r = tier_ids_add(&w->numbers, f->id, w->nr_packs - 1);
	if (r == 0)
		r = end_packs(w);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < w->conf.packs_in_flight && !s; i++)
		if (!w->is_sending[i]) {
			w->is_sending[i] = true;
			s = &w->sending[i];
		}
	assert(s);
	sums->packs++;
	sums->bytes += w->data.len;
	spare = s->bytes;
	s->bytes = w->data;
	w->data = spare;
	s->name = tier_pack_name(f->id);
	s->q = (struct tier_request){
		.op = TIER_PUT_NEW,
		.name = s->name.s,
		.data = s->bytes.data,
		.len = s->bytes.len,
	};
	tier_start(w->queue, &s->q);
	return 0;
}

/* Chunks of one length, or (0) of varied lengths. */
uint32_t chunk_kind(uint32_t len)
{
	return len % PACK_BLOCK == 0 ? len : PACK_VARIED;
}

static bool frame_takes(const struct tier_writer *w, uint32_t len)
{
	return w->frame.nr_chunks == 0 ||
	       (w->frame.chunk_len == chunk_kind(len) && w->frame.nr_chunks < pack_nr_chunks_max(w->frame.chunk_len) &&
		w->frame_len + len <= PACK_FRAME_BYTES);
}

int writer_append_chunk(struct tier_writer *w, const struct tier_want *c, struct tier_flushed *sums)
{
	struct pack_table *t = &w->frame;
	int r = 0;

	if (!fp_is_of(&w->key, c->fp, c->buf, c->len))
		return log_errno(-EBADMSG, "chunk %s: the store returned other bytes", fp_hex(c->fp).s);
	if (!frame_takes(w, c->len))
		close_frame(w);
	if (w->is_open && t->nr_chunks == 0 &&
	    (w->data.len >= w->conf.pack_bytes || w->tables.len == TIER_PACK_FRAMES_MAX * (size_t)PACK_BLOCK))
		r = writer_close_pack(w, sums);
	if (r == 0 && !w->is_open)
		r = open_pack(w);
	if (r < 0)
		return r;
	if (t->nr_chunks == 0)
		*t = (struct pack_table){ .chunk_len = chunk_kind(c->len) };
	t->fps[t->nr_chunks] = c->fp;
	w->frame_len += c->len;
	if (t->chunk_len == PACK_VARIED)
		t->ends[t->nr_chunks] = w->frame_len;
	t->nr_chunks++;
	buf_add(&w->data, c->buf, c->len);
	sums->chunks++;
	sums->chunk_bytes += c->len;
	r = buf_error(&w->data);
	return r < 0 ? r :
		       tier_known_add(&w->known, c->fp, c->len, (struct tier_place){ w->nr_packs - 1, w->nr_chunks++ });
}
