/* SPDX-License-Identifier: GPL-3.0-or-later */
/* For fsck.ckptfs: the notes of a store about other nodes, of commits that are not in the index, else of the index. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "index/guards.h"
#include "index/index_format.h"
#include "index/pin_table.h"
#include "store/remote_hooks.h"

static_assert(SHARE_WORDS == PACK_GONE_WORDS, "a note has a bit for each chunk of a frame");

/* Remote chunks according to a commit that is not in the index. */
struct tail_share {
	uint32_t pack, frame;
	uint64_t remote[SHARE_WORDS];
	bool settled;
	size_t number;
};

struct remote_notes {
	struct tail_share *v;
	size_t nr, size;
};

static const char *check_share(const void *key, size_t key_len, const void *value, size_t len)
{
	struct share_totals totals;
	struct share_frame shared;
	struct share_node node;
	uint32_t pack, frame;
	int r;

	if (share_key_decode(key, key_len, &pack, &frame) < 0)
		return "its key does not decode";
	if (pack > 0)
		r = share_frame_decode(value, len, &shared);
	else if (frame == UINT32_MAX)
		r = share_totals_decode(value, len, &totals);
	else
		r = share_node_decode(value, len, &node);
	return r < 0 ? "the record of pinned and remote chunks does not decode" : NULL;
}

/* The directory may be deleted already: the record stays until the other node has been notified. */
static const char *check_guard(size_t key_len, const void *value, size_t len)
{
	struct guard g;

	if (key_len != guard_key(0).len)
		return "its key has the wrong length";
	return guard_decode(value, len, &g) < 0 ? "the record of its replicas does not decode" : NULL;
}

static const char *check_note(const void *key, size_t key_len, const void *value, size_t len)
{
	return *(const uint8_t *)key == VIEW_SHARE ? check_share(key, key_len, value, len) :
						     check_guard(key_len, value, len);
}

static int add_share(struct remote_notes **notes, const void *key, size_t key_len, const void *value, size_t len)
{
	_cleanup_(freep) struct share_frame *f = malloc(sizeof(*f));
	struct remote_notes *n = *notes;
	struct tail_share t = { 0 };

	if (!f)
		return -ENOMEM;
	if (share_key_decode(key, key_len, &t.pack, &t.frame) < 0 || t.pack == 0)
		return 0; /* totals, or a node */
	if (share_frame_decode(value, len, f) < 0)
		return 0; /* reported already */
	if (!n)
		n = *notes = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	memcpy(t.remote, f->remote, sizeof(t.remote));
	t.settled = f->settled;
	t.number = n->nr;
	if (n->nr == n->size) {
		size_t size = MAX(2 * n->size, (size_t)64);
		struct tail_share *more = reallocarray(n->v, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		n->v = more;
		n->size = size;
	}
	n->v[n->nr++] = t;
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

static void sort_shares(struct remote_notes *notes)
{
	size_t n = 0;

	if (!notes)
		return;
	qsort(notes->v, notes->nr, sizeof(*notes->v), compare);
	for (size_t i = 0; i < notes->nr; i++)
		if (i + 1 == notes->nr || compare_places(&notes->v[i], &notes->v[i + 1]) != 0)
			notes->v[n++] = notes->v[i];
	notes->nr = n;
}

static void free_shares(struct remote_notes *notes)
{
	if (!notes)
		return;
	free(notes->v);
	free(notes);
}

static int remote_of_frame(const struct remote_notes *notes, struct db *db, uint32_t pack, uint32_t frame,
			   uint64_t remote[PACK_GONE_WORDS], bool *ret_settled)
{
	struct tail_share key = { .pack = pack, .frame = frame };
	_cleanup_(freep) struct share_frame *f = NULL;
	const struct tail_share *t = NULL;
	int r;

	if (notes && notes->nr > 0)
		t = bsearch(&key, notes->v, notes->nr, sizeof(key), compare_places);
	if (t) {
		memcpy(remote, t->remote, sizeof(t->remote));
		*ret_settled = t->settled;
		return 1;
	}
	if (!db)
		return 0;
	f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	r = share_get(db, pack, frame, f);
	if (r > 0) {
		memcpy(remote, f->remote, sizeof(f->remote));
		*ret_settled = f->settled;
	}
	return r;
}

static const struct remote_check check = {
	.entry = check_note,
	.add = add_share,
	.sort = sort_shares,
	.free = free_shares,
	.of_frame = remote_of_frame,
};
const struct remote_check *const remote_check = &check;

int remote_check_allowed(const char *path, const struct superblock *sb, struct db *db, bool unapplied)
{
	(void)path, (void)sb, (void)db, (void)unapplied;
	return 0;
}
