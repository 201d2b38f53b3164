#include "store/code/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/code/match_runs.h"

#define HASH_BITS 17u
#define NONE UINT32_MAX
#define TRIES 8 /* earlier elements with the same hash that are looked at */
#define GUESS_STEP 8u /* of so many elements one is looked at */
/* New elements of a part that must be in another one for it to be named: decoding that one costs time. */
#define NAMED_MIN (MATCH_ELEMENTS / 200)

/* In which parts elements of one part are: of those with the same answer how many. */
struct where {
	uint16_t parts, nr;
};

struct match {
	const uint8_t *frame; /* borrowed */
	uint32_t len, lead[MATCH_PARTS];
	uint32_t names[MATCH_PARTS]; /* bit q: part q is decoded for it; itself, too */
	/* elements by number, the last one with its hash first */
	uint32_t head[1u << HASH_BITS], before[MATCH_PARTS * MATCH_ELEMENTS];
	struct where where[MATCH_PARTS][MATCH_ELEMENTS];
	uint32_t nr_where[MATCH_PARTS];
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

/* Which parts have an element, as far as they are found with a few tries. */
static uint32_t parts_with(const struct match *m, uint32_t element, uint64_t x)
{
	uint32_t parts = 0, at = m->before[element];

	for (int i = 0; i < TRIES && at != NONE; i++, at = m->before[at])
		if (load(m->frame + place_of(m, at)) == x)
			parts |= 1u << at / MATCH_ELEMENTS;
	return parts;
}

static void count(struct match *m, uint32_t part, uint32_t parts)
{
	uint16_t *slot = &m->slot[parts];

	if (*slot == 0) {
		m->where[part][m->nr_where[part]++] = (struct where){ .parts = (uint16_t)parts };
		*slot = (uint16_t)m->nr_where[part];
	}
	m->where[part][*slot - 1].nr++;
}

/* Puts the elements of a part where they are found, and counts those that other parts have. Returns how many it has
 * itself, twice. */
static uint32_t look_at(struct match *m, uint32_t part)
{
	uint32_t first = part * MATCH_ELEMENTS, nr = nr_elements(m, part), own = 0;

	m->nr_where[part] = 0;
	for (uint32_t e = first; e < first + nr; e++) {
		uint64_t x = load(m->frame + place_of(m, e));
		uint32_t *head = &m->head[hash(x)], parts;

		m->before[e] = *head;
		*head = e;
		if (x == 0) { /* where others are does not matter */
			own += e > first;
			continue;
		}
		parts = parts_with(m, e, x);
		if (parts >> part & 1)
			own++;
		else if (parts > 0)
			count(m, part, parts);
	}
	for (uint32_t i = 0; i < m->nr_where[part]; i++)
		m->slot[m->where[part][i].parts] = 0;
	return own;
}

/* Elements of a part that are in these, and in none that it names already. */
static uint32_t found_in(const struct match *m, uint32_t part, uint32_t parts)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < m->nr_where[part]; i++) {
		const struct where *w = &m->where[part][i];

		nr += (w->parts & parts) != 0 && (w->parts & m->names[part]) == 0 ? w->nr : 0;
	}
	return nr;
}

/* Those that name this part come to name what it names, too. */
static bool may_name(const struct match *m, uint32_t part, uint32_t other, uint32_t nr_parts)
{
	uint32_t names = m->names[part] | m->names[other];

	for (uint32_t i = part; i < nr_parts; i++)
		if (m->names[i] >> part & 1 && (unsigned)__builtin_popcount(m->names[i] | names) > MATCH_DECODED_MAX)
			return false;
	return true;
}

/* The best of all pairs that are left, until there is none: what is decided first hinders the rest. Returns elements
 * that are found so. */
static uint32_t choose_names(struct match *m, uint32_t nr_parts)
{
	uint32_t all = 0, most;

	for (uint32_t i = 0; i < nr_parts; i++)
		m->names[i] = 1u << i;
	do {
		uint32_t part = 0, other = 0, names;

		most = 0;
		for (uint32_t i = 1; i < nr_parts; i++)
			for (uint32_t k = 0; k < i && m->nr_where[i] > 0; k++) {
				uint32_t nr = m->names[i] >> k & 1 ? 0 : found_in(m, i, m->names[k]);

				if (nr > most && nr >= NAMED_MIN && may_name(m, i, k, nr_parts)) {
					most = nr;
					part = i;
					other = k;
				}
			}
		names = m->names[part] | m->names[other];
		for (uint32_t i = part; i < nr_parts && most > 0; i++)
			if (m->names[i] >> part & 1)
				m->names[i] |= names;
		all += most;
	} while (most > 0);
	return all;
}

uint32_t match_look(struct match *m, const uint8_t *frame, uint32_t len, const uint32_t *leads)
{
	uint32_t nr_parts = (len + MATCH_PART - 1) / MATCH_PART, found = 0;

	assert(nr_parts <= MATCH_PARTS);
	m->frame = frame;
	m->len = len;
	memset(m->head, 0xff, sizeof(m->head));
	for (uint32_t i = 0; i < nr_parts; i++) {
		m->lead[i] = leads[i] < part_len(m, i) ? leads[i] : 0;
		found += look_at(m, i);
	}
	return found + choose_names(m, nr_parts);
}

/* How many elements from `e` on are the same at `from`, which has to be in one part that may be named. */
static uint32_t run_at(const struct match *m, uint32_t e, uint32_t end, uint32_t from)
{
	uint32_t at = place_of(m, e), part = e / MATCH_ELEMENTS, source = from / MATCH_PART, nr = 0;
	uint32_t source_end = source == part ? UINT32_MAX : (source + 1) * MATCH_PART; /* the part's own may overlap */

	if (!(m->names[part] >> source & 1) || from + MATCH_WIDTH > at)
		return 0;
	while (e + nr < end && from + (nr + 1) * MATCH_WIDTH <= source_end &&
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
	}
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
