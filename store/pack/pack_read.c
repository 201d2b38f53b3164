/*
 * Reading chunks.
 *
 * All that a request wants from one frame becomes one plan: for each wanted chunk the memory it is read into, whole,
 * since only a whole chunk can be checked. That is the caller's own memory where it is aligned and covers the chunk,
 * else a buffer of ours from which the wanted part is copied when the chunk has proved intact. Chunks with small gaps
 * between them are one vectored read, the gaps going nowhere: scattered pages of an often changed file would otherwise
 * be a disk access each.
 *
 * A table that is not in memory is read with the data in the same request, by guessing that its chunks are as long as
 * those met last. A wrong guess, or any trouble, falls back to reading the table first.
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

/* A piece of a request, by its frame. */
struct want {
	uint32_t pack, frame;
	uint32_t in, len; /* bytes of the frame's data */
	uint8_t *buf;
};

struct plan {
	struct packs *packs;
	struct pack_file *file;
	struct pack_buffer *buffer;
	const struct want *wants; /* all of one frame, ordered by `in` */
	size_t nr_wants;
	uint32_t end; /* of what is wanted */

	uint32_t chunk_len;
	uint8_t *where[PACK_FRAME_BLOCKS]; /* by number of the chunk; NULL: not wanted */
};

static uint32_t first_chunk(const struct want *w, uint32_t chunk_len)
{
	return w->in / chunk_len;
}

static uint32_t last_chunk(const struct want *w, uint32_t chunk_len)
{
	return (w->in + w->len - 1) / chunk_len;
}

/* Where chunk i begins in the memory of w: outside of it if it is not wanted from its beginning. */
static uint8_t *chunk_in_want(const struct want *w, uint32_t i, uint32_t chunk_len)
{
	return w->buf + ((ptrdiff_t)i * chunk_len - (ptrdiff_t)w->in);
}

static bool reads_straight(const struct want *w, uint32_t i, uint32_t chunk_len)
{
	return i * chunk_len >= w->in && (i + 1) * chunk_len <= w->in + w->len &&
	       (uintptr_t)chunk_in_want(w, i, chunk_len) % PACK_BLOCK == 0;
}

static void plan_make(struct plan *pl, uint32_t chunk_len, bool straight)
{
	pl->chunk_len = chunk_len;
	memset(pl->where, 0, sizeof(pl->where));
	for (const struct want *w = pl->wants; straight && w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = first_chunk(w, chunk_len); i <= last_chunk(w, chunk_len); i++)
			if (reads_straight(w, i, chunk_len))
				pl->where[i] = chunk_in_want(w, i, chunk_len);
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		for (uint32_t i = first_chunk(w, chunk_len); i <= last_chunk(w, chunk_len); i++)
			if (!pl->where[i])
				pl->where[i] = pl->buffer->data + (size_t)i * chunk_len;
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
	if (n == -EINVAL) /* the file ends inside a block, and direct I/O cannot read on from there */
		return -EBADMSG;
	if (n < 0)
		return (int)n;
	pl->packs->read_bytes += (uint64_t)n;
	return (uint64_t)n < len ? -EBADMSG : 0;
}

/* Read what is planned, passing over gaps of up to skip_max. Does not log. */
static int plan_read(struct plan *pl, bool with_table, uint32_t skip_max)
{
	uint32_t frame = pl->wants->frame;
	struct request q;
	int r;

	q.n = 0;
	q.off = q.end = with_table ? pack_table_off(frame) : pack_data_off(frame);
	if (with_table)
		request_add(&q, &pl->buffer->table, PACK_BLOCK);
	for (uint32_t i = 0; i < PACK_FRAME_BYTES / pl->chunk_len; i++) {
		uint64_t off = pack_data_off(frame) + (uint64_t)i * pl->chunk_len;

		if (!pl->where[i])
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
		request_add(&q, pl->where[i], pl->chunk_len);
	}
	return request_run(pl, &q);
}

/* Compare every chunk of the plan with its fingerprint; what is damaged is told and remembered. */
static int plan_verify(struct plan *pl, const struct fp *fps)
{
	struct packs *p = pl->packs;
	int r = 0;

	for (uint32_t i = 0; i < PACK_FRAME_BYTES / pl->chunk_len; i++) {
		uint32_t off = pack_data_off(pl->wants->frame) + i * pl->chunk_len;

		if (!pl->where[i] || fp_equal(fp_of(p->conf.key, pl->where[i], pl->chunk_len), fps[i]))
			continue;
		r = -EBADMSG;
		if (pack_places_add(&p->damaged, pl->file->pack, off))
			log_error("pack %" PRIu32 " offset %" PRIu32 ": chunk %s is damaged", pl->file->pack, off,
				  fp_hex(fps[i]).s);
	}
	return r;
}

/* Copy to the caller what was not read straight to where it belongs. */
static void plan_deliver(const struct plan *pl)
{
	for (const struct want *w = pl->wants; w < pl->wants + pl->nr_wants; w++)
		for (uint32_t at = w->in, n; at < w->in + w->len; at += n) {
			uint32_t i = at / pl->chunk_len, in_chunk = at % pl->chunk_len;
			const uint8_t *from = pl->where[i] + in_chunk;
			uint8_t *to = w->buf + (at - w->in);

			n = MIN(pl->chunk_len - in_chunk, w->in + w->len - at);
			if (from != to)
				memcpy(to, from, n);
		}
}

/* 1: read and checked, together with the table; 0: nothing said, go the slow way; <0: damaged. */
static int read_by_guess(struct plan *pl)
{
	uint32_t guess = atomic_load_explicit(&pl->packs->likely_chunk_len, memory_order_relaxed);
	uint32_t frame = pl->wants->frame;
	struct pack_table table;
	int r;

	if (first_chunk(pl->wants, guess) * guess > PACK_SKIP_BYTES)
		return 0;
	if ((pl->end - 1) / guess >= PACK_FRAME_BYTES / guess)
		return 0;
	plan_make(pl, guess, true);
	if (plan_read(pl, true, PACK_SKIP_BYTES) < 0)
		return 0;
	if (packs_check_table(pl->packs, pl->file->pack, frame, &pl->buffer->table, PACK_BLOCK, &table) <= 0)
		return 0;
	pack_tables_insert(pl->packs->tables, pl->file->pack, frame, &table);
	if (table.chunk_len != guess || pl->end > table.nr_chunks * table.chunk_len)
		return 0;
	r = plan_verify(pl, table.fps);
	return r < 0 ? r : 1;
}

static int read_by_table(struct plan *pl, uint32_t chunk_len, uint32_t nr_chunks, const struct fp *fps)
{
	uint32_t pack = pl->file->pack, off = pack_data_off(pl->wants->frame);
	int r;

	if (pl->end > chunk_len * nr_chunks)
		return log_errno(-EBADMSG, "pack %" PRIu32 " offset %" PRIu32 ": no chunk there", pack,
				 off + pl->end - 1);
	plan_make(pl, chunk_len, true);
	r = plan_read(pl, false, PACK_SKIP_BYTES);
	if (r == -EIO) /* perhaps of a chunk that nobody asked for */
		r = plan_read(pl, false, 0);
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " offset %" PRIu32 ": cannot read", pack, off + pl->wants->in);
	return plan_verify(pl, fps);
}

static int read_without_table(struct plan *pl)
{
	uint32_t pack = pl->file->pack, frame = pl->wants->frame;
	struct pack_table table;
	int r;

	r = read_by_guess(pl);
	if (r != 0)
		return r;
	r = packs_load_table(pl->packs, pl->file, frame, &table);
	if (r < 0)
		return r;
	if (r == 0)
		return log_errno(-EBADMSG, "pack %" PRIu32 " frame %" PRIu32 ": nothing there", pack, frame);
	pack_tables_insert(pl->packs->tables, pack, frame, &table);
	return read_by_table(pl, table.chunk_len, table.nr_chunks, table.fps);
}

/* From a frame that is not written yet. */
static int read_from_memory(struct plan *pl, const struct table_view *v)
{
	const struct want *w = pl->wants;

	if (pl->end > v->chunk_len * v->nr_chunks)
		return log_errno(-EBADMSG, "pack %" PRIu32 " frame %" PRIu32 ": no such chunk yet", w->pack, w->frame);
	pl->chunk_len = v->chunk_len;
	for (uint32_t i = 0; i < v->nr_chunks; i++)
		pl->where[i] = (uint8_t *)pack_frame_chunk(v->frame, i);
	plan_deliver(pl);
	return 0;
}

/* `v`: the table is in memory; NULL: it is not. */
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
	pl->buffer = pack_buffer_get(&p->buffers);
	if (!pl->buffer)
		r = -ENOMEM;
	else if (v)
		r = read_by_table(pl, v->chunk_len, v->nr_chunks, v->fps);
	else
		r = read_without_table(pl);
	if (r >= 0)
		plan_deliver(pl);
	pack_buffer_put(&p->buffers, pl->buffer);
	pack_file_put(p->files, pl->file);
	return MIN(r, 0);
}

static int read_frame(struct packs *p, const struct want *wants, size_t nr)
{
	struct plan pl = { .packs = p, .wants = wants, .nr_wants = nr };
	struct table_view v;
	int r;

	for (size_t i = 0; i < nr; i++)
		pl.end = MAX(pl.end, wants[i].in + wants[i].len);
	if (!pack_tables_get(p->tables, wants->pack, wants->frame, wants->in, pl.end - wants->in, &v))
		return read_from_disk(&pl, NULL);
	if (v.error < 0)
		return v.error;
	if (v.frame)
		r = read_from_memory(&pl, &v);
	else
		r = read_from_disk(&pl, &v);
	pack_tables_put(p->tables, &v);
	return r;
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

static int read_wants(struct packs *p, struct want *wants, size_t nr)
{
	size_t end;
	int r;

	qsort(wants, nr, sizeof(*wants), compare_wants);
	for (size_t begin = 0; begin < nr; begin = end) {
		for (end = begin + 1; end < nr; end++)
			if (wants[end].pack != wants[begin].pack || wants[end].frame != wants[begin].frame)
				break;
		r = read_frame(p, wants + begin, end - begin);
		if (r < 0)
			return r;
	}
	return 0;
}

int packs_read_pieces(struct packs *p, const struct pack_piece *pieces, size_t nr)
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
	return read_wants(p, wants, nr);
}

int packs_read(struct packs *p, struct addr a, uint32_t len, void *buf)
{
	struct pack_piece piece = { a, len, buf };

	return packs_read_pieces(p, &piece, 1);
}
