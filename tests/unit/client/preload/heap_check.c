/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/client/preload/heap_check.h"

#include "client/preload/heap_state.h"

static bool is_listed(const struct heap_state *s, uint32_t head, uint32_t u)
{
	while (head != HEAP_NONE && head != u)
		head = s->unit[head].next;
	return head == u;
}

static bool span_is_consistent(const struct heap_state *s, uint32_t u)
{
	const struct span *span = (const struct span *)heap_unit_at(s, u);
	uint32_t nr = 0;

	for (uint32_t i = 0; i < (span->nr + 63) / 64; i++) {
		nr += (uint32_t)__builtin_popcountll(span->free[i]);
		if (span->free[i] != 0 && i < span->hint)
			return false;
	}
	return nr == span->nr_free && is_listed(s, s->spans[s->unit[u].class], u) == (nr > 0);
}

bool heap_is_consistent(const struct heap *h)
{
	const struct heap_state *s = atomic_load(&h->state);
	uint32_t u = 0;

	while (s && u < s->top) {
		const struct unit *it = &s->unit[u];
		uint32_t nr = it->kind == UNIT_SPAN ? 1 : it->nr;

		if (it->kind == UNIT_INSIDE || nr == 0 || nr > s->top - u ||
		    (it->kind == UNIT_SPAN && !span_is_consistent(s, u)))
			return false;
		if (it->kind == UNIT_FREE && (s->unit[u + nr - 1].nr != nr || !is_listed(s, s->free[heap_bin_of(nr)], u)))
			return false;
		u += nr;
	}
	return true;
}
