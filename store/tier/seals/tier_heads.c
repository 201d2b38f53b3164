/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/seals/tier_heads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/tier/tier.h"
#include "store/tier/tier_format.h"

#define IN_FLIGHT 16u

struct head {
	struct tier_request q;
	uint8_t bytes[TIER_MANIFEST_HEAD_MAX];
};

static int take_head(const struct tier_request *q, const struct tier_heads_sink *to)
{
	uint8_t store[TIER_ID_LEN];
	struct tier_manifest m;
	uint64_t number;
	int r = q->result;

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = tier_manifest_head_decode(q->buf, q->got, &m);
	if (r == 0 && (!tier_manifest_name_parse(q->name, store, &number) || number != m.number ||
		       memcmp(store, m.store, sizeof(store)) != 0 || !tier_manifest_has_size(&m, q->size)))
		r = -EBADMSG;
	return to->head(to->userdata, q->name, r, &m);
}

int tier_heads_read(struct tier *t, const struct buf *names, const struct tier_heads_sink *to)
{
	struct head *heads = calloc(IN_FLIGHT, sizeof(*heads));
	_cleanup_(tier_queue_freep) struct tier_queue *u = NULL;
	int r = heads ? tier_queue_new(t, &u) : -ENOMEM, one;
	unsigned nr_used = 0;
	size_t at = 0, end = r == 0 ? names->len : 0;

	while (at < end || (u && tier_in_flight(u) > 0)) {
		struct head *h = &heads[nr_used];

		if (at >= end || nr_used == IN_FLIGHT) { /* wait for one in flight */
			h = container_of(tier_next(u), struct head, q);
			one = take_head(&h->q, to);
			r = r < 0 ? r : one;
		} else {
			nr_used++;
		}
		if (r < 0 || (to->is_stopping && to->is_stopping(to->userdata)))
			end = 0;
		if (at >= end)
			continue;
		h->q = (struct tier_request){
			.op = TIER_GET,
			.name = (const char *)names->data + at,
			.buf = h->bytes,
			.len = sizeof(h->bytes),
		};
		at += strlen(h->q.name) + 1;
		tier_start(u, &h->q);
	}
	tier_queue_free(TAKE(u));
	free(heads);
	return r;
}
