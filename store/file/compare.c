/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where two files have the same bytes, as far as recipes show: ranges stored at the same place, and holes of both.
 * Ranges stored at different places may still be equal; the caller has to read them to find out.
 *
 * The meaning of an address never changes, so the extents of the two files need not be from the same moment, and no two
 * locks are held at once.
 */
#include <errno.h>

#include "base/cancel.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"

#define COMPARE_WINDOWS 1024u /* windows with data per call: 1 GiB, to bound its duration */

/* One file's extents in a window, with the current position. */
struct side {
	struct extent_list l;
	size_t i; /* the first extent that ends after `at` */
};

static int side_load(struct side *s, struct content *c, uint64_t off, uint64_t len)
{
	int r;

	s->l.nr = 0;
	s->i = 0;
	content_lock_quiet(c);
	r = content_extents(c, off, len, &s->l);
	content_unlock_quiet(c);
	return r;
}

/* The address at `at`, or ADDR_NONE for a hole; it extends up to *ret_end. */
static struct addr side_at(struct side *s, uint32_t at, uint32_t len, uint32_t *ret_end)
{
	const struct extent *x;
	struct addr a;

	while (s->i < s->l.nr && s->l.x[s->i].off + s->l.x[s->i].len <= at)
		s->i++;
	x = s->i < s->l.nr ? &s->l.x[s->i] : NULL;
	if (!x || x->off > at) {
		*ret_end = x ? MIN(x->off, len) : len;
		return ADDR_NONE;
	}
	a = x->addr;
	a.off += at - x->off;
	*ret_end = MIN(x->off + x->len, len);
	return a;
}

/* Compare one window. True once both ends are found. */
static bool compare_window(struct side *a, struct side *b, uint64_t off, uint32_t len, struct content_sameness *ret)
{
	uint32_t end_a, end_b;

	for (uint32_t at = 0; at < len; at = MIN(end_a, end_b)) {
		struct addr x = side_at(a, at, len, &end_a), y = side_at(b, at, len, &end_b);
		bool differs = ret->differ_end > ret->equal_end;

		if (addr_equal(x, y)) {
			if (differs)
				return true;
			ret->equal_end = ret->differ_end = off + MIN(end_a, end_b);
		} else {
			ret->differ_end = off + MIN(end_a, end_b);
		}
	}
	return false;
}

/* Both have a hole at `at`: find its end. */
static int common_hole(struct content *a, struct content *b, uint64_t at, uint64_t end, uint64_t *ret)
{
	struct content *both[] = { a, b };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(both) && r == 0; i++) {
		content_lock_quiet(both[i]);
		r = content_hole_end(both[i], at, end, &end);
		content_unlock_quiet(both[i]);
	}
	if (r == 0)
		*ret = end;
	return r;
}

int content_compare(struct content *a, struct content *b, uint64_t off, uint64_t end, struct content_sameness *ret)
{
	unsigned ticket = epoch_enter(&a->e->users);
	struct content_sameness found = { off, off };
	struct side x = { 0 }, y = { 0 };
	unsigned nr_windows = 0;
	int r = 0;

	for (uint64_t at = off; at < end && nr_windows < COMPARE_WINDOWS && r == 0;) {
		uint32_t len = (uint32_t)MIN(end - at, (uint64_t)SEGMENT_SIZE);

		r = cancel_check();
		if (r == 0)
			r = side_load(&x, a, at, len);
		if (r == 0)
			r = side_load(&y, b, at, len);
		if (r == 0 && compare_window(&x, &y, at, len, &found))
			break;
		at += len;
		if (r == 0 && x.l.nr == 0 && y.l.nr == 0) {
			r = common_hole(a, b, at, end, &at);
			found.equal_end = found.differ_end = at;
		} else {
			nr_windows++;
		}
	}
	extent_list_release(&x.l);
	extent_list_release(&y.l);
	epoch_leave(&a->e->users, ticket);
	if (r < 0)
		return r;
	*ret = found;
	return 0;
}
