/*
 * Sharing many small ranges at once: what a delta says of a file, some hundred ranges per MiB. The ranges of one segment
 * of the file are one record of the log and one change of the segment, however many they are, and the records of many
 * segments enter the log together.
 *
 * First the extents that the ranges have in their sources, then, under the lock of the file, the records, which say
 * nothing of what lies between them. From the first to the last of these nothing that was found may be freed (e->users).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"

/* Extents of a stretch of one source, since ranges that follow each other often lie side by side there. */
struct stretch {
	struct content *from;
	uint64_t off, len;
	struct extent_list l; /* relative to off */
	size_t at; /* the first that may matter to the range that comes next */
};

/* Some more than is asked for, if it is little, and much if they come one after the other. */
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

/* The range's extents, at `off` of the result. */
static int add_patch(struct stretch *s, const struct content_patch *p, uint32_t off, struct extent_list *ret)
{
	uint64_t begin, end;
	int r;

	if (s->from != p->from || p->from_off < s->off || p->from_off + p->len > s->off + s->len) {
		r = stretch_load(s, p);
		if (r < 0)
			return r;
	}
	begin = p->from_off - s->off;
	end = begin + p->len;
	if (s->at >= s->l.nr || s->l.x[s->at].off > begin)
		s->at = 0;
	while (s->at < s->l.nr && s->l.x[s->at].off + s->l.x[s->at].len <= begin)
		s->at++;
	for (size_t i = s->at; i < s->l.nr && s->l.x[i].off < end; i++) {
		uint64_t from = MAX(begin, s->l.x[i].off), to = MIN(end, (uint64_t)s->l.x[i].off + s->l.x[i].len);
		struct addr a = s->l.x[i].addr;

		a.off += (uint32_t)(from - s->l.x[i].off);
		r = extent_list_add(ret, off + (uint32_t)(from - begin), (uint32_t)(to - from), a);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Ranges of one segment, and their extents. */
struct part {
	uint64_t off, len; /* from the first to the last */
	struct extent_list l; /* relative to off */
	uint64_t asked; /* bytes of the ranges */
};

#define PATCHES_MAX 1024u /* in the log at once */
struct batch {
	struct part parts[PATCHES_MAX];
	size_t nr;
	struct replace replaces[PATCHES_MAX];
};

/* Where the extents leave bytes of the ranges out, there are holes. */
static bool has_holes(const struct part *p)
{
	uint64_t got = 0;

	for (size_t i = 0; i < p->l.nr; i++)
		got += p->l.x[i].len;
	return got < p->asked;
}

static int part_add(struct part *p, const struct content_patch *range, struct stretch *s)
{
	if (p->asked == 0)
		p->off = range->off;
	p->asked += range->len;
	p->len = range->off + range->len - p->off;
	return add_patch(s, range, (uint32_t)(range->off - p->off), &p->l);
}

/* The ranges of a segment as one part; or, since one record cannot tell holes from what stays, each as one. */
static int add_segment(struct batch *b, const struct content_patch *ranges, size_t nr, struct stretch *s)
{
	struct part *p = &b->parts[b->nr];
	int r;

	*p = (struct part){ 0 };
	r = extent_list_reserve(&p->l, nr);
	for (size_t i = 0; i < nr && r == 0; i++)
		r = part_add(p, &ranges[i], s);
	if (r == 0 && nr > 1 && has_holes(p)) {
		extent_list_release(&p->l);
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
	int r = 0;

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
			.x = p->l.x,
			.nr = p->l.nr,
			.keeps = !has_holes(p),
		};
	}
	r = content_log(to, b->replaces, b->nr);
	if (r == 0)
		to->live = to->logged;
	return r;
}

/* All that can be in the log at once. */
static int patch_some(struct content *to, const struct content_patch *ranges, size_t nr, struct batch *b)
{
	unsigned ticket = epoch_enter(&to->e->users);
	struct stretch s = { 0 };
	int r;

	b->nr = 0;
	r = add_segments(b, ranges, nr, &s);
	if (r == 0) {
		content_lock_quiet(to);
		r = log_parts(to, b);
		content_unlock_quiet(to);
	}
	epoch_leave(&to->e->users, ticket);
	while (b->nr > 0)
		extent_list_release(&b->parts[--b->nr].l);
	extent_list_release(&s.l);
	return r;
}

#define EXTENT_BYTES 16u /* about as much as a range takes in the log, with what it leaves of its surroundings */

/* From *done bytes of range *at on: a range that goes on in the next segment is cut in two. */
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

int content_patch(struct content *to, const struct content_patch *p, size_t nr)
{
	_cleanup_(freep) struct content_patch *ranges = malloc(PATCHES_MAX * sizeof(*ranges));
	_cleanup_(freep) struct batch *b = malloc(sizeof(*b));
	uint64_t done = 0;
	size_t at = 0;
	int r = ranges && b ? 0 : -ENOMEM;

	for (size_t i = 0; i < nr; i++)
		assert(p[i].len > 0 && (i == 0 || p[i - 1].off + p[i - 1].len <= p[i].off));
	if (nr > 0 && p[nr - 1].off + p[nr - 1].len > CONTENT_MAX_SIZE)
		r = -EFBIG;
	if (to->e->conf.read_only)
		r = -EROFS;
	while (at < nr && r == 0) {
		size_t n = cut_some(p, nr, &at, &done, ranges);

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
