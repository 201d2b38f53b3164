/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/reading/pack_gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

#define CHUNKS_MAX PACK_FRAME_BLOCKS /* per round: a request of the kernel has up to one MiB */
#define FRAMES_MAX 64u
#define IOV_NR (2 * CHUNKS_MAX + FRAMES_MAX) /* each chunk and the gap before it, each table */
#define IDLE_MAX 64u /* not freed: destroying a queue takes tens of ms. There is at most one per reading thread */
/* Gaps up to this size are read and discarded. Less than PACK_SKIP_BYTES: another parallel read costs the disk 7 to 25 us,
 * the time of 8 to 30 KiB, but no latency. */
#define SKIP_BYTES (8u << 10)

struct chunk {
	uint8_t *to;
	uint32_t number; /* in its frame */
	struct fp fp; /* if the table was in memory */
};

struct frame {
	struct want *wants;
	size_t nr_wants;
	struct pack_file *file; /* referenced; NULL: not gathered */
	struct pack_table_disk *table; /* read with the chunks; NULL: it was in memory */
	uint32_t chunk_len, end; /* of the requested bytes */
	unsigned first_chunk, nr_chunks, first_read, nr_reads;
};

/* The memory of one round: 50 KiB, and 4 KiB for each table that is read. */
struct pack_gather {
	struct pack_gather *next_idle;
	struct io_queue *queue;
	struct pack_table_disk *tables; /* of FRAMES_MAX */
	unsigned nr_frames, nr_chunks, nr_reads, nr_iov;
	struct frame frame[FRAMES_MAX];
	struct chunk chunk[CHUNKS_MAX];
	struct io_read read[CHUNKS_MAX + FRAMES_MAX];
	uint64_t read_end[CHUNKS_MAX + FRAMES_MAX];
	struct iovec iov[IOV_NR];
	uint8_t *skip; /* SKIP_BYTES */
};

static void gather_free(struct pack_gather *g)
{
	if (!g)
		return;
	io_queue_free(g->queue);
	free(g->tables);
	free(g);
}

static int gather_new(struct pack_gather **ret)
{
	struct pack_gather *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->tables = aligned_alloc(PACK_BLOCK, (size_t)FRAMES_MAX * PACK_BLOCK + SKIP_BYTES);
	r = g->tables ? io_queue_new(&g->queue) : -ENOMEM;
	if (r < 0) {
		gather_free(g);
		return r;
	}
	g->skip = (uint8_t *)(g->tables + FRAMES_MAX);
	*ret = g;
	return 0;
}

void pack_gathers_init(struct pack_gathers *gs)
{
	*gs = (struct pack_gathers){ 0 };
	mutex_init(&gs->lock);
}

void pack_gathers_release(struct pack_gathers *gs)
{
	struct pack_gather *g;

	while ((g = gs->idle)) {
		gs->idle = g->next_idle;
		gather_free(g);
	}
	mutex_release(&gs->lock);
}

static struct pack_gather *gather_get(struct pack_gathers *gs)
{
	struct pack_gather *g;
	int r;

	mutex_lock(&gs->lock);
	g = gs->idle;
	if (g) {
		gs->idle = g->next_idle;
		gs->nr_idle--;
	}
	mutex_unlock(&gs->lock);
	if (g)
		return g;
	r = gather_new(&g);
	if (r == 0)
		return g;
	if (!atomic_exchange(&gs->refused, true))
		log_warning("packs: reads of scattered data are slower: cannot create a queue: %s%s", strerror(-r),
			    r == -EAGAIN ? "; increase sysctl fs.aio-max-nr" : "");
	return NULL;
}

static void gather_put(struct pack_gathers *gs, struct pack_gather *g)
{
	mutex_lock(&gs->lock);
	if (gs->nr_idle < IDLE_MAX) {
		g->next_idle = gs->idle;
		gs->idle = TAKE(g);
		gs->nr_idle++;
	}
	mutex_unlock(&gs->lock);
	gather_free(g);
}

/* --- planning --- */

/* Adds the chunks of `f`, sorted by offset. -EAGAIN: a chunk is requested twice, or in part, or into unaligned memory. */
static int add_chunks(struct pack_gather *g, struct frame *f)
{
	f->first_chunk = g->nr_chunks;
	for (const struct want *w = f->wants; w < f->wants + f->nr_wants; w++) {
		if (w->in % f->chunk_len || w->len % f->chunk_len || (uintptr_t)w->buf % PACK_BLOCK)
			return -EAGAIN;
		for (uint32_t at = 0; at < w->len; at += f->chunk_len) {
			uint32_t number = (w->in + at) / f->chunk_len;

			if (f->nr_chunks > 0 && number <= g->chunk[g->nr_chunks - 1].number)
				return -EAGAIN;
			g->chunk[g->nr_chunks++] = (struct chunk){ .to = w->buf + at, .number = number };
			f->nr_chunks++;
		}
	}
	return 0;
}

static void add_bytes(struct pack_gather *g, struct io_read *read, void *p, uint64_t len)
{
	struct iovec *last = read->iovcnt > 0 ? &g->iov[g->nr_iov - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p) {
		last->iov_len += len;
		return;
	}
	g->iov[g->nr_iov++] = (struct iovec){ p, len };
	read->iovcnt++;
}

/* Adds `len` bytes at `off` of the file to the last read of this frame, if they are near, or to a new read. */
static void add_range(struct pack_gather *g, struct frame *f, void *p, uint64_t off, uint32_t len)
{
	unsigned last = g->nr_reads - 1;

	if (f->nr_reads > 0 && off - g->read_end[last] <= SKIP_BYTES) {
		if (off > g->read_end[last])
			add_bytes(g, &g->read[last], g->skip, off - g->read_end[last]);
	} else {
		last = g->nr_reads++;
		f->nr_reads++;
		g->read[last] = (struct io_read){ .fd = f->file->fd, .iov = &g->iov[g->nr_iov], .off = off };
	}
	add_bytes(g, &g->read[last], p, len);
	g->read_end[last] = off + len;
}

static void add_reads(struct pack_gather *g, struct frame *f)
{
	f->first_read = g->nr_reads;
	if (f->table)
		add_range(g, f, f->table, pack_table_off(f->wants->frame), PACK_BLOCK);
	for (unsigned i = f->first_chunk; i < f->first_chunk + f->nr_chunks; i++)
		add_range(g, f, g->chunk[i].to,
			  pack_data_off(f->wants->frame) + (uint64_t)g->chunk[i].number * f->chunk_len, f->chunk_len);
}

/* Plans with a table in memory. -EAGAIN: the frame is compressed, varied, remote or unreadable. */
static int plan_by_table(struct pack_gather *g, struct frame *f, const struct table_view *v)
{
	int r;

	if (v->error < 0 || v->frame || v->chunk_len == PACK_VARIED || v->coding.codec != PACK_CODEC_NONE ||
	    pack_any_remote(v->remote) || f->end > v->nr_chunks * v->chunk_len)
		return -EAGAIN;
	f->chunk_len = v->chunk_len;
	r = add_chunks(g, f);
	for (unsigned i = f->first_chunk; r == 0 && i < f->first_chunk + f->nr_chunks; i++)
		g->chunk[i].fp = v->fps[g->chunk[i].number];
	return r;
}

/* Plans without a table in memory: assumes that it is like the last one decoded, and reads it with the chunks. */
static int plan_by_guess(struct packs *p, struct pack_gather *g, struct frame *f)
{
	uint32_t pack = f->wants->pack, frame = f->wants->frame;

	f->chunk_len = atomic_load_explicit(&p->likely_chunk_len, memory_order_relaxed);
	if (f->chunk_len == PACK_VARIED || atomic_load_explicit(&p->likely_stored, memory_order_relaxed) != 0 ||
	    atomic_load_explicit(&p->likely_remote, memory_order_relaxed) || frame >= packs_nr_frames(p, pack) ||
	    pack_places_has(&p->damaged, pack, pack_table_off(frame)))
		return -EAGAIN;
	f->table = g->tables + (f - g->frame);
	return add_chunks(g, f);
}

static void plan_frame(struct packs *p, struct pack_gather *g, struct frame *f)
{
	struct want *w = f->wants;
	struct table_view v;
	int r;

	for (size_t i = 0; i < f->nr_wants; i++)
		f->end = MAX(f->end, w[i].in + w[i].len);
	if (pack_tables_get(p->tables, w->pack, w->frame, w->in, f->end - w->in, &v)) {
		r = plan_by_table(g, f, &v);
		pack_tables_put(p->tables, &v);
	} else {
		r = plan_by_guess(p, g, f);
	}
	if (r == 0 && packs_file_get(p, w->pack, &f->file) > 0)
		add_reads(g, f);
	else
		g->nr_chunks = f->first_chunk;
}

/* --- one round --- */

/* Plans frames from `w` on while there is room. Returns the first want that is not part of the round. */
static struct want *plan_round(struct packs *p, struct pack_gather *g, struct want *w, const struct want *end)
{
	g->nr_frames = g->nr_chunks = g->nr_reads = g->nr_iov = 0;
	while (w < end && g->nr_frames < FRAMES_MAX) {
		struct frame *f = &g->frame[g->nr_frames];
		uint64_t bytes = 0;

		*f = (struct frame){ .wants = w, .first_chunk = g->nr_chunks };
		for (; w < end && w->pack == f->wants->pack && w->frame == f->wants->frame; w++, f->nr_wants++)
			bytes += w->len;
		if (g->nr_chunks + bytes / PACK_BLOCK > CHUNKS_MAX && g->nr_frames > 0)
			return f->wants;
		g->nr_frames++;
		if (bytes / PACK_BLOCK <= CHUNKS_MAX)
			plan_frame(p, g, f);
	}
	return w;
}

static bool is_read(const struct pack_gather *g, const struct frame *f)
{
	for (unsigned i = f->first_read; i < f->first_read + f->nr_reads; i++)
		if (g->read[i].result < 0 || (uint64_t)g->read[i].result < g->read_end[i] - g->read[i].off)
			return false;
	return true;
}

/* Caches the table that was read with the chunks. true: it matches the guess. */
static bool use_table(struct packs *p, struct pack_gather *g, const struct frame *f)
{
	uint32_t pack = f->wants->pack, frame = f->wants->frame;
	struct pack_table t;

	if (packs_check_table(p, pack, frame, f->table, PACK_BLOCK, &t) <= 0)
		return false;
	pack_tables_insert(p->tables, pack, frame, &t);
	if (t.chunk_len != f->chunk_len || f->end > t.nr_chunks * t.chunk_len || t.coding.codec != PACK_CODEC_NONE ||
	    pack_any_remote(t.remote))
		return false;
	for (unsigned i = f->first_chunk; i < f->first_chunk + f->nr_chunks; i++)
		g->chunk[i].fp = t.fps[g->chunk[i].number];
	return true;
}

static bool is_intact(const struct packs *p, const struct pack_gather *g, const struct frame *f)
{
	for (unsigned i = f->first_chunk; i < f->first_chunk + f->nr_chunks; i++)
		if (!fp_is_of(p->conf.key, g->chunk[i].fp, g->chunk[i].to, f->chunk_len))
			return false;
	return true;
}

static void run_reads(struct packs *p, struct pack_gather *g)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < g->nr_reads; i++)
		bytes += g->read_end[i] - g->read[i].off;
	if (bytes == 0)
		return;
	io_rate_wait(p->conf.read_rate, bytes);
	io_queue_read(g->queue, g->read, g->nr_reads);
	for (unsigned i = 0; i < g->nr_reads; i++)
		p->read_bytes += (uint64_t)MAX(g->read[i].result, (ssize_t)0);
}

/* Moves the wants that were not read to `to`. Returns the end of the moved ones. */
static struct want *end_round(struct packs *p, struct pack_gather *g, struct want *to)
{
	for (struct frame *f = g->frame; f < g->frame + g->nr_frames; f++) {
		bool done = f->file && is_read(g, f) && (!f->table || use_table(p, g, f)) && is_intact(p, g, f);

		if (f->file)
			pack_file_put(p->files, f->file);
		if (!done) {
			memmove(to, f->wants, f->nr_wants * sizeof(*to));
			to += f->nr_wants;
		}
	}
	return to;
}

size_t packs_gather(struct packs *p, struct want *wants, size_t nr)
{
	struct pack_gather *g = gather_get(&p->gathers);
	struct want *next = wants, *left = wants;

	if (!g)
		return nr;
	while (next < wants + nr) {
		next = plan_round(p, g, next, wants + nr);
		run_reads(p, g);
		left = end_round(p, g, left);
	}
	gather_put(&p->gathers, g);
	return (size_t)(left - wants);
}
