/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/match_runs.h"

#define HASH_BITS 17u
#define NONE UINT32_MAX
#define TRIES 4 /* earlier elements with the same hash that are compared */
#define GUESS_STEP 8u /* one in so many elements is examined */
/* One in so many elements of a part must occur in another part to refer to it: decoding that part costs time. */
#define NAMED_MIN 100u
#define SIGN (UINT64_C(1) << 63)
#define NEAR_BITS 12u /* lowest bits that are ignored when searching for an element */
/* Approximate costs in bits: of a left-over element, of a run, and of a run with a distance that is not recent. */
#define ELEMENT_BITS 52u
#define RUN_BITS 14
#define FAR_BITS 20
#define EQUAL_MIN 16u /* elements after which an equal run ends at the first one that differs */

/* Number of elements of a part that occur in the same set of other parts. */
struct where {
	uint16_t parts, nr;
};

struct match {
	const uint8_t *frame; /* borrowed */
	uint32_t len, lead[MATCH_PARTS];
	bool big_endian;
	/* hash chains of element numbers, most recent first: the left-over elements of the parts taken, and all
	 * elements of the current part */
	uint32_t head[1u << HASH_BITS], before[MATCH_PARTS * MATCH_ELEMENTS];
	uint64_t left[MATCH_PARTS * MATCH_ELEMENTS / 64]; /* a bit for each element */

	/* of the current part */
	uint32_t hash_of[MATCH_ELEMENTS];
	uint32_t names; /* bit q: it may refer to part q; includes itself */
	struct where where[MATCH_ELEMENTS];
	uint32_t nr_where;
	/* index + 1 in where[] by set of parts; all 0 except while a part is examined */
	uint16_t slot[1u << MATCH_PARTS];
	struct match_runs runs; /* of the part taken last */
	uint8_t rest[MATCH_PART];
};

struct match *match_new(void)
{
	struct match *m = calloc(1, sizeof(*m));

	if (m && match_runs_init(&m->runs) < 0) {
		free(m);
		return NULL;
	}
	return m;
}

void match_free(struct match *m)
{
	if (!m)
		return;
	match_runs_release(&m->runs);
	free(m);
}

uint32_t match_guess_lead(const uint8_t *p, uint32_t len)
{
	uint32_t same[MATCH_WIDTH] = { 0 }, best = MATCH_WIDTH - 1;

	/* The highest bytes of neighbours are equal most often: signs and exponents. Zeros are not significant. */
	for (uint32_t at = 0; at + 2 * MATCH_WIDTH <= len; at += GUESS_STEP * MATCH_WIDTH)
		for (uint32_t i = 0; i < MATCH_WIDTH; i++)
			same[i] += p[at + i] == p[at + MATCH_WIDTH + i] && p[at + i] != 0;
	for (uint32_t i = 0; i < MATCH_WIDTH; i++)
		if (same[i] > same[best])
			best = i;
	return (best + 1) % MATCH_WIDTH;
}

/* Elements are numbered with MATCH_ELEMENTS per part, whether the part has as many or not. */
static uint32_t place_of_element(const struct match *m, uint32_t element)
{
	return element / MATCH_ELEMENTS * MATCH_PART + m->lead[element / MATCH_ELEMENTS] +
	       element % MATCH_ELEMENTS * MATCH_WIDTH;
}

static uint32_t part_len(const struct match *m, uint32_t part)
{
	return MIN(m->len - part * MATCH_PART, MATCH_PART);
}

static uint32_t nr_elements(const struct match *m, uint32_t part)
{
	return (part_len(m, part) - m->lead[part]) / MATCH_WIDTH;
}

static uint64_t load(const struct match *m, uint32_t place)
{
	return match_load(m->frame + place, m->big_endian);
}

/*
 * Elements that are near each other have the same key, except for a few at its edges. Floats are compared without their
 * sign and lowest bits. A value with the exponent of 0 or infinity may be an integer, and must be equal.
 */
static uint64_t key_of(uint64_t x)
{
	uint64_t exponent = x >> 52 & 0x7ff;

	return exponent == 0 || exponent == 0x7ff ? x : ((x & ~SIGN) + (UINT64_C(1) << (NEAR_BITS - 1))) >> NEAR_BITS;
}

static uint32_t hash(uint64_t x)
{
	x = key_of(x);
	x ^= x >> 29;
	return (uint32_t)(x * 0x9e3779b97f4a7c15 >> (64 - HASH_BITS));
}

/* Difference of x to its source, with the sign in the lowest bit. */
static uint64_t difference(uint64_t x, uint64_t source)
{
	uint64_t d = x - source;

	return d << 1 ^ (uint64_t)((int64_t)d >> 63);
}

static bool is_left(const struct match *m, uint32_t element)
{
	return m->left[element / 64] >> element % 64 & 1;
}

/* Add an element to the hash table. */
static void enter(struct match *m, uint32_t element)
{
	uint32_t *head = &m->head[m->hash_of[element % MATCH_ELEMENTS]];

	m->before[element] = *head;
	*head = element;
}

/* Parts that contain an element, as far as a few tries find them; 0 if its own part contains it, too. */
static uint32_t parts_with(const struct match *m, uint32_t element, uint64_t x)
{
	uint32_t parts = 0, at = m->before[element];

	for (int i = 0; i < TRIES && at != NONE; i++, at = m->before[at]) {
		if (key_of(load(m, place_of_element(m, at))) != key_of(x))
			continue;
		if (at / MATCH_ELEMENTS == element / MATCH_ELEMENTS)
			return 0;
		parts |= 1u << at / MATCH_ELEMENTS;
	}
	return parts;
}

static void count(struct match *m, uint32_t parts)
{
	uint16_t *slot = &m->slot[parts];

	if (*slot == 0) {
		m->where[m->nr_where++] = (struct where){ .parts = (uint16_t)parts };
		*slot = (uint16_t)m->nr_where;
	}
	m->where[*slot - 1].nr++;
}

/* Add the elements of a part to the hash table; count those that occur in other parts but not earlier in this one. */
static void add_elements(struct match *m, uint32_t part)
{
	uint32_t first = part * MATCH_ELEMENTS, nr = nr_elements(m, part);

	m->nr_where = 0;
	for (uint32_t e = first; e < first + nr; e++) {
		uint64_t x = load(m, place_of_element(m, e));
		uint32_t parts;

		m->hash_of[e - first] = hash(x);
		enter(m, e);
		if (x == 0) /* zeros are everywhere */
			continue;
		parts = parts_with(m, e, x);
		if (parts > 0)
			count(m, parts);
	}
	for (uint32_t i = 0; i < m->nr_where; i++)
		m->slot[m->where[i].parts] = 0;
}

/* Number of elements that occur in part `part`, and in none of `names`. */
static uint32_t found_in(const struct match *m, uint32_t part, uint32_t names)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < m->nr_where; i++) {
		const struct where *w = &m->where[i];

		nr += w->parts >> part & 1 && (w->parts & names) == 0 ? w->nr : 0;
	}
	return nr;
}

/* Choose the parts that contribute most elements that those chosen before do not have. */
static uint32_t choose_names(const struct match *m, uint32_t part)
{
	uint32_t names = 1u << part;

	for (unsigned i = 1; i < MATCH_DECODED_MAX; i++) {
		uint32_t most = nr_elements(m, part) / NAMED_MIN, best = part;

		for (uint32_t k = 0; k < part; k++) {
			uint32_t nr = names >> k & 1 ? 0 : found_in(m, k, names);

			if (nr > most) {
				most = nr;
				best = k;
			}
		}
		names |= 1u << best;
	}
	return names;
}

uint32_t match_look(struct match *m, const uint8_t *frame, uint32_t len, const uint32_t *leads, bool big_endian)
{
	uint32_t nr_parts = (len + MATCH_PART - 1) / MATCH_PART, found = 0;

	assert(nr_parts <= MATCH_PARTS);
	m->frame = frame;
	m->len = len;
	m->big_endian = big_endian;
	memset(m->head, 0xff, sizeof(m->head));
	memset(m->left, 0, sizeof(m->left));
	for (uint32_t i = 0; i < nr_parts; i++) {
		m->lead[i] = leads[i] < part_len(m, i) ? leads[i] : 0;
		for (uint32_t e = i * MATCH_ELEMENTS; e < i * MATCH_ELEMENTS + nr_elements(m, i); e++) {
			uint64_t x = load(m, place_of_element(m, e));
			uint32_t *head = &m->head[hash(x)];

			found += *head != NONE && key_of(load(m, place_of_element(m, *head))) == key_of(x);
			*head = e;
		}
	}
	memset(m->head, 0xff, sizeof(m->head));
	return found;
}

/* Does a left-over element begin there? Parts may have different leads. */
static bool left_at(const struct match *m, uint32_t place)
{
	uint32_t part = place / MATCH_PART, in = place % MATCH_PART - m->lead[part];

	return in % MATCH_WIDTH == 0 && in < MATCH_PART && is_left(m, part * MATCH_ELEMENTS + in / MATCH_WIDTH);
}

/* Restrict the hash table to the left-over elements of the part. */
static void leave(struct match *m, uint32_t part)
{
	uint32_t first = part * MATCH_ELEMENTS, end = first + nr_elements(m, part);

	for (uint32_t e = end; e-- > first;)
		m->head[m->hash_of[e - first]] = m->before[e];
	for (uint32_t e = first; e < end; e++)
		if (is_left(m, e))
			enter(m, e);
}

/* A possible run, and the approximate number of bits it saves. */
struct candidate {
	struct match_run run;
	int32_t saved;
};

/* Is there an element that may be referred to, and is decoded before the one at `at`? */
static bool is_source(const struct match *m, uint32_t at, uint32_t from)
{
	uint32_t part = at / MATCH_PART, source = from / MATCH_PART;

	if (source == part)
		return from + MATCH_WIDTH <= at;
	return from % MATCH_PART + MATCH_WIDTH <= MATCH_PART && left_at(m, from);
}

/* The run from element `e` on with its source beginning at `from`. */
static struct candidate run_at(const struct match *m, uint32_t e, uint32_t end, uint32_t from, bool backwards)
{
	uint32_t at = place_of_element(m, e), source = from / MATCH_PART, nr = 0, bits = 0,
		 first = source * MATCH_PART + m->lead[source];
	uint64_t negated = (load(m, at) ^ load(m, from)) & SIGN;
	bool near = false;

	for (; e + nr < end; nr++) {
		uint32_t to = at + nr * MATCH_WIDTH, p = backwards ? from - nr * MATCH_WIDTH : from + nr * MATCH_WIDTH;
		uint64_t d;

		if (p / MATCH_PART != source || (backwards && p < first) || !is_source(m, to, p))
			break;
		d = difference(load(m, to), load(m, p) ^ negated);
		if (d > MATCH_NEAR_MAX || (d > 0 && !near && nr >= EQUAL_MIN))
			break;
		near = near || d > 0;
		bits += d > 0 ? 64 - (uint32_t)__builtin_clzll(d) : 0;
	}
	return (struct candidate){
		.run = { .nr = nr,
			 .distance = at - from,
			 .kind = (backwards ? MATCH_KIND_BACKWARDS : 0) | (negated ? MATCH_KIND_NEGATED : 0) |
				 (near ? MATCH_KIND_NEAR : 0) },
		.saved = (int32_t)(nr * (ELEMENT_BITS - (near ? 1 : 0))) - (int32_t)bits -
			 (match_runs_is_recent(&m->runs, at - from) ? RUN_BITS : RUN_BITS + FAR_BITS),
	};
}

/* Consider both directions; replaces *best if one is better. */
static void consider(const struct match *m, uint32_t e, uint32_t end, uint32_t from, struct candidate *best)
{
	uint32_t at = place_of_element(m, e);

	if (from >= at || !(m->names >> from / MATCH_PART & 1) ||
	    difference(load(m, at) & ~SIGN, load(m, from) & ~SIGN) > MATCH_NEAR_MAX)
		return;
	for (unsigned backwards = 0; backwards < 2; backwards++) {
		struct candidate c = run_at(m, e, end, from, backwards);

		if (c.run.nr > 0 && c.saved > best->saved)
			*best = c;
	}
}

/* The run from element `e` on that saves most; nr is 0 if none saves anything. */
static struct match_run best_run(const struct match *m, uint32_t e, uint32_t end)
{
	uint32_t at = place_of_element(m, e), other = m->before[e];
	struct candidate best = { .saved = 0 };

	for (unsigned i = 0; i < MATCH_NR_RECENT; i++)
		if (m->runs.recent[i] > 0 && m->runs.recent[i] <= at)
			consider(m, e, end, at - m->runs.recent[i], &best);
	for (int i = 0; i < TRIES && other != NONE; i++, other = m->before[other])
		consider(m, e, end, place_of_element(m, other), &best);
	return best.run;
}

static void add_run(struct match *m, uint32_t e, const struct match_run *run)
{
	uint32_t at = place_of_element(m, e), from = at - run->distance, source = from / MATCH_PART;
	uint64_t negated = run->kind & MATCH_KIND_NEGATED ? SIGN : 0;

	match_runs_add(&m->runs, run, source == at / MATCH_PART ? 0 : 1u << source);
	for (uint32_t i = 0; i < run->nr && run->kind & MATCH_KIND_NEAR; i++, at += MATCH_WIDTH) {
		match_runs_add_difference(&m->runs, (uint32_t)difference(load(m, at), load(m, from) ^ negated));
		from = run->kind & MATCH_KIND_BACKWARDS ? from - MATCH_WIDTH : from + MATCH_WIDTH;
	}
}

const uint8_t *match_take(struct match *m, uint32_t part, uint32_t *ret_len)
{
	uint32_t first = part * MATCH_ELEMENTS, end = first + nr_elements(m, part), tail = part_len(m, part),
		 rest = m->lead[part];
	const uint8_t *p = m->frame + part * MATCH_PART;

	add_elements(m, part);
	m->names = choose_names(m, part);
	match_runs_start(&m->runs, p, tail, rest);
	memcpy(m->rest, p, rest);
	for (uint32_t e = first, nr; e < end; e += nr) {
		struct match_run run = best_run(m, e, end);

		if (run.nr > 0) {
			add_run(m, e, &run);
			nr = run.nr;
			continue;
		}
		nr = 1;
		memcpy(m->rest + rest, m->frame + place_of_element(m, e), MATCH_WIDTH);
		rest += MATCH_WIDTH;
		match_runs_skip(&m->runs);
		m->left[e / 64] |= UINT64_C(1) << e % 64;
	}
	leave(m, part);
	tail -= m->lead[part] + (end - first) * MATCH_WIDTH;
	memcpy(m->rest + rest, p + part_len(m, part) - tail, tail);
	*ret_len = rest + tail;
	return m->rest;
}

int match_encode(struct match *m, struct code_type type, const void *rest, uint32_t rest_len, void *ret,
		 uint32_t *ret_place)
{
	return match_runs_encode(&m->runs, type, rest, rest_len, ret, ret_place);
}
