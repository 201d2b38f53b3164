/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/merge.h"

#include "base/util.h"

static void pass_on(struct merge *m)
{
	m->at = m->at + 1 < m->nr ? m->at + 1 : 0;
	m->turn = 0;
}

/* Where a folded part goes on, and for how long. */
static uint64_t folded_at(const struct merge_part *p, uint64_t quarter, uint64_t *ret_len)
{
	uint64_t half = p->len / 2, nr = p->len / (4 * quarter), at = p->done / (4 * quarter) * quarter;

	if (p->done >= 4 * nr * quarter) { /* the middles of both halves */
		uint64_t first_end = half + 2 * nr * quarter;

		*ret_len = MIN((p->done < first_end ? first_end : p->len) - p->done, quarter);
		return p->done < first_end ? p->done - 3 * nr * quarter : p->done - nr * quarter;
	}
	*ret_len = quarter;
	switch (p->done / quarter % 4) {
	case 0:
		return at;
	case 1:
		return half - at - quarter;
	case 2:
		return half + at;
	default:
		return p->len - at - quarter;
	}
}

int merge_next(struct merge *m, uint64_t max, size_t *ret_part, uint64_t *ret_off, uint64_t *ret_len)
{
	struct merge_part *p;
	size_t nr_empty = 0;
	uint64_t len;

	if (m->nr == 0)
		return 0;
	for (;;) {
		p = &m->part[m->at];
		if (p->done < p->len && (m->block == 0 || m->turn < m->block))
			break;
		nr_empty = p->done < p->len ? 0 : nr_empty + 1;
		if (nr_empty > m->nr)
			return 0;
		pass_on(m);
	}
	*ret_off = p->done;
	len = MIN(p->len - p->done, max);
	if (m->folded)
		*ret_off = folded_at(p, max / 4, &len);
	if (m->block > 0)
		len = MIN(len, m->block - m->turn);
	*ret_part = m->at;
	*ret_len = len;
	p->done += len;
	m->turn += len;
	return 1;
}
