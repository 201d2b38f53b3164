/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/dedup/shift.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"

#define ANCHOR 32u /* bytes before a boundary, which determine it */
#define STEPS_MAX 64u /* longer probe sequences mean that the same bytes repeat */
#define TRIES_MAX 8u /* anchors with the same bytes to compare, at most */

void shift_init(struct shift *s, const struct cdc *cdc, const uint8_t *p)
{
	s->cdc = cdc;
	s->p = p;
	s->is_cut = false;
	s->nr_want = s->nr_matches = s->nr_ends = 0;
	s->nr_bytes = 0;
}

/* Hash of the anchor before `end`; never 0. */
static uint64_t hash_of(const uint8_t *end)
{
	uint64_t w[ANCHOR / 8], h = 0;

	memcpy(w, end - ANCHOR, sizeof(w));
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
		h = (h ^ w[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 32;
	}
	return h ? h : 1;
}

static uint32_t slot_of(const uint8_t *end)
{
	return (uint32_t)hash_of(end) % SHIFT_SLOTS;
}

void shift_want(struct shift *s, uint32_t start, uint32_t end)
{
	assert(start < end && end <= SHIFT_BYTES_MAX && s->nr_want < SHIFT_MATCHES_MAX);
	assert(s->nr_want == 0 || s->want[s->nr_want - 1].end <= start);
	s->want[s->nr_want++] = (struct shift_range){ start, end };
	s->nr_bytes += end - start;
}

static void cut_range(struct shift *s, uint32_t start, uint32_t end)
{
	size_t n;

	for (uint32_t at = start; (n = cdc_cut(s->cdc, s->p + at, end - at)) > 0;) {
		uint32_t slot;
		unsigned nr_steps = 0;

		at += (uint32_t)n;
		assert(s->nr_ends < SHIFT_ENDS_MAX);
		s->ends[s->nr_ends++] = at;
		for (slot = slot_of(s->p + at); s->slots[slot] != 0 && nr_steps < STEPS_MAX; nr_steps++)
			slot = (slot + 1) % SHIFT_SLOTS;
		if (s->slots[slot] == 0)
			s->slots[slot] = at; /* chunks have at least 256 bytes: half of the slots stay free */
	}
}

/* Chunk what is still wanted. If most was found at the expected offset, that is little. */
static void chunk_wanted(struct shift *s)
{
	if (s->is_cut)
		return;
	memset(s->slots, 0, sizeof(s->slots));
	for (unsigned i = 0; i < s->nr_want; i++)
		cut_range(s, s->want[i].start, s->want[i].end);
	s->is_cut = true;
}

static uint32_t equal_forward(const uint8_t *a, const uint8_t *b, uint32_t max)
{
	uint32_t n = 0;

	while (n + 64 <= max && memcmp(a + n, b + n, 64) == 0)
		n += 64;
	while (n < max && a[n] == b[n])
		n++;
	return n;
}

/* Length of the equal bytes before a and b. */
static uint32_t equal_backward(const uint8_t *a, const uint8_t *b, uint32_t max)
{
	uint32_t n = 0;

	while (n + 64 <= max && memcmp(a - n - 64, b - n - 64, 64) == 0)
		n += 64;
	while (n < max && a[-(ptrdiff_t)n - 1] == b[-(ptrdiff_t)n - 1])
		n++;
	return n;
}

/* Remove a part of the i-th wanted range. Remainders too short for a match are no longer wanted. */
static void take_out(struct shift *s, unsigned i, uint32_t start, uint32_t end)
{
	struct shift_range parts[2] = { { s->want[i].start, start }, { end, s->want[i].end } };
	unsigned nr = 0;

	s->nr_bytes -= s->want[i].end - s->want[i].start;
	for (unsigned k = 0; k < ARRAY_SIZE(parts); k++)
		if (parts[k].end - parts[k].start >= SHIFT_MATCH_MIN) {
			s->nr_bytes += parts[k].end - parts[k].start;
			parts[nr++] = parts[k];
		}
	assert(s->nr_want + nr <= SHIFT_WANT_MAX); /* a match adds at most one */
	memmove(s->want + i + nr, s->want + i + 1, (s->nr_want - i - 1) * sizeof(*s->want));
	memcpy(s->want + i, parts, nr * sizeof(*parts));
	s->nr_want += nr - 1;
}

struct old {
	const uint8_t *p;
	uint32_t len;
	uint64_t base;
};

/* Compare new data around `at`, in the i-th wanted range, with old data around `from`. True: they match. */
static bool try_match(struct shift *s, unsigned i, uint32_t at, const struct old *o, uint32_t from)
{
	struct shift_range w = s->want[i];
	uint32_t after, before;

	if (s->nr_matches == SHIFT_MATCHES_MAX)
		return false;
	after = equal_forward(s->p + at, o->p + from, MIN(w.end - at, o->len - from));
	before = equal_backward(s->p + at, o->p + from, MIN(at - w.start, from));
	if (before + after < SHIFT_MATCH_MIN)
		return false;
	s->matches[s->nr_matches++] = (struct shift_match){ at - before, before + after, o->base + from - before };
	take_out(s, i, at - before, at + after);
	return true;
}

/* Index of the wanted range with the byte before `at`; nr_want: none. */
static unsigned range_at(const struct shift *s, uint32_t at)
{
	unsigned low = 0, high = s->nr_want;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (s->want[middle].end < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low < s->nr_want && s->want[low].start < at ? low : s->nr_want;
}

const struct shift_range *shift_wants(const struct shift *s, uint32_t at)
{
	unsigned i = range_at(s, at);

	return i < s->nr_want ? &s->want[i] : NULL;
}

/* Try both ends of each range at the expected offset: a range may contain no boundary. Backwards, because ranges are
 * removed. */
static void look_where_supposed(struct shift *s, const struct old *o, int64_t delta)
{
	for (unsigned i = s->nr_want; i-- > 0;) {
		struct shift_range w = s->want[i];
		int64_t from = (int64_t)w.start + delta - (int64_t)o->base, to = from + (w.end - w.start);

		if (from >= 0 && from < o->len)
			try_match(s, i, w.start, o, (uint32_t)from);
		if (to > 0 && to <= o->len && i < s->nr_want && s->want[i].end == w.end)
			try_match(s, i, w.end, o, (uint32_t)to);
	}
}

/* The old data before `from` is an anchor. Returns the end of the match in the old data; 0: no match. */
static uint32_t look_at_anchor(struct shift *s, const struct old *o, uint32_t from)
{
	unsigned nr_tries = 0;
	uint32_t at;

	for (uint32_t slot = slot_of(o->p + from); (at = s->slots[slot]) != 0 && nr_tries < TRIES_MAX;
	     slot = (slot + 1) % SHIFT_SLOTS) {
		unsigned i;

		if (memcmp(s->p + at - ANCHOR, o->p + from - ANCHOR, ANCHOR) != 0)
			continue;
		nr_tries++;
		i = range_at(s, at);
		if (i < s->nr_want && try_match(s, i, at, o, from)) {
			const struct shift_match *m = &s->matches[s->nr_matches - 1];

			return (uint32_t)(m->from - o->base) + m->len;
		}
	}
	return 0;
}

unsigned shift_look(struct shift *s, const uint8_t *old, uint32_t len, uint64_t base, int64_t delta)
{
	struct old o = { old, len, base };
	unsigned before = s->nr_matches;
	uint32_t found_to = 0;
	size_t n;

	look_where_supposed(s, &o, delta);
	if (s->nr_want > 0)
		chunk_wanted(s);
	for (uint32_t at = 0; s->nr_want > 0 && (n = cdc_cut(s->cdc, old + at, len - at)) > 0;) {
		at += (uint32_t)n;
		if (at > found_to)
			found_to = MAX(found_to, look_at_anchor(s, &o, at));
	}
	return s->nr_matches - before;
}

/* --- maps --- */

/* Approximate number of anchors in `len` bytes. */
static uint64_t expected(const struct cdc *cdc, uint64_t len)
{
	return len / cdc->params.avg + 1;
}

uint64_t shift_map_slots(const struct cdc *cdc, uint64_t len, uint64_t max)
{
	uint64_t n = 64;

	while (n < max && n < 2 * expected(cdc, len))
		n *= 2;
	return n;
}

void shift_map_init(struct shift_map *m, uint64_t nr_slots, const struct cdc *cdc, uint64_t len)
{
	*m = (struct shift_map){ .nr_slots = nr_slots, .nr_max = nr_slots / 4 * 3 };
	memset(m->slots, 0, nr_slots * sizeof(m->slots[0]));
	while (expected(cdc, len) / (m->mask + 1) > nr_slots / 2)
		m->mask = 2 * m->mask + 1;
}

/* Uses other bits than those that decide whether an anchor is left out. */
static uint64_t map_slot_of(const struct shift_map *m, uint64_t hash)
{
	return hash >> 24 & (m->nr_slots - 1);
}

static void map_put(struct shift_map *m, uint64_t hash, uint64_t end)
{
	uint64_t slot = map_slot_of(m, hash);

	if (hash & m->mask || m->nr == m->nr_max)
		return;
	for (unsigned i = 0; m->slots[slot].hash != 0; i++) {
		if (m->slots[slot].hash == hash || i == STEPS_MAX)
			return; /* keep the first one */
		slot = (slot + 1) & (m->nr_slots - 1);
	}
	m->slots[slot] = (struct shift_map_slot){ hash, end };
	m->nr++;
}

void shift_map_add(struct shift_map *m, const struct cdc *cdc, const uint8_t *p, uint32_t len, uint64_t base)
{
	size_t n;

	for (uint32_t at = 0; (n = cdc_cut(cdc, p + at, len - at)) > 0;) {
		at += (uint32_t)n;
		map_put(m, hash_of(p + at), base + at);
	}
}

/* 0: not found. */
static uint64_t map_get(const struct shift_map *m, uint64_t hash)
{
	uint64_t slot = map_slot_of(m, hash);

	while (m->slots[slot].hash != 0 && m->slots[slot].hash != hash)
		slot = (slot + 1) & (m->nr_slots - 1);
	return m->slots[slot].hash != 0 ? m->slots[slot].end : 0;
}

unsigned shift_map_find(const struct shift_map *m, struct shift *s, unsigned max, struct shift_place *ret)
{
	unsigned nr = 0;

	chunk_wanted(s);
	for (unsigned i = 0; i < s->nr_ends && nr < max; i++) {
		uint32_t at = s->ends[i];
		uint64_t from = shift_wants(s, at) ? map_get(m, hash_of(s->p + at)) : 0;

		if (from != 0 && (nr == 0 || from - at != ret[nr - 1].from - ret[nr - 1].at))
			ret[nr++] = (struct shift_place){ at, from };
	}
	return nr;
}
