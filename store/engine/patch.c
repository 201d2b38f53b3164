/*
 * Sharing many small ranges at once: what a delta says of a file, some hundred ranges per MiB. The ranges of one segment
 * of the file are one record of the log and one change of the segment, however many they are.
 *
 * For each segment: the extents that the ranges have in their sources, then, under the lock of the file, the record,
 * which says nothing of what lies between them. From the first to the last of these nothing that was found may be freed
 * (e->users).
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

/* Some more than is asked for, if it is little. */
static int stretch_load(struct stretch *s, const struct content_patch *p)
{
	int r;

	s->from = p->from;
	s->off = p->from_off;
	s->len = MAX(p->len, KiB(64));
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

/* Some of the ranges have holes in their sources. */
static bool has_holes(const struct content_patch *p, size_t nr, const struct extent_list *l)
{
	uint64_t asked = 0, got = 0;

	for (size_t i = 0; i < nr; i++)
		asked += p[i].len;
	for (size_t i = 0; i < l->nr; i++)
		got += l->x[i].len;
	return got < asked;
}

/* Ranges of one segment. */
static int patch_segment(struct content *to, const struct content_patch *p, size_t nr, struct stretch *s)
{
	uint64_t off = p[0].off, len = p[nr - 1].off + p[nr - 1].len - off;
	struct extent_list l = { 0 };
	int r = 0;

	for (size_t i = 0; i < nr && r == 0; i++)
		r = add_patch(s, &p[i], (uint32_t)(p[i].off - off), &l);
	if (r == 0 && nr > 1 && has_holes(p, nr, &l))
		r = -EAGAIN;
	if (r == 0) {
		content_lock_quiet(to);
		r = content_set_extents(to, off, len, &l, nr > 1);
		content_unlock_quiet(to);
	}
	extent_list_release(&l);
	if (r != -EAGAIN)
		return r;
	r = 0;
	for (size_t i = 0; i < nr && r == 0; i++) /* one record cannot tell holes from what stays */
		r = patch_segment(to, &p[i], 1, s);
	return r;
}

#define EXTENT_BYTES 16u /* about as much as a range takes in the log, with what it leaves of its surroundings */

/* Ranges of one segment on their way. */
#define BATCH_MAX 4096
struct batch {
	struct content_patch p[BATCH_MAX];
	size_t nr;
};

/* From *done bytes of range *at on: a range that goes on in the next segment is cut in two. */
static void batch_fill(struct batch *b, const struct content_patch *p, size_t nr, size_t *at, uint64_t *done)
{
	uint64_t end = ((p[*at].off + *done) / SEGMENT_SIZE + 1) * SEGMENT_SIZE;

	for (b->nr = 0; *at < nr && b->nr < BATCH_MAX && p[*at].off + *done < end; b->nr++) {
		struct content_patch *x = &b->p[b->nr];

		*x = p[*at];
		x->from_off += *done;
		x->off += *done;
		x->len = MIN(x->len - *done, end - x->off);
		*done += x->len;
		if (*done == p[*at].len) {
			*done = 0;
			(*at)++;
		}
	}
}

int content_patch(struct content *to, const struct content_patch *p, size_t nr)
{
	struct batch *b = malloc(sizeof(*b));
	uint64_t done = 0;
	size_t at = 0;
	int r = b ? 0 : -ENOMEM;

	for (size_t i = 0; i < nr; i++)
		assert(p[i].len > 0 && (i == 0 || p[i - 1].off + p[i - 1].len <= p[i].off));
	if (nr > 0 && p[nr - 1].off + p[nr - 1].len > CONTENT_MAX_SIZE)
		r = -EFBIG;
	while (at < nr && r == 0) {
		struct stretch s = { 0 };
		unsigned ticket;

		batch_fill(b, p, nr, &at, &done);
		r = log_admit_growth(to->e, b->nr * EXTENT_BYTES);
		if (r == 0)
			r = view_admit_growth(to->e);
		if (r < 0)
			break;
		ticket = epoch_enter(&to->e->users);
		r = patch_segment(to, b->p, b->nr, &s);
		epoch_leave(&to->e->users, ticket);
		extent_list_release(&s.l);
	}
	free(b);
	return r;
}
