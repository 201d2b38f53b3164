/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Announces pages that were stored without a round (ANNOUNCE), so that other nodes can find them. It is not urgent: it is
 * sent after the commit was acknowledged; somewhat later if no lookup is likely, so as not to take CPU time from nodes
 * that are still writing; and at the latest when a round starts, which may look them up. Until then the pages are kept
 * here, so that an agent that dies loses none of them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "base/util.h"
#include "mpi-agent/daemon/service_internal.h"

/* Drops what exceeds the limit or memory: not announcing costs space only. */
static void keep(struct service *s, const struct fp *fps, size_t nr) REQUIRES(s->lock)
{
	size_t more = MIN(nr, (size_t)LINK_ANNOUNCE_MAX - s->nr_unannounced);
	struct fp *all = reallocarray(s->unannounced, s->nr_unannounced + more, sizeof(*all));

	assert(mutex_held(&s->lock));
	if (!all)
		return;
	memcpy(all + s->nr_unannounced, fps, more * sizeof(*all));
	s->unannounced = all;
	s->nr_unannounced += (uint32_t)more;
}

void service_announce(struct service *s)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert(mutex_held(&s->lock));
	if (s->nr_unannounced == 0 || !s->nodes)
		return;
	link_encode_announce(s->unannounced, s->nr_unannounced, &b);
	if (service_send(s, s->agent, &b) < 0)
		return;
	free(TAKE(s->unannounced));
	s->nr_unannounced = 0;
	s->announce_ns = 0;
}

void service_stored(void *userdata, const struct fp *fps, size_t nr, bool has_time)
{
	struct service *s = userdata;
	uint64_t when_ns = monotonic_ns() + (has_time ? s->limits.announce_ns : 0);

	if (nr == 0)
		return;
	mutex_lock(&s->lock);
	if (nr > LINK_ANNOUNCE_MAX - s->nr_unannounced)
		service_announce(s);
	keep(s, fps, nr);
	if (s->announce_ns == 0 || s->announce_ns > when_ns) {
		s->announce_ns = when_ns;
		service_wake(s);
	}
	mutex_unlock(&s->lock);
}

uint64_t service_announce_due(struct service *s, uint64_t now_ns)
{
	assert(mutex_held(&s->lock));
	if (s->announce_ns != 0 && now_ns >= s->announce_ns)
		service_announce(s);
	/* without an agent, sent when one connects */
	return s->announce_ns > now_ns ? s->announce_ns : UINT64_MAX;
}
