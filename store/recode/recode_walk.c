/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/recode/recode.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/util.h"
#include "index/recipes.h"
#include "store/engine_state.h"
#include "store/file/extents/layer_stack.h"

#define PIECE MiB(1) /* of a part that is walked at a time, if parts do not alternate */

void compact_walk_forget(struct compact_walk *w)
{
	for (size_t i = 0; w->part && i < w->merge.nr; i++) {
		free(TAKE(w->part[i].x));
		w->part[i].segment = 0;
	}
}

void compact_walk_release(struct compact_walk *w)
{
	compact_walk_forget(w);
	free(w->part);
	free(w->merge_part);
	*w = (struct compact_walk){ 0 };
}

static size_t count_parts(const struct compact_variable *v)
{
	size_t nr = 0;

	for (size_t i = 0; i < v->nr_extents; i++)
		nr += i == 0 || v->extent[i].file != v->extent[i - 1].file;
	return nr;
}

/* Size of the part that begins with extent *i; advances *i to the next part. */
static uint64_t part_len(const struct compact_variable *v, size_t *i)
{
	uint32_t file = v->extent[*i].file;
	uint64_t len = 0;

	for (; *i < v->nr_extents && v->extent[*i].file == file; (*i)++)
		len += v->extent[*i].len;
	return len;
}

static bool have_parts(const struct compact_variable *a, uint64_t times, const struct compact_variable *b)
{
	size_t i = 0, k = 0;

	while (i < a->nr_extents && k < b->nr_extents)
		if (times * part_len(a, &i) != part_len(b, &k))
			return false;
	return i == a->nr_extents && k == b->nr_extents;
}

bool compact_same_parts(const struct compact_variable *a, const struct compact_variable *b)
{
	return have_parts(a, 1, b);
}

bool compact_half_parts(const struct compact_variable *half, const struct compact_variable *whole)
{
	return have_parts(half, 2, whole);
}

#define HOLES_MAX 1024u /* claimed bytes of a file per byte of data in it, beyond the first GiB */

/* Lengths are claims of the caller and cost time to walk: a file with almost no data in it is left out. */
static int drop_empty_parts(struct compact_walk *w)
{
	struct ns_content c;
	int r = 0;

	for (size_t i = 0; i < w->merge.nr && r == 0; i++) {
		struct merge_part *p = &w->merge_part[i];

		if (p->len <= GiB(1))
			continue;
		r = content_peek(w->e, w->part[i].ino, &c);
		if (r == 0 && (p->len - GiB(1)) / HOLES_MAX > c.mapped) {
			w->bytes -= p->len;
			p->len = 0;
		}
	}
	return r;
}

int compact_walk_init(struct compact_walk *w, struct engine *e, const struct compact_variable *v, const uint64_t *inos,
		      uint64_t block)
{
	size_t nr = count_parts(v);
	struct compact_part *p;

	*w = (struct compact_walk){ .e = e };
	w->part = p = calloc(MAX(nr, (size_t)1), sizeof(*w->part));
	w->merge_part = calloc(MAX(nr, (size_t)1), sizeof(*w->merge_part));
	if (!w->part || !w->merge_part) {
		compact_walk_release(w);
		return -ENOMEM;
	}
	w->merge = (struct merge){ .part = w->merge_part, .nr = nr, .block = block };
	for (size_t i = 0; i < v->nr_extents; i++) {
		const struct compact_extent *x = &v->extent[i];

		if (i > 0 && x->file != x[-1].file)
			p++;
		if (p->nr_extents == 0) {
			p->ino = inos[x->file];
			p->extent = x;
		}
		p->nr_extents++;
		w->merge_part[p - w->part].len += x->len;
		w->bytes += x->len;
	}
	return drop_empty_parts(w);
}

/* The next range of a file, up to the end of the piece or of an extent. 1/0 */
static int next_piece(struct compact_walk *w)
{
	struct compact_part *p;
	uint64_t off, len;
	size_t part;

	if (w->left == w->left_end) {
		if (merge_next(&w->merge, PIECE, &part, &off, &len) == 0)
			return 0;
		w->in = &w->part[part];
		w->left = off;
		w->left_end = off + len;
	}
	p = w->in;
	if (w->left < p->begin) /* folded */
		p->begin = p->at = 0;
	while (w->left >= p->begin + p->extent[p->at].len)
		p->begin += p->extent[p->at++].len;
	len = MIN(w->left_end, p->begin + p->extent[p->at].len) - w->left;
	w->origin = p->extent[p->at].off;
	w->begin = w->off = w->origin + (w->left - p->begin);
	w->end = w->off + len;
	w->left += len;
	w->at = w->next_at;
	w->next_at += len;
	return 1;
}

/* Loads the extents of a segment from the view. */
static int load_segment(struct compact_walk *w, struct compact_part *p, uint64_t segment)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r;

	if (p->segment == segment + 1)
		return 0;
	free(TAKE(p->x));
	p->nr_x = 0;
	p->segment = 0;
	r = recipe_get(w->e->db, p->ino, segment, &value);
	if (r > 0)
		r = recipe_read(w->e->db, NULL, value.data, value.len, &p->x, &p->nr_x);
	if (r < 0)
		return r;
	p->segment = segment + 1;
	return 0;
}

/* The extent at this offset of the segment, or the first one after it; NULL: none. */
static const struct extent *extent_from(const struct compact_part *p, uint32_t in)
{
	size_t low = 0, high = p->nr_x;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (p->x[middle].off + p->x[middle].len <= in)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->nr_x ? &p->x[low] : NULL;
}

/* Finds the chunk of this extent at w->off, and advances w->off past the part of it that the extent shows. 1: the chunk
 * belongs to the piece. */
static int chunk_of_extent(struct compact_walk *w, const struct extent *x, uint64_t extent_off, struct compact_chunk *ret)
{
	struct pack_chunk_info *info = &ret->info;
	struct addr a = x->addr;
	uint64_t in_extent = w->off - extent_off, in_chunk, chunk_off, start, end, middle;
	int r;

	a.off += (uint32_t)in_extent;
	r = a.node == 0 ? packs_chunk_info(w->e->packs, a, info) : 0;
	if (r <= 0) { /* another node's, or damaged */
		w->off = extent_off + x->len;
		return r == -EBADMSG ? 0 : r;
	}
	in_chunk = a.off - info->start.off;
	/* may be before offset 0 if the file does not show the start of the chunk: it wraps, as phases do */
	chunk_off = w->off - in_chunk;
	start = in_chunk > in_extent ? extent_off : chunk_off;
	end = MIN(chunk_off + info->len, extent_off + x->len);
	middle = start + (end - start) / 2;
	ret->phase = (uint32_t)(w->origin - chunk_off) % 8;
	ret->at = (int64_t)(w->at + (chunk_off - w->begin));
	w->off = end;
	return !fp_is_none(info->fp) && !info->is_remote && middle >= w->begin && middle < w->end;
}

int compact_walk_next(struct compact_walk *w, struct compact_chunk *ret)
{
	for (;;) {
		uint64_t segment = w->off / SEGMENT_SIZE, base = segment * SEGMENT_SIZE;
		const struct extent *x;
		int r;

		if (w->off >= w->end) {
			if (next_piece(w) == 0)
				return 0;
			continue;
		}
		r = load_segment(w, w->in, segment);
		if (r < 0)
			return r;
		x = extent_from(w->in, (uint32_t)(w->off - base));
		if (!x) { /* a hole up to the end of the segment */
			r = recipe_next(w->e->db, w->in->ino, segment + 1, &segment);
			if (r < 0)
				return r;
			w->off = r > 0 && segment <= w->end / SEGMENT_SIZE ? segment * SEGMENT_SIZE : w->end;
			continue;
		}
		w->off = MAX(w->off, base + x->off);
		if (w->off >= w->end)
			continue;
		r = chunk_of_extent(w, x, base + x->off, ret);
		if (r != 0)
			return r;
	}
}
