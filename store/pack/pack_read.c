/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading chunks.
 *
 * Everything that a request wants from one frame becomes one plan. It holds, for each wanted chunk, the memory that the
 * whole chunk is read into: only a whole chunk can be verified. That is the caller's own memory where it is aligned and
 * covers the chunk, else one of our buffers, from which the wanted range is copied after the chunk has been verified.
 * Chunks with small gaps between them are read with one vectored read that discards the gaps. Otherwise each of the
 * scattered pages of a frequently changed file would be a disk access.
 *
 * Chunks of varied lengths begin anywhere in a block: whole blocks are read into the buffer, at their offset in the
 * frame.
 *
 * In a compressed frame the parts that hold wanted chunks are read and decompressed as a whole: into the caller's
 * memory if all of a part is wanted, else into the buffer. The parts that they are coded against are decoded too, and
 * verified like any other if they are decoded completely. The buffer then caches its decoded parts until it is reused:
 * the next read of the frame need not decode them again, and still verifies the chunks it returns.
 *
 * A table that is not in memory is read together with the data in one request. The reader guesses that the chunks are
 * as long as those of the table decoded last, or that the frame compresses to the same size. After a wrong guess or any
 * error the table is read first.
 *
 * What a request wants from several plain frames is read first, all at once (pack_gather.h). The rest goes frame by
 * frame, as does a request for one frame, which nothing can overtake.
 *
 * The frames of one request are read in parallel by several threads if they are probably compressed: a request for
 * small files with a piece in each of many frames has too little work within one frame to parallelise.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

#define NR_WANTS_ON_STACK 64
#define FRAMES_AT_ONCE 16u /* of a request that is read by several threads */

struct plan {
	struct packs *packs;
	struct pack_file *file;
	struct pack_buffer *buffer;
	struct pack_held held; /* decoded parts in `buffer` */
	struct pack_buffer *stored; /* bytes of a compressed frame as on disk; NULL: not needed so far */
	uint32_t have; /* bytes in `stored` */
	bool is_bad; /* one of the parts cannot be decompressed */
	const struct want *wants; /* all of one frame, ordered by `in` */
	size_t nr_wants;
	uint32_t end; /* of the wanted ranges */
	uint32_t compressed; /* plain bytes of a compressed frame; 0: uncompressed */
	bool as_is; /* do not verify */

	struct pack_cuts cuts; /* nr_chunks is not set if they are guessed */
	uint32_t ends[PACK_VARIED_MAX]; /* of `cuts` */
	uint8_t *where[PACK_FRAME_BLOCKS]; /* by chunk number; NULL: not wanted */
	uint64_t remote[PACK_GONE_WORDS]; /* remote chunks, which are not read from the pack */
};

static bool is_read(const struct plan *pl, uint32_t i)
{
	return pl->where[i] && !pack_is_remote(pl->remote, i);
}

static uint32_t first_chunk(const struct want *w, const struct pack_cuts *cuts)
{
	return pack_cut_at(cuts, w->in);
}

static uint32_t last_chunk(const struct want *w, const struct pack_cuts *cuts)
{
	return pack_cut_at(cuts, w->in + w->len - 1);
}

static void plan_set_cuts(struct plan *pl, const struct pack_cuts *cuts)
{
	pl->cuts = *cuts;
	pl->cuts.ends = pl->ends;
	if (cuts->chunk_len == PACK_VARIED)
		memcpy(pl->ends, cuts->ends, cuts->nr_chunks * sizeof(*pl->ends));
}

/* Upper bound on the chunk numbers of a plan. */
static uint32_t nr_planned(const struct plan *pl)
{
	return pl->cuts.chunk_len ? PACK_FRAME_BYTES / pl->cuts.chunk_len : pl->cuts.nr_chunks;
}

/* Where chunk i would begin in the memory of w: outside it if only the end of the chunk is wanted. */
static uint8_t *chunk_in_want(const struct want *w, uint32_t i, uint32_t chunk_len)
{
	return w->buf + ((ptrdiff_t)i * chunk_len - (ptrdiff_t)w->in);
}

static bool reads_straight(const struct want *w, uint32_t i, uint32_t chunk_len)
{
	return i * chunk_len >= w->in && (i + 1) * chunk_len <= w->in + w->len &&
	       (uintptr_t)chunk_in_want(w, i, chunk_len) % PACK_BLOCK == 0;
}

static void plan_make(struct plan *pl, struct pack_cuts cuts)
{
	plan_set_cuts(pl, &cuts);
	memset(pl->where, 0, sizeof(pl->where));
	for (const struct want *w = pl->wants; cuts.chunk_len && w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = first_chunk(w, &cuts); i <= last_chunk(w, &cuts); i++)
			if (reads_straight(w, i, cuts.chunk_len))
				pl->where[i] = chunk_in_want(w, i, cuts.chunk_len);
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = first_chunk(w, &cuts); i <= last_chunk(w, &cuts); i++)
			if (!pl->where[i])
				pl->where[i] = pl->buffer->data + pack_cut_start(&cuts, i);
}

struct request {
	uint64_t off, end;
	struct iovec iov[1 + 2 * PACK_FRAME_BLOCKS];
	int n;
};

static void request_add(struct request *q, void *p, uint64_t len)
{
	struct iovec *last = q->n > 0 ? &q->iov[q->n - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += len;
	else
		q->iov[q->n++] = (struct iovec){ p, len };
	q->end += len;
}

/* -EBADMSG: the file ends too early. */
static int request_run(struct plan *pl, struct request *q)
{
	uint64_t len = q->end - q->off;
	ssize_t n;

	if (q->n == 0)
		return 0;
	io_rate_wait(pl->packs->conf.read_rate, len);
	n = io_preadv(pl->file->fd, q->iov, q->n, q->off);
	q->n = 0;
	if (n == -EINVAL) /* the file ends inside a block, and direct I/O cannot continue there */
		return -EBADMSG;
	if (n < 0)
		return (int)n;
	pl->packs->read_bytes += (uint64_t)n;
	return (uint64_t)n < len ? -EBADMSG : 0;
}

/* Like plan_read(), for chunks of varied lengths: reads whole blocks into the buffer, including the gaps. */
static int plan_read_blocks(struct plan *pl, uint32_t skip_max)
{
	uint32_t frame = pl->wants->frame;
	struct request q = { .n = 0 };
	int r;

	for (uint32_t i = 0; i < pl->cuts.nr_chunks; i++) {
		uint64_t from = round_down(pack_cut_start(&pl->cuts, i), PACK_BLOCK),
			 to = round_up(pack_cut_end(&pl->cuts, i), PACK_BLOCK);
		uint64_t done = q.end - pack_data_off(frame);

		if (!is_read(pl, i))
			continue;
		if (q.n > 0 && from > done && from - done > skip_max) {
			r = request_run(pl, &q);
			if (r < 0)
				return r;
		}
		if (q.n == 0) {
			q.off = q.end = pack_data_off(frame) + from;
			done = from;
		}
		if (to > done)
			request_add(&q, pl->buffer->data + done, to - done);
	}
	return request_run(pl, &q);
}

/* Read the planned chunks, reading over gaps of up to skip_max. Does not log. */
static int plan_read(struct plan *pl, bool with_table, uint32_t skip_max)
{
	uint32_t chunk_len = pl->cuts.chunk_len;
	uint32_t frame = pl->wants->frame;
	struct request q;
	int r;

	q.n = 0;
	q.off = q.end = with_table ? pack_table_off(frame) : pack_data_off(frame);
	if (with_table)
		request_add(&q, &pl->buffer->table, PACK_BLOCK);
	for (uint32_t i = 0; i < nr_planned(pl); i++) {
		uint64_t off = pack_data_off(frame) + (uint64_t)i * chunk_len;

		if (!is_read(pl, i))
			continue;
		if (q.n > 0 && off - q.end > skip_max) {
			r = request_run(pl, &q);
			if (r < 0)
				return r;
		}
		if (q.n == 0)
			q.off = q.end = off;
		if (off > q.end)
			request_add(&q, pl->buffer->skip, off - q.end);
		request_add(&q, pl->where[i], chunk_len);
	}
	return request_run(pl, &q);
}

/* Compare every chunk of the plan with its fingerprint, unless as_is. Damage is logged and recorded. */
static int plan_verify(struct plan *pl, const struct fp *fps)
{
	struct packs *p = pl->packs;
	int r = 0;

	for (uint32_t i = 0; !pl->as_is && i < nr_planned(pl); i++) {
		uint32_t off;

		if (!is_read(pl, i) || fp_is_of(p->conf.key, fps[i], pl->where[i], pack_cut_len(&pl->cuts, i)))
			continue;
		r = -EBADMSG;
		off = pack_data_off(pl->wants->frame) + pack_cut_start(&pl->cuts, i);
		if (pack_places_add(&p->damaged, pl->file->pack, off))
			log_error("pack %" PRIu32 " offset %" PRIu32 ": chunk %s is damaged", pl->file->pack, off,
				  fp_hex(fps[i]).s);
	}
	return r;
}

/* Copy ranges that were not read directly into the caller's memory. */
static void plan_deliver(struct plan *pl)
{
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		for (uint32_t at = w->in, n; at < w->in + w->len; at += n) {
			uint32_t i = pack_cut_at(&pl->cuts, at);
			const uint8_t *from = pl->where[i] + (at - pack_cut_start(&pl->cuts, i));
			uint8_t *to = w->buf + (at - w->in);

			n = MIN(pack_cut_end(&pl->cuts, i), w->in + w->len) - at;
			if (from != to)
				memcpy(to, from, n);
		}
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		pl->held.given = MIN(pl->held.given + w->len, pl->held.plain_len);
}

/* 1: read and verified, together with the table; 0: nothing logged, read the table first; <0: damaged. */
static int read_by_guess(struct plan *pl)
{
	uint32_t guess = atomic_load_explicit(&pl->packs->likely_chunk_len, memory_order_relaxed);
	uint32_t frame = pl->wants->frame;
	struct pack_table table;
	int r;

	if (guess == PACK_VARIED || pl->wants->in / guess * guess > PACK_SKIP_BYTES ||
	    atomic_load_explicit(&pl->packs->likely_remote, memory_order_relaxed)) /* the data is probably remote */
		return 0;
	if ((pl->end - 1) / guess >= PACK_FRAME_BYTES / guess)
		return 0;
	plan_make(pl, (struct pack_cuts){ .chunk_len = guess });
	if (plan_read(pl, true, PACK_SKIP_BYTES) < 0)
		return 0;
	if (packs_check_table(pl->packs, pl->file->pack, frame, &pl->buffer->table, PACK_BLOCK, &table) <= 0)
		return 0;
	pack_tables_insert(pl->packs->tables, pl->file->pack, frame, &table);
	if (table.chunk_len != guess || pl->end > table.nr_chunks * table.chunk_len ||
	    table.coding.codec != PACK_CODEC_NONE || pack_any_remote(table.remote))
		return 0;
	r = plan_verify(pl, table.fps);
	return r < 0 ? r : 1;
}

/* --- compressed frames --- */

static bool holds_part(const struct want *w, uint32_t part, uint32_t plain_len)
{
	uint32_t start = part * PACK_PART_BYTES;

	return start >= w->in && start + pack_part_len(plain_len, part) <= w->in + w->len;
}

/* Has the part any local chunk? */
static bool is_part_here(const struct shape *s, uint32_t part)
{
	uint32_t start = part * PACK_PART_BYTES;

	for (uint32_t i = pack_cut_at(&s->cuts, start);
	     i < s->cuts.nr_chunks && pack_cut_start(&s->cuts, i) < start + PACK_PART_BYTES; i++)
		if (!pack_is_remote(s->remote, i))
			return true;
	return false;
}

/* Parts with only remote wanted chunks are not read: their blocks may be holes. */
static void plan_parts(struct plan *pl, const struct shape *s, struct part_read *pr)
{
	bool is_chunk_in_one = s->cuts.chunk_len && PACK_PART_BYTES % s->cuts.chunk_len == 0;

	plan_set_cuts(pl, &s->cuts);
	memset(pl->where, 0, sizeof(pl->where));
	for (const struct want *w = pl->wants; is_chunk_in_one && w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = w->in / PACK_PART_BYTES; i <= (w->in + w->len - 1) / PACK_PART_BYTES; i++)
			if (holds_part(w, i, pr->plain_len) && is_part_here(s, i))
				pr->to[i] = w->buf + (i * PACK_PART_BYTES - w->in);
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = first_chunk(w, &s->cuts); i <= last_chunk(w, &s->cuts); i++) {
			uint32_t start = pack_cut_start(&s->cuts, i), part = start / PACK_PART_BYTES;

			for (uint32_t k = part;
			     k * PACK_PART_BYTES < pack_cut_end(&s->cuts, i) && !pack_is_remote(s->remote, i); k++)
				if (!pr->to[k])
					pr->to[k] = pl->buffer->data + k * PACK_PART_BYTES;
			pl->where[i] = pr->to[part] ? pr->to[part] + (start - part * PACK_PART_BYTES) :
						      pl->buffer->data + start;
		}
}

/* All chunks in a part that cannot be decompressed are damaged, whether wanted or not. */
static void part_is_bad(struct plan *pl, uint32_t part)
{
	uint32_t pack = pl->file->pack, frame = pl->wants->frame, first, nr = 0;
	struct pack_cuts cuts;
	struct pack_table t;

	if (packs_load_table(pl->packs, pl->file, frame, &t) <= 0)
		return;
	cuts = pack_table_cuts(&t);
	first = pack_cut_at(&cuts, part * PACK_PART_BYTES);
	for (uint32_t i = first; i < t.nr_chunks && pack_cut_start(&cuts, i) < (part + 1) * PACK_PART_BYTES; i++)
		if (!fp_is_none(t.fps[i]) && !pack_is_remote(t.remote, i))
			nr += pack_places_add(&pl->packs->damaged, pack, pack_data_off(frame) + pack_cut_start(&cuts, i));
	if (nr > 0)
		log_error("pack %" PRIu32 " offset %" PRIu32 ": %" PRIu32
			  " chunks that were compressed together are damaged",
			  pack, pack_data_off(frame) + pack_cut_start(&cuts, first), nr);
}

/* Does chunk i lie in these parts completely? */
static bool lies_in(const struct pack_cuts *cuts, uint32_t i, uint32_t parts)
{
	for (uint32_t k = pack_cut_start(cuts, i) / PACK_PART_BYTES; k * PACK_PART_BYTES < pack_cut_end(cuts, i); k++)
		if (!(parts >> k & 1))
			return false;
	return true;
}

/* Verify parts that were decoded only as bases. The parts coded against them check their base by its checksum; here the
 * damage is attributed to the chunk that has it. */
static void verify_bases(const struct plan *pl, const struct shape *s, uint32_t bases)
{
	struct packs *p = pl->packs;
	uint32_t off = pack_data_off(pl->wants->frame);

	for (uint32_t i = 0; bases > 0 && i < s->cuts.nr_chunks; i++) {
		uint32_t start = pack_cut_start(&s->cuts, i);

		if (fp_is_none(s->fps[i]) || pack_is_remote(s->remote, i) || !lies_in(&s->cuts, i, bases) ||
		    fp_is_of(p->conf.key, s->fps[i], pl->buffer->data + start, pack_cut_len(&s->cuts, i)))
			continue;
		if (pack_places_add(&p->damaged, pl->file->pack, off + start))
			log_error("pack %" PRIu32 " offset %" PRIu32
				  ": chunk %s, which others are coded against, is damaged",
				  pl->file->pack, off + start, fp_hex(s->fps[i]).s);
	}
}

static int read_compressed(struct plan *pl, const struct shape *s)
{
	struct part_read pr = {
		.packs = pl->packs,
		.file = pl->file,
		.frame = pl->wants->frame,
		.plain_len = pack_cut_total(&s->cuts),
		.coding = s->coding,
		.have = pl->have,
		.held = pl->held,
	};
	int r;

	pl->compressed = pr.plain_len;
	if (!pl->stored)
		pl->stored = pack_buffer_get(&pl->packs->buffers);
	if (!pl->stored)
		return -ENOMEM;
	pr.stored = pl->stored;
	pr.spare = pl->buffer->data;
	plan_parts(pl, s, &pr);
	r = packs_read_parts(&pr);
	for (uint32_t i = 0; pr.bad >> i > 0; i++)
		if (pr.bad >> i & 1)
			part_is_bad(pl, i);
	pl->is_bad = pr.bad != 0;
	pl->held = pr.held;
	if (r == 0)
		verify_bases(pl, s, pr.bases & ~pr.bad);
	return r;
}

/* --- with a table --- */

/* Fetch the wanted chunks that are remote. conf.fetch() has verified them. */
static int plan_fetch(struct plan *pl, const struct shape *s)
{
	struct packs *p = pl->packs;
	uint32_t pack = pl->file->pack, frame = pl->wants->frame;
	struct pack_remote chunks[PACK_FRAME_BLOCKS];
	size_t nr = 0;
	int r;

	for (uint32_t i = 0; i < s->cuts.nr_chunks; i++)
		if (pl->where[i] && pack_is_remote(pl->remote, i))
			chunks[nr++] = (struct pack_remote){ i, pack_cut_len(&s->cuts, i), s->fps[i], pl->where[i] };
	if (nr == 0)
		return 0;
	r = p->conf.fetch ? p->conf.fetch(p->conf.userdata, pack, frame, chunks, nr) : -EIO;
	return r < 0 ? log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": %zu chunks that other nodes have", pack, frame,
				 nr) :
		       0;
}

static int read_by_shape(struct plan *pl, const struct shape *s)
{
	uint32_t pack = pl->file->pack, off = pack_data_off(pl->wants->frame);
	int r;

	if (pl->end > pack_cut_total(&s->cuts))
		return log_errno(-EBADMSG, "pack %" PRIu32 " offset %" PRIu32 ": no chunk there", pack,
				 off + pl->end - 1);
	memcpy(pl->remote, s->remote, sizeof(pl->remote));
	if (s->coding->codec != PACK_CODEC_NONE) {
		r = read_compressed(pl, s);
	} else {
		plan_make(pl, s->cuts);
		r = s->cuts.chunk_len ? plan_read(pl, false, PACK_SKIP_BYTES) : plan_read_blocks(pl, PACK_SKIP_BYTES);
			if (r == -EIO) /* perhaps in a gap between the wanted chunks */
			r = s->cuts.chunk_len ? plan_read(pl, false, 0) : plan_read_blocks(pl, 0);
	}
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " offset %" PRIu32 ": cannot read", pack, off + pl->wants->in);
	r = plan_fetch(pl, s);
	if (r < 0)
		return r;
	r = plan_verify(pl, s->fps);
	return pl->is_bad ? -EBADMSG : r; /* even if memory happened to hold the right bytes */
}

static int read_without_table(struct plan *pl)
{
	struct packs *p = pl->packs;
	uint32_t pack = pl->file->pack, frame = pl->wants->frame;
	struct pack_table table;
	int r;

	if (atomic_load_explicit(&p->likely_stored, memory_order_relaxed) == 0) {
		r = read_by_guess(pl);
		if (r != 0)
			return r;
	}
	r = packs_find_table(p, pl->file, frame, pl->wants->in, pl->end, &pl->stored, &pl->have, &table);
	if (r < 0)
		return r;
	if (r == 0)
		return log_errno(-EBADMSG, "pack %" PRIu32 " frame %" PRIu32 ": nothing there", pack, frame);
	return read_by_shape(pl, &(struct shape){ pack_table_cuts(&table), &table.coding, table.fps, table.remote });
}

/* Read from a frame that is not written yet. */
static int read_from_memory(struct plan *pl, const struct table_view *v)
{
	struct pack_cuts cuts = table_view_cuts(v);
	const struct want *w = pl->wants;

	plan_set_cuts(pl, &cuts);
	if (pl->end > pack_cut_total(&pl->cuts))
		return log_errno(-EBADMSG, "pack %" PRIu32 " frame %" PRIu32 ": no such chunk yet", w->pack, w->frame);
	for (uint32_t i = 0; i < v->nr_chunks; i++)
		pl->where[i] = (uint8_t *)pack_frame_chunk(v->frame, i);
	plan_deliver(pl);
	return 0;
}

/* `v`: the table; NULL: it is not in memory. */
static int read_from_disk(struct plan *pl, const struct table_view *v)
{
	struct packs *p = pl->packs;
	uint32_t pack = pl->wants->pack, frame = pl->wants->frame;
	int r;

	if (!v && frame >= packs_nr_frames(p, pack))
		return log_errno(-EBADMSG, "pack %" PRIu32 " frame %" PRIu32 ": never written", pack, frame);
	if (!v && pack_places_has(&p->damaged, pack, pack_table_off(frame)))
		return -EBADMSG; /* logged when it was found */
	r = packs_file_get(p, pack, &pl->file);
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	if (v && v->coding.codec != PACK_CODEC_NONE)
		pl->buffer = pack_buffer_get_held(&p->buffers, pack, frame, &pl->held);
	else
		pl->buffer = pack_buffer_get(&p->buffers);
	if (!pl->buffer)
		r = -ENOMEM;
	else if (v)
		r = read_by_shape(pl, &(struct shape){ table_view_cuts(v), &v->coding, v->fps, v->remote });
	else
		r = read_without_table(pl);
	if (r >= 0)
		plan_deliver(pl);
	pack_buffer_put_read(&p->buffers, pl->stored);
	if (r >= 0 && (pl->held.whole | pl->held.left) != 0)
		pack_buffer_put_held(&p->buffers, pl->buffer, &pl->held);
	else if (pl->compressed > 0)
		pack_buffer_put_read(&p->buffers, pl->buffer);
	else
		pack_buffer_put(&p->buffers, pl->buffer);
	pack_file_put(p->files, pl->file);
	return MIN(r, 0);
}

/* > 0: the frame is compressed, with so many plain bytes; 0: it is uncompressed; <0. */
static int read_frame(struct packs *p, const struct want *wants, size_t nr, bool as_is)
{
	struct plan pl = { .packs = p,
			   .wants = wants,
			   .nr_wants = nr,
			   .as_is = as_is,
			   .held = { .pack = wants->pack, .frame = wants->frame } };
	struct table_view v;
	int r;

	for (size_t i = 0; i < nr; i++)
		pl.end = MAX(pl.end, wants[i].in + wants[i].len);
	pack_ahead_claim(&p->ahead, &(struct pack_stretch){ wants->pack, pack_stretch_at(wants->frame, wants->in),
							    pack_stretch_at(wants->frame, pl.end) });
	if (!pack_tables_get(p->tables, wants->pack, wants->frame, wants->in, pl.end - wants->in, &v)) {
		r = read_from_disk(&pl, NULL);
		return r < 0 ? r : (int)pl.compressed;
	}
	if (v.error < 0)
		return v.error;
	if (v.frame)
		r = read_from_memory(&pl, &v);
	else
		r = read_from_disk(&pl, &v);
	pack_tables_put(p->tables, &v);
	return r < 0 ? r : (int)pl.compressed;
}

static int want_of(const struct pack_piece *piece, struct want *ret)
{
	struct addr a = piece->addr;
	uint32_t frame, in;

	if (a.node != 0 || !pack_place_of(a.off, &frame, &in) || piece->len == 0 || piece->len > PACK_FRAME_BYTES - in)
		return log_errno(-EINVAL, "pack %" PRIu32 " offset %" PRIu32 ": no range of %" PRIu32 " bytes", a.pack,
				 a.off, piece->len);
	*ret = (struct want){ a.pack, frame, in, piece->len, piece->buf };
	return 0;
}

static int compare_wants(const void *a, const void *b)
{
	const struct want *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	if (x->frame != y->frame)
		return x->frame < y->frame ? -1 : 1;
	return x->in < y->in ? -1 : x->in > y->in;
}

/* Extend trail `t` of the reader by wants of a compressed frame of plain_len bytes. */
static void extend_trail(struct packs *p, const struct want *first, const struct want *last, uint32_t plain_len,
			 struct pack_trail *t)
{
	uint32_t end = last->in + last->len;
	struct pack_stretch s = { first->pack, pack_stretch_at(first->frame, first->in),
				  pack_stretch_at(last->frame, end) };

	if (pack_trail_goes_on(t, &s)) {
		t->last.to = s.to;
	} else {
		pack_ahead_read(&p->ahead, t);
		t->last = s;
	}
	/* a file need not end at the end of a chunk */
	t->next = round_up(end, PACK_BLOCK) < plain_len ? s.to : pack_stretch_at(last->frame + 1, 0);
}

/* All wants of a frame, and the result of read_frame(). */
struct frame_read {
	const struct want *wants;
	size_t nr;
	int r;
};

/* Frames that several threads read in parallel. */
struct frames_read {
	struct packs *packs;
	struct frame_read frames[FRAMES_AT_ONCE];
	unsigned nr;
	bool as_is;
	_Atomic unsigned next; /* first frame not taken by a thread */
};

static void read_some(void *userdata)
{
	struct frames_read *fr = userdata;
	unsigned i;

	while ((i = atomic_fetch_add(&fr->next, 1)) < fr->nr)
		fr->frames[i].r = read_frame(fr->packs, fr->frames[i].wants, fr->frames[i].nr, fr->as_is);
}

/* Take frames until there are no more or `fr` is full. Returns the first want that is not taken. */
static const struct want *take_frames(struct frames_read *fr, const struct want *w, const struct want *end)
{
	while (w < end && fr->nr < FRAMES_AT_ONCE) {
		struct frame_read *f = &fr->frames[fr->nr++];

		for (*f = (struct frame_read){ .wants = w }; w < end; w++, f->nr++)
			if (w->pack != f->wants->pack || w->frame != f->wants->frame)
				break;
	}
	return w;
}

static bool is_of_several_frames(const struct want *sorted, size_t nr)
{
	return sorted[0].pack != sorted[nr - 1].pack || sorted[0].frame != sorted[nr - 1].frame;
}

static int read_wants(struct packs *p, struct want *wants, size_t nr, bool as_is, struct pack_trail *trail)
{
	const struct want *next = wants;

	qsort(wants, nr, sizeof(*wants), compare_wants);
	if (nr > 1 && !as_is && is_of_several_frames(wants, nr))
		nr = packs_gather(p, wants, nr);
	while (next < wants + nr) {
		struct frames_read fr = { .packs = p, .as_is = as_is };
		bool are_coded = atomic_load_explicit(&p->likely_stored, memory_order_relaxed) != 0; /* probably */

		next = take_frames(&fr, next, wants + nr);
		pack_crew_run(&p->crew, are_coded ? fr.nr - 1 : 0, read_some, &fr);
		for (unsigned i = 0; i < fr.nr; i++) {
			const struct frame_read *f = &fr.frames[i];

			if (f->r < 0)
				return f->r;
			if (f->r > 0 && trail)
				extend_trail(p, f->wants, f->wants + f->nr - 1, (uint32_t)f->r, trail);
		}
	}
	return 0;
}

static int read_pieces(struct packs *p, const struct pack_piece *pieces, size_t nr, bool as_is, struct pack_trail *trail)
{
	_cleanup_(freep) struct want *many = NULL;
	struct want few[NR_WANTS_ON_STACK], *wants = few;
	int r;

	if (nr > ARRAY_SIZE(few)) {
		wants = many = calloc(nr, sizeof(*many));
		if (!many)
			return -ENOMEM;
	}
	for (size_t i = 0; i < nr; i++) {
		r = want_of(&pieces[i], &wants[i]);
		if (r < 0)
			return r;
	}
	return read_wants(p, wants, nr, as_is, trail);
}

int packs_read_pieces(struct packs *p, const struct pack_piece *pieces, size_t nr)
{
	return read_pieces(p, pieces, nr, false, NULL);
}

int packs_read_as_is(struct packs *p, const struct pack_piece *pieces, size_t nr)
{
	return read_pieces(p, pieces, nr, true, NULL);
}

int packs_read_of_file(struct packs *p, const struct pack_piece *pieces, size_t nr, bool is_end)
{
	struct pack_trail trail = { .nr_files = is_end };
	int r;

	p->ahead.nr_readers++;
	r = read_pieces(p, pieces, nr, false, &trail);
	pack_ahead_read(&p->ahead, &trail);
	p->ahead.nr_readers--;
	return r;
}

int packs_read(struct packs *p, struct addr a, uint32_t len, void *buf)
{
	struct pack_piece piece = { a, len, buf };

	return packs_read_pieces(p, &piece, 1);
}
