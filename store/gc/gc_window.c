/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/gc/gc_window.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define EDGES_MAX (32u * 1024) /* frames, 1 KiB each */

int gc_window_new(struct gc_pack *packs, size_t nr_packs, struct gc_window **ret)
{
	struct gc_window *w = calloc(1, sizeof(*w));

	if (!w) {
		free(packs);
		return -ENOMEM;
	}
	w->packs = packs;
	w->nr_packs = nr_packs;
	for (size_t i = 0; i < nr_packs; i++) {
		packs[i].first = w->nr_frames;
		w->nr_frames += packs[i].nr_frames;
	}
	w->live = calloc(w->nr_frames + 1, PACK_GONE_WORDS * sizeof(*w->live));
	w->gc_pending = calloc(w->nr_frames + 1, PACK_GONE_WORDS * sizeof(*w->gc_pending));
	w->refused = calloc(w->nr_frames + 1, sizeof(*w->refused));
	w->edges = calloc(w->nr_frames + 1, sizeof(struct gc_edges *));
	if (!w->live || !w->gc_pending || !w->refused || !w->edges) {
		gc_window_free(w);
		return -ENOMEM;
	}
	*ret = w;
	return 0;
}

void gc_window_free(struct gc_window *w)
{
	if (!w)
		return;
	for (size_t i = 0; w->edges && i < w->nr_frames; i++)
		free(w->edges[i]);
	free(w->edges);
	free(w->packs);
	free((void *)w->live);
	free((void *)w->gc_pending);
	free((void *)w->refused);
	free(w);
}

static const struct gc_pack *find_pack(const struct gc_window *w, uint32_t pack)
{
	size_t low = 0, high = w->nr_packs;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (w->packs[middle].pack < pack)
			low = middle + 1;
		else
			high = middle;
	}
	return low < w->nr_packs && w->packs[low].pack == pack ? &w->packs[low] : NULL;
}

/* The number of the frame in the window, and the block in it; false: the address is outside the window. */
static bool place_in_window(const struct gc_window *w, struct addr a, size_t *ret_frame, uint32_t *ret_block)
{
	uint32_t block = a.off / PACK_BLOCK, frame, in;
	const struct gc_pack *p;

	if (a.node != 0 || block == 0)
		return false;
	p = find_pack(w, a.pack);
	frame = (block - 1) / PACK_FRAME_STRIDE;
	in = (block - 1) % PACK_FRAME_STRIDE;
	if (!p || frame >= p->nr_frames || in == 0)
		return false;
	*ret_frame = p->first + frame;
	*ret_block = in - 1;
	return true;
}

static uint64_t bits_between(uint32_t from, uint32_t end)
{
	uint64_t upto = end == 64 ? UINT64_MAX : (UINT64_C(1) << end) - 1;

	return upto & ~((UINT64_C(1) << from) - 1);
}

static void set_range(_Atomic uint64_t *words, uint32_t from, uint32_t end)
{
	while (from < end) {
		uint32_t stop = MIN(end, (from / 64 + 1) * 64);

		atomic_fetch_or(&words[from / 64], bits_between(from % 64, (stop - 1) % 64 + 1));
		from = stop;
	}
}

void gc_window_mark(struct gc_window *w, const struct extent *x, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		uint32_t end = (x[i].addr.off % PACK_BLOCK + x[i].len + PACK_BLOCK - 1) / PACK_BLOCK;
		uint32_t block;
		size_t frame;

		if (place_in_window(w, x[i].addr, &frame, &block))
			set_range(w->live + frame * PACK_GONE_WORDS, block, MIN(block + end, PACK_FRAME_BLOCKS));
	}
}

/* NULL: too many frames have one already. */
static struct gc_edges *edges_of(struct gc_window *w, size_t frame)
{
	if (!w->edges[frame] && w->nr_edges < EDGES_MAX) {
		w->edges[frame] = calloc(1, sizeof(struct gc_edges));
		w->nr_edges += w->edges[frame] != NULL;
	}
	return w->edges[frame];
}

/* Marks bytes [from, to) of the frame's data. */
static void mark_bytes(struct gc_window *w, size_t frame, uint32_t from, uint32_t to)
{
	uint32_t first = from / PACK_BLOCK, end = (to + PACK_BLOCK - 1) / PACK_BLOCK, tail = from % PACK_BLOCK,
		 head = to % PACK_BLOCK;
	bool is_inside = tail && head && first + 1 == end; /* touches neither start nor end of its block */
	struct gc_edges *edges = (tail || head) && !is_inside ? edges_of(w, frame) : NULL;

	if (edges && tail) {
		edges->tail[first] = MAX(edges->tail[first], (uint16_t)(PACK_BLOCK - tail));
		first++;
	}
	if (edges && head) {
		end--;
		edges->head[end] = MAX(edges->head[end], (uint16_t)head);
	}
	set_range(w->live + frame * PACK_GONE_WORDS, first, end);
}

void gc_window_mark_bytes(struct gc_window *w, const struct extent *x, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		uint32_t block, from;
		size_t frame;

		if (x[i].len == 0 || !place_in_window(w, x[i].addr, &frame, &block))
			continue;
		from = block * PACK_BLOCK + x[i].addr.off % PACK_BLOCK;
		mark_bytes(w, frame, from, MIN(from + x[i].len, PACK_FRAME_BYTES));
	}
}

bool gc_window_is_pending(const struct gc_window *w, struct addr a)
{
	uint32_t block;
	size_t frame;

	return place_in_window(w, a, &frame, &block) &&
	       atomic_load(&w->gc_pending[frame * PACK_GONE_WORDS + block / 64]) >> block % 64 & 1;
}

bool gc_window_refuses(struct gc_window *w, struct addr a)
{
	uint32_t block;
	size_t frame;

	if (!gc_window_is_pending(w, a) || !place_in_window(w, a, &frame, &block))
		return false;
	atomic_store(&w->refused[frame], true);
	return true;
}

void gc_window_set_pending(struct gc_window *w, size_t frame, const struct gc_bits *blocks)
{
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		atomic_store(&w->gc_pending[frame * PACK_GONE_WORDS + i], blocks->w[i]);
}

static struct gc_bits whole_blocks(const struct gc_window *w, size_t frame)
{
	struct gc_bits b;

	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		b.w[i] = atomic_load(&w->live[frame * PACK_GONE_WORDS + i]);
	return b;
}

struct gc_bits gc_window_live(const struct gc_window *w, size_t frame)
{
	const struct gc_edges *edges = w->edges[frame];
	struct gc_bits b = whole_blocks(w, frame);

	for (uint32_t i = 0; edges && i < PACK_FRAME_BLOCKS; i++)
		if (edges->head[i] || edges->tail[i])
			gc_set_bit(&b, i);
	return b;
}

/* Is any of the bytes [from, to) of a block live? */
static bool is_live_in(const struct gc_bits *whole, const struct gc_edges *edges, uint32_t block, uint32_t from,
		       uint32_t to)
{
	if (gc_bit(whole, block))
		return true;
	return edges && (from < edges->head[block] || to > PACK_BLOCK - edges->tail[block]);
}

struct gc_bits gc_window_live_chunks(const struct gc_window *w, size_t frame, const uint32_t *ends, uint32_t nr_chunks)
{
	struct gc_bits whole = whole_blocks(w, frame), chunks = { 0 };

	for (uint32_t i = 0, start = 0; i < nr_chunks; start = ends[i++])
		for (uint32_t b = start / PACK_BLOCK; b * PACK_BLOCK < ends[i]; b++) {
			uint32_t base = b * PACK_BLOCK;

			if (is_live_in(&whole, w->edges[frame], b, MAX(start, base) - base,
				       MIN(ends[i], base + PACK_BLOCK) - base))
				gc_set_bit(&chunks, i);
		}
	return chunks;
}

struct gc_bits gc_blocks_of_chunks(const struct gc_bits *chunks, const uint32_t *ends, uint32_t nr_chunks)
{
	struct gc_bits blocks = { 0 };

	for (uint32_t i = 0, start = 0; i < nr_chunks; start = ends[i++])
		for (uint32_t b = start / PACK_BLOCK; gc_bit(chunks, i) && b * PACK_BLOCK < ends[i]; b++)
			gc_set_bit(&blocks, b);
	return blocks;
}

struct gc_bits gc_starts_of_chunks(const struct gc_bits *chunks, const uint32_t *ends, uint32_t nr_chunks)
{
	struct gc_bits blocks = { 0 };

	for (uint32_t i = 0, start = 0; i < nr_chunks; start = ends[i++])
		if (gc_bit(chunks, i))
			gc_set_bit(&blocks, start / PACK_BLOCK);
	return blocks;
}
