/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sharing many small ranges at once, as a delta does with some hundred ranges per MiB. All ranges of one segment become
 * a single log record and a single change of the segment, and the records of many segments enter the log together.
 *
 * The extents of the ranges are collected from their sources first. Then, under the file's lock, the records are
 * logged; they leave the bytes between the extents unchanged. From the first step to the last, nothing that was found
 * may be freed (e->users).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/domains.h"
#include "store/file/content_state.h"
#include "store/file/file_table.h"
#include "store/file/pending_changes.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

/* Cached extents of a part of one source, because consecutive ranges are often adjacent there. */
struct stretch {
	struct content *from;
	uint64_t off, len;
	struct extent_list l; /* relative to off */
	size_t at; /* the first extent that may matter for the next range */
};

/* Loads somewhat more than needed, and a whole segment's length if accesses are sequential. */
static int stretch_load(struct stretch *s, const struct content_patch *p)
{
	bool goes_on = s->from == p->from && p->from_off >= s->off && p->from_off - s->off <= s->len;
	int r;

	s->from = p->from;
	s->off = p->from_off;
	s->len = MAX(p->len, goes_on ? (uint64_t)SEGMENT_SIZE : KiB(64));
	s->l.nr = 0;
	s->at = 0;
	content_lock_quiet(p->from);
	r = content_extents(p->from, s->off, s->len, &s->l);
	content_unlock_quiet(p->from);
	if (r < 0)
		s->from = NULL;
	return r;
}

/* Ranges of one segment, and their extents. */
struct part {
	uint64_t off, len; /* from the first to the last range */
	uint64_t asked, got; /* bytes of the ranges, and bytes of these in extents */
	size_t first, nr; /* index and number in the batch; offsets relative to off */
};

#define PATCHES_MAX 512u /* records logged at once */
struct batch {
	struct part parts[PATCHES_MAX];
	size_t nr;
	struct extent_list x; /* of all parts, concatenated */
	struct replace replaces[PATCHES_MAX];
};

/* Add `len` bytes of x, starting at `skip`, at `off` of the part. Each field is stored directly, once: building an
 * address and copying it as a whole costs more than all the rest. */
static int add_extent(struct batch *b, struct part *p, const struct extent *x, uint32_t skip, uint32_t off, uint32_t len)
{
	struct extent *to = b->x.x + b->x.nr;
	int r;

	p->got += len;
	if (p->nr > 0 && to[-1].off + to[-1].len == off && to[-1].addr.off + to[-1].len == x->addr.off + skip &&
	    extent_continues(&to[-1], off, (struct addr){ x->addr.pack, x->addr.off + skip, x->addr.node })) {
		to[-1].len += len;
		return 0;
	}
	if (b->x.nr == b->x.size) {
		r = extent_list_reserve(&b->x, 1);
		if (r < 0)
			return r;
		to = b->x.x + b->x.nr;
	}
	to->off = off;
	to->len = len;
	to->addr.pack = x->addr.pack;
	to->addr.off = x->addr.off + skip;
	to->addr.node = x->addr.node;
	b->x.nr++;
	p->nr++;
	return 0;
}

/* Add the range's extents at `off` of the part. */
static int add_patch(struct batch *b, struct part *p, const struct content_patch *range, uint32_t off, struct stretch *s)
{
	uint64_t begin, end;
	int r;

	if (s->from != range->from || range->from_off < s->off || range->from_off + range->len > s->off + s->len) {
		r = stretch_load(s, range);
		if (r < 0)
			return r;
	}
	begin = range->from_off - s->off;
	end = begin + range->len;
	if (s->at >= s->l.nr || s->l.x[s->at].off > begin)
		s->at = 0;
	while (s->at < s->l.nr && s->l.x[s->at].off + s->l.x[s->at].len <= begin)
		s->at++;
	for (size_t i = s->at; i < s->l.nr && s->l.x[i].off < end; i++) {
		const struct extent *x = &s->l.x[i];
		uint64_t from = MAX(begin, x->off), to = MIN(end, (uint64_t)x->off + x->len);

		r = add_extent(b, p, x, (uint32_t)(from - x->off), off + (uint32_t)(from - begin), (uint32_t)(to - from));
		if (r < 0)
			return r;
	}
	return 0;
}

/* Bytes of the ranges without extents are holes. */
static bool has_holes(const struct part *p)
{
	return p->got < p->asked;
}

static int part_add(struct batch *b, struct part *p, const struct content_patch *range, struct stretch *s)
{
	if (p->asked == 0)
		p->off = range->off;
	p->asked += range->len;
	p->len = range->off + range->len - p->off;
	return add_patch(b, p, range, (uint32_t)(range->off - p->off), s);
}

/* Add the ranges of a segment as one part. With holes, add each as its own part: a record cannot distinguish holes from
 * bytes that stay. */
static int add_segment(struct batch *b, const struct content_patch *ranges, size_t nr, struct stretch *s)
{
	struct part *p = &b->parts[b->nr];
	int r = 0;

	*p = (struct part){ .first = b->x.nr };
	for (size_t i = 0; i < nr && r == 0; i++)
		r = part_add(b, p, &ranges[i], s);
	if (r == 0 && nr > 1 && has_holes(p)) {
		b->x.nr = p->first;
		for (size_t i = 0; i < nr && r == 0; i++)
			r = add_segment(b, &ranges[i], 1, s);
		return r;
	}
	b->nr++;
	return r;
}

static int add_segments(struct batch *b, const struct content_patch *ranges, size_t nr, struct stretch *s)
{
	size_t from = 0;
	int r = extent_list_reserve(&b->x, nr);

	for (size_t i = 1; i <= nr && r == 0; i++)
		if (i == nr || ranges[i].off / SEGMENT_SIZE != ranges[from].off / SEGMENT_SIZE) {
			r = add_segment(b, ranges + from, i - from, s);
			from = i;
		}
	return r;
}

static int log_parts(struct content *to, struct batch *b) REQUIRES(to->lock)
{
	int64_t now = (int64_t)now_ns();
	uint64_t size = to->logged.size;
	int r;

	for (size_t i = 0; i < b->nr; i++) {
		const struct part *p = &b->parts[i];

		size = MAX(size, p->off + p->len);
		b->replaces[i] = (struct replace){
			.ino = to->ino,
			.size = size,
			.mtime_ns = now,
			.ctime_ns = now,
			.off = p->off,
			.len = p->len,
			.x = p->nr > 0 ? b->x.x + p->first : NULL,
			.nr = p->nr,
			.keeps = !has_holes(p),
		};
	}
	r = to->is_away ? -EREMOTE : content_log_pending(to, b->replaces, b->nr, &b->x);
	if (r == 0)
		r = content_log(to, b->replaces, b->nr);
	if (r >= 0)
		to->live = to->logged;
	return MIN(r, 0);
}

/* Log one batch. */
static int patch_some(struct content *to, const struct content_patch *ranges, size_t nr, struct batch *b)
{
	unsigned ticket = epoch_enter(&to->e->users);
	struct stretch s = { 0 };
	int r;

	b->nr = 0;
	b->x = (struct extent_list){ 0 };
	r = add_segments(b, ranges, nr, &s);
	if (r == 0) {
		content_lock_quiet(to);
		r = log_parts(to, b);
		content_unlock_quiet(to);
	}
	epoch_leave(&to->e->users, ticket);
	extent_list_release(&b->x);
	extent_list_release(&s.l);
	return r;
}

#define EXTENT_BYTES 16u /* approximate log bytes per range, including the rest of its neighbourhood */

/* Take ranges starting at *done bytes into range *at, split at segment boundaries. */
static size_t cut_some(const struct content_patch *p, size_t nr, size_t *at, uint64_t *done, struct content_patch *ret)
{
	size_t n = 0;

	while (*at < nr && n < PATCHES_MAX) {
		struct content_patch *x = &ret[n++];

		*x = p[*at];
		x->from_off += *done;
		x->off += *done;
		x->len = MIN(x->len - *done, SEGMENT_SIZE - x->off % SEGMENT_SIZE);
		*done += x->len;
		if (*done == p[*at].len) {
			*done = 0;
			(*at)++;
		}
	}
	return n;
}

/* If range `p` shares a long hole at `done`, log it as one record; *ret is its length, or 0. */
static int patch_hole(struct content *to, const struct content_patch *p, uint64_t done, uint64_t *ret)
{
	static const struct extent_list nothing = { 0 };
	uint64_t from = p->from_off + done, end = from;
	int r;

	*ret = 0;
	if (p->len - done <= SEGMENT_SIZE)
		return 0;
	content_lock_quiet(p->from);
	r = content_hole_end(p->from, from, p->from_off + p->len, &end);
	content_unlock_quiet(p->from);
	if (r < 0 || end == from)
		return r;
	r = content_set_extents(to, p->off + done, end - from, &nothing);
	*ret = end - from;
	return r;
}

int content_patch(struct content *to, const struct content_patch *p, size_t nr)
{
	_cleanup_(freep) struct content_patch *ranges = malloc(PATCHES_MAX * sizeof(*ranges));
	_cleanup_(freep) struct batch *b = malloc(sizeof(*b));
	uint64_t done = 0, hole = 0;
	size_t at = 0;
	int r = ranges && b ? 0 : -ENOMEM;

	for (size_t i = 0; i < nr; i++) {
		assert(p[i].len > 0 && (i == 0 || p[i - 1].off + p[i - 1].len <= p[i].off));
		if (r == 0 && (i == 0 || p[i].from != p[i - 1].from))
			r = content_may_share(p[i].from, to);
	}
	if (nr > 0 && p[nr - 1].off + p[nr - 1].len > CONTENT_MAX_SIZE)
		r = -EFBIG;
	if (to->e->read_only)
		r = -EROFS;
	while (at < nr && r == 0) {
		size_t n;

		r = cancel_check();
		if (r == 0)
			r = patch_hole(to, &p[at], done, &hole);
		if (r < 0)
			break;
		done += hole;
		if (done == p[at].len) {
			done = 0;
			at++;
			continue;
		}
		n = cut_some(p, nr, &at, &done, ranges);
		r = log_admit_growth(to->e, n * EXTENT_BYTES);
		if (r == 0)
			r = view_admit_growth(to->e);
		if (r == 0)
			r = patch_some(to, ranges, n, b);
	}
	if (r == 0)
		content_keep_warm(to); /* the next version is made from it */
	return r;
}
