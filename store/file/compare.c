/*
 * Where two files have the same bytes, as far as recipes tell: stretches that both have from one place, and holes of
 * both. What lies in two places may be equal all the same; whoever wants to know reads it.
 *
 * An address never changes its meaning, so the extents of the two need not be of one moment, and no two locks are held
 * at once.
 */
#include <errno.h>

#include "base/util.h"
#include "store/engine/engine_internal.h"

/* One file's extents of a window, and how far it has been gone through. */
struct side {
	struct extent_list l;
	size_t i; /* the first one that ends behind `at` */
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

/* What is at `at`, ADDR_NONE: a hole; it goes on up to *ret_end. */
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

/* Of one window: true once the second end is found. */
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

int content_compare(struct content *a, struct content *b, uint64_t off, uint64_t end, struct content_sameness *ret)
{
	unsigned ticket = epoch_enter(&a->e->users);
	struct content_sameness found = { off, off };
	struct side x = { 0 }, y = { 0 };
	int r = 0;

	for (uint64_t at = off; at < end && r == 0;) {
		uint32_t len = (uint32_t)MIN(end - at, (uint64_t)SEGMENT_SIZE);

		r = side_load(&x, a, at, len);
		if (r == 0)
			r = side_load(&y, b, at, len);
		if (r == 0 && compare_window(&x, &y, at, len, &found))
			break;
		at += len;
	}
	extent_list_release(&x.l);
	extent_list_release(&y.l);
	epoch_leave(&a->e->users, ticket);
	if (r < 0)
		return r;
	*ret = found;
	return 0;
}
