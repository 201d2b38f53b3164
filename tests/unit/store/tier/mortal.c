/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/mortal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/util.h"

/* A request to the back end, for one of the process. */
struct passed {
	struct tier_request q;
	struct tier_request *of;
};

static void start(struct tier *t, struct tier_request *q)
{
	struct mortal *m = container_of(t, struct mortal, tier);
	struct passed *p;
	bool is_last = ++m->nr_requests == m->end_at;

	m->has_ended |= is_last && !m->after;
	if (m->has_ended) {
		tier_done(q, -ECANCELED);
		return;
	}
	m->has_ended = is_last;
	p = calloc(1, sizeof(*p));
	assert_non_null(p);
	p->of = q;
	p->q = (struct tier_request){
		.op = q->op,
		.name = q->name,
		.data = q->data,
		.len = q->len,
		.buf = q->buf,
		.off = q->off,
		.after = q->after,
		.names = q->names,
	};
	tier_start(m->queue, &p->q);
}

static void drive(struct tier *t)
{
	struct mortal *m = container_of(t, struct mortal, tier);
	struct tier_request *done = tier_next(m->queue), *q;
	struct passed *p;

	assert_non_null(done);
	p = container_of(done, struct passed, q);
	q = p->of;
	q->got = done->got;
	q->size = done->size;
	q->names = done->names;
	q->more = done->more;
	tier_done(q, m->has_ended ? -ECANCELED : done->result);
	free(p);
}

static void end(struct tier *t _unused_)
{
}

static const struct tier_backend backend = { .start = start, .drive = drive, .close = end };

void mortal_init(struct mortal *m, struct tier *back_end, uint64_t end_at, bool after)
{
	*m = (struct mortal){ .back_end = back_end, .end_at = end_at, .after = after };
	m->tier = (struct tier){ .backend = &backend, .where = back_end->where };
	assert_int_equal(tier_queue_new(back_end, &m->queue), 0);
}

void mortal_release(struct mortal *m)
{
	tier_queue_free(m->queue);
}
