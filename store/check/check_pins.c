/* Chunks shared with other nodes: from commits that are not in the index, else from the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/check/check_internal.h"

int check_shares_add(struct check *k, uint32_t pack, uint32_t frame, const void *value, size_t len)
{
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	struct tail_share t = { .pack = pack, .frame = frame, .number = k->nr_shares };

	if (!f)
		return -ENOMEM;
	if (share_frame_decode(value, len, f) < 0)
		return 0; /* reported already */
	memcpy(t.remote, f->remote, sizeof(t.remote));
	t.settled = f->settled;
	if (k->nr_shares == k->size_shares) {
		size_t size = MAX(2 * k->size_shares, (size_t)64);
		struct tail_share *more = reallocarray(k->shares, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->shares = more;
		k->size_shares = size;
	}
	k->shares[k->nr_shares++] = t;
	return 0;
}

static int compare_places(const void *a, const void *b)
{
	const struct tail_share *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return (x->frame > y->frame) - (x->frame < y->frame);
}

static int compare(const void *a, const void *b)
{
	const struct tail_share *x = a, *y = b;
	int r = compare_places(a, b);

	return r ? r : (x->number > y->number) - (x->number < y->number);
}

void check_shares_sort(struct check *k)
{
	size_t n = 0;

	if (k->nr_shares > 0)
		qsort(k->shares, k->nr_shares, sizeof(*k->shares), compare);
	for (size_t i = 0; i < k->nr_shares; i++)
		if (i + 1 == k->nr_shares || compare_places(&k->shares[i], &k->shares[i + 1]) != 0)
			k->shares[n++] = k->shares[i];
	k->nr_shares = n;
}

void check_shares_release(struct check *k)
{
	free(TAKE(k->shares));
	k->nr_shares = k->size_shares = 0;
}

int check_share_of(struct check *k, uint32_t pack, uint32_t frame, uint64_t remote[SHARE_WORDS], bool *ret_settled)
{
	_cleanup_(freep) struct share_frame *f = NULL;
	struct tail_share key = { .pack = pack, .frame = frame };
	const struct tail_share *t = NULL;
	int r;

	if (k->nr_shares > 0)
		t = bsearch(&key, k->shares, k->nr_shares, sizeof(key), compare_places);
	if (t) {
		memcpy(remote, t->remote, sizeof(t->remote));
		*ret_settled = t->settled;
		return 1;
	}
	if (!k->db)
		return 0;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	r = share_get(k->db, pack, frame, f);
	if (r > 0) {
		memcpy(remote, f->remote, sizeof(f->remote));
		*ret_settled = f->settled;
	}
	return r;
}
