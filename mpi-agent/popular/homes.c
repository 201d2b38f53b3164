/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/popular/homes.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "mpi-agent/popular/known.h"

#define QUIET_NS UINT64_C(1000000000) /* longer than the skew of nodes that write together */
#define LATE_NS UINT64_C(10000000000) /* after which announcements are noted even if more keep arriving */
#define AHEAD 8u /* pages prefetched while one is noted */

struct announcement {
	struct announcement *next;
	uint32_t node, nr;
	uint8_t fps[][FP_LEN];
};

struct homes {
	struct known *directory;
	struct announcement *first, **end; /* waiting */
	size_t waiting; /* bytes of them */
	uint64_t since_ns, announced_ns; /* the first and the last of them */
	uint32_t nr_nodes, *twice;
};

static size_t announcement_size(size_t nr)
{
	return sizeof(struct announcement) + nr * FP_LEN;
}

int homes_new(size_t remember, uint32_t nr_nodes, struct homes **ret)
{
	struct homes *hs = calloc(1, sizeof(*hs));

	if (!hs)
		return -ENOMEM;
	hs->end = &hs->first;
	hs->nr_nodes = nr_nodes;
	hs->twice = calloc(nr_nodes, sizeof(*hs->twice));
	if (!hs->twice || known_new(remember, &hs->directory) < 0) {
		homes_free(hs);
		return -ENOMEM;
	}
	*ret = hs;
	return 0;
}

static struct announcement *take_first(struct homes *hs)
{
	struct announcement *t = hs->first;

	if (!t)
		return NULL;
	hs->first = t->next;
	if (!hs->first)
		hs->end = &hs->first;
	hs->waiting -= announcement_size(t->nr);
	return t;
}

static void drop_waiting(struct homes *hs)
{
	for (struct announcement *t; (t = take_first(hs));)
		free(t);
}

void homes_free(struct homes *hs)
{
	if (!hs)
		return;
	drop_waiting(hs);
	known_free(hs->directory);
	free(hs->twice);
	free(hs);
}

void homes_clear(struct homes *hs)
{
	drop_waiting(hs);
	known_clear(hs->directory);
}

int homes_announce(struct homes *hs, uint32_t node, const void *fps, size_t len, uint64_t now_ns)
{
	struct announcement *t;

	assert(node < hs->nr_nodes);
	if (len % FP_LEN != 0 || len / FP_LEN > UINT32_MAX)
		return -EBADMSG;
	if (len == 0)
		return 0;
	t = malloc(announcement_size(len / FP_LEN));
	if (!t)
		return -ENOMEM;
	*t = (struct announcement){ .node = node, .nr = (uint32_t)(len / FP_LEN) };
	memcpy(t->fps, fps, len);
	if (!hs->first)
		hs->since_ns = now_ns;
	*hs->end = t;
	hs->end = &t->next;
	hs->waiting += announcement_size(t->nr);
	hs->announced_ns = now_ns;
	return 0;
}

bool homes_due(const struct homes *hs, uint64_t now_ns)
{
	return hs->first && (hs->waiting > HOMES_WAITING_MAX || now_ns >= hs->announced_ns + QUIET_NS ||
			     now_ns >= hs->since_ns + LATE_NS);
}

int homes_note(struct homes *hs, uint32_t now, struct homes_noted *ret)
{
	_cleanup_(freep) struct announcement *t = take_first(hs);
	uint32_t nr_twice = 0;

	if (!t)
		return 0;
	memset(hs->twice, 0, hs->nr_nodes * sizeof(*hs->twice));
	for (uint32_t i = 0; i < t->nr; i++) {
		struct holders before;
		bool is_of_peer = false;

		if (i + AHEAD < t->nr)
			known_expect(hs->directory, fp_decode(t->fps[i + AHEAD]));
		before = known_add(hs->directory, fp_decode(t->fps[i]), (uint16_t)t->node, now);
		for (uint32_t k = 0; k < before.nr; k++)
			if (before.nodes[k] != t->node) {
				hs->twice[before.nodes[k]]++;
				is_of_peer = true;
			}
		nr_twice += is_of_peer;
	}
	*ret = (struct homes_noted){ .node = t->node, .nr = t->nr, .nr_twice = nr_twice, .twice = hs->twice };
	return 1;
}

bool homes_find(struct homes *hs, struct fp fp, uint32_t now, struct holders *ret)
{
	return known_find(hs->directory, fp, now, ret);
}

size_t homes_nr(const struct homes *hs)
{
	return known_nr(hs->directory);
}
