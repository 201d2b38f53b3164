/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A daemon's part in collecting together: store/remote/cluster_gc.c, for pages that are numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worlds_internal.h"

#define SETTLE_NS (20 * MS) /* that a collection waits for a round */

static void say_done(struct daemon *d, uint64_t number, const struct link_done *done)
{
	struct buf b = BUF_EMPTY;

	link_encode_done(LINK_DONE, number, done, &b);
	daemon_say(d, &b);
}

static uint64_t bit_of(const struct link_step *s, unsigned page)
{
	return (fp_of_page(page).lo ^ s->seed) * UINT64_C(0x9e3779b97f4a7c15) % (s->len * UINT64_C(8));
}

void daemon_mark(struct daemon *d)
{
	struct link_done done = { .kind = LINK_MARK, .window = d->mark.window };
	/* Not before it stores, as in the engine: the thread that has received the decision may not have run yet. */
	bool is_settling = d->node->state == NODE_STORED;
	uint8_t *filter;

	d->is_collecting = true;
	d->mark_ns = NEVER;
	if (is_settling) {
		if (ws->now_ns < d->mark_until_ns) {
			d->mark_ns = ws->now_ns + 2 * MS;
			return;
		}
		d->is_collecting = false;
		done.error = -EAGAIN;
		say_done(d, d->mark_number, &done);
		return;
	}
	filter = calloc(1, d->mark.len);
	if (!filter)
		abort();
	for (unsigned page = 0; page < NR_PAGES; page++)
		if (d->node->remote[page].is)
			filter[bit_of(&d->mark, page) / 8] |= (uint8_t)(1u << bit_of(&d->mark, page) % 8);
	memcpy(d->is_marked, d->node->pinned, sizeof(d->is_marked));
	done.len = d->mark.len;
	done.filter = filter;
	say_done(d, d->mark_number, &done);
	free(filter);
}

static void unpin(struct daemon *d, const struct link_step *s, struct link_done *done)
{
	struct node *n = d->node;

	if (!d->is_collecting || s->seed != d->mark.seed) {
		done->error = -ECANCELED;
		return;
	}
	for (unsigned page = 0; page < NR_PAGES; page++) {
		uint64_t bit = bit_of(s, page);
		bool is_referred = s->filter[bit / 8] >> bit % 8 & 1;

		if (!n->pinned[page] || !d->is_marked[page] || (is_referred && !ws_is_flaw(WORLDS_UNPINS_REFERRED)))
			continue;
		n->pinned[page] = false;
		n->has[page] = n->file[page] || n->acked[page];
		done->nr_dropped++;
		ws->result->nr_unpinned++;
		ws_trace("daemon %u: drops %u", daemon_number(d), page);
	}
}

static void prepare(const struct daemon *d, struct link_done *done)
{
	for (unsigned i = 0; i < ws->nr_nodes; i++) {
		bool is_here = false;

		for (uint32_t k = 0; k < d->nr_nodes; k++)
			is_here |= d->nodes[k].store_id[1] == i;
		if (d->has_registered[i] && !is_here && !ws_is_flaw(WORLDS_IGNORES_MISSING))
			memcpy(done->missing, "away", 5);
	}
	for (unsigned page = 0; page < NR_PAGES; page++)
		done->nr_referred += d->node->remote[page].is;
}

void daemon_on_step(struct daemon *d, uint64_t number, const void *body, size_t len)
{
	struct link_step s;
	struct link_done done;

	if (link_decode_step(body, len, &s) < 0)
		abort();
	d->mark_ns = NEVER;
	done = (struct link_done){ .kind = s.kind, .window = s.window };
	ws_trace("daemon %u: step %d of %ju", daemon_number(d), (int)s.kind, (uintmax_t)number);
	if (s.kind == LINK_MARK) {
		d->mark = s;
		d->mark_number = number;
		d->mark_until_ns = ws->now_ns + SETTLE_NS;
		memset(d->is_marked, 0, sizeof(d->is_marked));
		daemon_mark(d);
		return;
	}
	if (s.kind == LINK_PREPARE)
		prepare(d, &done);
	else
		unpin(d, &s, &done);
	say_done(d, number, &done);
}

void daemon_on_collected(struct daemon *d, const void *body, size_t len)
{
	struct link_done done;

	if (link_decode_done(body, len, &done) < 0)
		abort();
	ws->result->nr_collected += done.error == 0 && done.missing[0] == '\0';
	d->is_collecting = false;
	d->mark_ns = NEVER;
}
