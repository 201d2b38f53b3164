#include "store/code/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/code/match_runs.h"

#define HASH_BITS 17u
#define NONE UINT32_MAX
#define TRIES 4 /* earlier elements with the same hash that are looked at */
#define GUESS_STEP 8u /* of so many elements one is looked at */
/* Of so many elements of a part one must be in another part for that to be named: decoding it costs time. */
#define NAMED_MIN 100u

/* In which parts elements of one part are: of those with the same answer how many. */
struct where {
	uint16_t parts, nr;
};

struct match {
	const uint8_t *frame; /* borrowed */
	uint32_t len, lead[MATCH_PARTS];
	/* elements by number, the last one with its hash first: what is left of the parts that were taken, and all of
	 * the one that is looked at */
	uint32_t head[1u << HASH_BITS], before[MATCH_PARTS * MATCH_ELEMENTS];
	uint64_t left[MATCH_PARTS * MATCH_ELEMENTS / 64]; /* a bit for each element */

	/* of the part that is looked at */
	uint32_t names; /* bit q: it may name part q; itself, too */
	struct where where[MATCH_ELEMENTS];
	uint32_t nr_where;
	/* where[] of a set of parts, one more than its number; 0 but while a part is looked at */
	uint16_t slot[1u << MATCH_PARTS];
	struct match_runs runs; /* of the part that was taken */
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

static uint64_t load(const uint8_t *p)
{
	uint64_t x;

	memcpy(&x, p, sizeof(x));
	return x;
}

uint32_t match_guess_lead(const uint8_t *p, uint32_t len)
{
	uint32_t same[MATCH_WIDTH] = { 0 }, best = MATCH_WIDTH - 1;

	/* The highest bytes of neighbours are the same more often than any others: signs and exponents. Zeros tell
	 * nothing. */
	for (uint32_t at = 0; at + 2 * MATCH_WIDTH <= len; at += GUESS_STEP * MATCH_WIDTH)
		for (uint32_t i = 0; i < MATCH_WIDTH; i++)
			same[i] += p[at + i] == p[at + MATCH_WIDTH + i] && p[at + i] != 0;
	for (uint32_t i = 0; i < MATCH_WIDTH; i++)
		if (same[i] > same[best])
			best = i;
	return (best + 1) % MATCH_WIDTH;
}

/* Elements have numbers: MATCH_ELEMENTS for each part, whether it has as many or not. */
static uint32_t place_of(const struct match *m, uint32_t element)
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

static uint32_t hash(uint64_t x)
{
	x ^= x >> 29;
	return (uint32_t)(x * 0x9e3779b97f4a7c15 >> (64 - HASH_BITS));
}

static bool is_left(const struct match *m, uint32_t element)
{
	return m->left[element / 64] >> element % 64 & 1;
}

/* Where it is found from now on. */
static void enter(struct match *m, uint32_t element)
{
	uint32_t *head = &m->head[hash(load(m->frame + place_of(m, element)))];

	m->before[element] = *head;
	*head = element;
}

/* Which parts have an element, as far as they are found with a few tries. */
static uint32_t parts_with(const struct match *m, uint32_t element, uint64_t x)
{
	uint32_t parts = 0, at = m->before[element];

	for (int i = 0; i < TRIES && at != NONE; i++, at = m->before[at])
		if (load(m->frame + place_of(m, at)) == x)
			parts |= 1u << at / MATCH_ELEMENTS;
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

/* Enters the elements of a part, and counts those that other parts have and it has not further ahead. */
static void look_at(struct match *m, uint32_t part)
{
	uint32_t first = part * MATCH_ELEMENTS, nr = nr_elements(m, part);

	m->nr_where = 0;
	for (uint32_t e = first; e < first + nr; e++) {
		uint64_t x = load(m->frame + place_of(m, e));
		uint32_t parts;

		enter(m, e);
		if (x == 0) /* where others are does not matter */
			continue;
		parts = parts_with(m, e, x);
		if (parts > 0 && !(parts >> part & 1))
			count(m, parts);
	}
	for (uint32_t i = 0; i < m->nr_where; i++)
		m->slot[m->where[i].parts] = 0;
}

/* Elements of a part that are in another one, and in none that it names already. */
static uint32_t found_in(const struct match *m, uint32_t part, uint32_t names)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < m->nr_where; i++) {
		const struct where *w = &m->where[i];

		nr += w->parts >> part & 1 && (w->parts & names) == 0 ? w->nr : 0;
	}
	return nr;
}

/* Those that have most of what the ones before do not have. */
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

uint32_t match_look(struct match *m, const uint8_t *frame, uint32_t len, const uint32_t *leads)
{
	uint32_t nr_parts = (len + MATCH_PART - 1) / MATCH_PART, found = 0;

	assert(nr_parts <= MATCH_PARTS);
	m->frame = frame;
	m->len = len;
	memset(m->head, 0xff, sizeof(m->head));
	memset(m->left, 0, sizeof(m->left));
	for (uint32_t i = 0; i < nr_parts; i++) {
		m->lead[i] = leads[i] < part_len(m, i) ? leads[i] : 0;
		for (uint32_t e = i * MATCH_ELEMENTS; e < i * MATCH_ELEMENTS + nr_elements(m, i); e++) {
			uint64_t x = load(m->frame + place_of(m, e));
			uint32_t *head = &m->head[hash(x)];

			found += *head != NONE && load(m->frame + place_of(m, *head)) == x;
			*head = e;
		}
	}
	memset(m->head, 0xff, sizeof(m->head));
	return found;
}

/* Is what begins there an element that is left? Parts may have other leads. */
static bool left_at(const struct match *m, uint32_t place)
{
	uint32_t part = place / MATCH_PART, in = place % MATCH_PART - m->lead[part];

	return in % MATCH_WIDTH == 0 && in < MATCH_PART && is_left(m, part * MATCH_ELEMENTS + in / MATCH_WIDTH);
}

/* Only what is left of it is found by other parts. */
static void leave(struct match *m, uint32_t part)
{
	uint32_t first = part * MATCH_ELEMENTS, end = first + nr_elements(m, part);

	for (uint32_t e = end; e-- > first;)
		m->head[hash(load(m->frame + place_of(m, e)))] = m->before[e];
	for (uint32_t e = first; e < end; e++)
		if (is_left(m, e))
			enter(m, e);
}

/* How many elements from `e` on are the same at `from`, which has to be in one part that may be named. */
static uint32_t run_at(const struct match *m, uint32_t e, uint32_t end, uint32_t from)
{
	uint32_t at = place_of(m, e), part = e / MATCH_ELEMENTS, source = from / MATCH_PART, nr = 0;
	uint32_t source_end = source == part ? UINT32_MAX : (source + 1) * MATCH_PART; /* the part's own may overlap */

	if (!(m->names >> source & 1) || from + MATCH_WIDTH > at)
		return 0;
	while (e + nr < end && from + (nr + 1) * MATCH_WIDTH <= source_end &&
	       (source == part || left_at(m, from + nr * MATCH_WIDTH)) &&
	       load(m->frame + at + nr * MATCH_WIDTH) == load(m->frame + from + nr * MATCH_WIDTH))
		nr++;
	return nr;
}

/* The longest run, and how far before it lies: as far as the last one, if that is hardly shorter. */
static uint32_t best_run(const struct match *m, uint32_t e, uint32_t end, uint32_t *ret_distance)
{
	uint32_t at = place_of(m, e), last = m->runs.last, most = 0, nr, other = m->before[e];

	if (last > 0 && last <= at) {
		most = run_at(m, e, end, at - last);
		*ret_distance = last;
		most += most > 0;
	}
	for (int i = 0; i < TRIES && other != NONE; i++, other = m->before[other]) {
		nr = run_at(m, e, end, place_of(m, other));
		if (nr > most) {
			most = nr;
			*ret_distance = at - place_of(m, other);
		}
	}
	return most > 0 && *ret_distance == last ? run_at(m, e, end, at - last) : most;
}

const uint8_t *match_take(struct match *m, uint32_t part, uint32_t *ret_len)
{
	uint32_t first = part * MATCH_ELEMENTS, end = first + nr_elements(m, part), tail = part_len(m, part),
		 rest = m->lead[part];
	const uint8_t *p = m->frame + part * MATCH_PART;

	look_at(m, part);
	m->names = choose_names(m, part);
	match_runs_start(&m->runs, p, tail, rest);
	memcpy(m->rest, p, rest);
	for (uint32_t e = first, nr, distance = 0; e < end; e += nr) {
		nr = best_run(m, e, end, &distance);
		if (nr > 0) {
			uint32_t from = place_of(m, e) - distance;

			match_runs_add(&m->runs, nr, distance, from / MATCH_PART == part ? 0 : 1u << from / MATCH_PART);
			continue;
		}
		nr = 1;
		memcpy(m->rest + rest, m->frame + place_of(m, e), MATCH_WIDTH);
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
