#include "store/codec/merge.h"

#include "base/util.h"

static void pass_on(struct merge *m)
{
	m->at = m->at + 1 < m->nr ? m->at + 1 : 0;
	m->turn = 0;
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
	len = MIN(p->len - p->done, max);
	if (m->block > 0)
		len = MIN(len, m->block - m->turn);
	*ret_part = m->at;
	*ret_off = p->done;
	*ret_len = len;
	p->done += len;
	m->turn += len;
	return 1;
}
