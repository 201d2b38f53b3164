/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Moved bytes, for files with chunking=auto.
 *
 * Such a file is chunked into pages. For pages that no other lookup finds (dedup.c), the champions' bytes are read and
 * searched (shift.h). Bytes that are found are referred to where they are stored: extents may begin and end anywhere,
 * as those of clones do. So nothing has to be stored again when the data of a series of files starts to move, and it
 * does not matter how earlier files were chunked.
 *
 * Where to search: first at the same distance as the last match. If that fails, the champion is mapped, that is, its
 * anchors and their offsets are collected; after that no reading is needed to see that nothing matches. A large
 * champion is mapped by samples, and completely only step by step. Mapping starts at the place where bytes were no
 * longer found, because an insertion or deletion ends there. It covers more the more bytes were searched for without
 * success and the more other bytes were found.
 *
 * The addresses are copied from the champion's recipe, under its lock, and the bytes at these addresses are read and
 * compared. As with clones, that is sufficient for the collector (gc.c): it happens inside e->users, and the addresses
 * are in the log before that ends. A map is a hint, because the champion may have changed since.
 *
 * Memory: 1.3 MiB per job in a search, plus the maps, which are kept while a file is being written that has the mapped
 * file as a champion.
 */
#include "store/dedup/shifted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/champions.h"
#include "store/dedup/champions_state.h"
#include "store/dedup/write_jobs.h"
#include "store/file/content.h"
#include "store/remote_hooks.h"

#define AROUND ((uint32_t)KiB(64)) /* before and after the expected place: insertions and deletions are seldom larger */
#define WINDOW_MAX ((uint32_t)MiB(1) + 2 * AROUND)
#define PLACES_MAX 8u /* per job, each of which may cost reading a window */
#define AGAIN_AFTER 8u /* unsuccessful jobs */
#define AGAIN_EACH 32u
#define MAP_MIN KiB(64) /* bytes not at the expected distance that make a map worthwhile */
#define MAP_WHOLE MiB(32) /* a champion up to this size is mapped at once if it has ever matched */
#define MAP_STEP MiB(1)
#define MAP_SAMPLE KiB(64) /* of each step */
#define MAP_FIRST MiB(4) /* always mapped completely; also the limit for one job */
#define MAP_SLOTS (UINT64_C(1) << 17) /* 2 MiB */
#define MAPS_PART 16u /* fraction of `cache` for all maps together; beyond that no maps are made */
#define LIKELY 2u /* champions searched even if they have never matched */
#define NR_UNUSED 4u /* searches whose memory is kept: those of the workers and a request thread */
#define FOUND_MIN 4u /* jobs with moved bytes after which the file counts as moved */

struct shifted_map {
	uint64_t nr_steps, nr_whole; /* steps of the champion; of these, mapped completely */
	uint64_t *whole; /* one bit per step */
	struct shift_map anchors;
};

struct search {
	struct engine *e;
	struct content *c;
	const struct job *j;
	struct shift_hint hint; /* copy from the start of the search */
	struct shift shift;
	struct extent_list window; /* the recipe of `bytes` */
	struct extent_list parts; /* extents of all matches, in the order found */
	uint64_t at, from; /* ends of the match furthest into the job, in file and champion; 0: none */
	int error; /* a match lacks some of its extents: use none */
	struct remote_look look;
	uint8_t bytes[WINDOW_MAX];
};

/* Search memory is large and needed often, so it is reused. */
struct searches {
	struct search *_Atomic unused[NR_UNUSED];
	_Atomic uint64_t map_memory; /* bytes of all maps */
};

struct searches *searches_new(void)
{
	return calloc(1, sizeof(struct searches));
}

void searches_free(struct searches *s)
{
	for (unsigned i = 0; s && i < NR_UNUSED; i++)
		free(atomic_load(&s->unused[i]));
	free(s);
}

static struct search *search_take(struct engine *e)
{
	for (unsigned i = 0; i < NR_UNUSED; i++) {
		struct search *s = atomic_exchange(&e->searches->unused[i], NULL);

		if (s)
			return s;
	}
	return malloc(sizeof(struct search));
}

static void search_free(struct search *s)
{
	struct search *none;

	if (!s)
		return;
	extent_list_release(&s->window);
	extent_list_release(&s->parts);
	for (unsigned i = 0; i < NR_UNUSED; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&s->e->searches->unused[i], &none, s))
			return;
	}
	free(s);
}

static void search_freep(struct search **s)
{
	search_free(*s);
}

void shifted_free(struct shifted *s)
{
	if (!s)
		return;
	extent_list_release(&s->extents);
	free(s);
}

static void shifted_freep(struct shifted **s)
{
	shifted_free(*s);
}

static int add_parts(struct search *s, const struct shift_match *m, uint64_t base)
{
	uint32_t from = (uint32_t)(m->from - base);
	int r = 0;

	for (size_t i = 0; i < s->window.nr && r == 0; i++) {
		const struct extent *x = &s->window.x[i];
		uint32_t start = MAX(x->off, from), end = MIN(x->off + x->len, from + m->len);
		struct addr a = x->addr;

		if (start >= end)
			continue;
		a.off += start - x->off;
		r = extent_list_add(&s->parts, m->at + (start - from), end - start, a);
	}
	return r;
}

/* May new data refer to all chunks of it? */
static bool is_usable(struct search *s, const struct extent *x)
{
	struct engine *e = s->e;
	struct pack_chunk_info info;
	struct addr a = x->addr;

	for (; a.off < x->addr.off + x->len; a.off = info.start.off + info.len)
		if (!e->remote->chunk_is_usable(e, a, &s->look) || packs_chunk_info(e->packs, a, &info) <= 0)
			return false;
	return true;
}

/* Extents that must not be referred to become holes. */
static void leave_out_unusable(struct search *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->window.nr; i++)
		if (is_usable(s, &s->window.x[i]))
			s->window.x[nr++] = s->window.x[i];
	s->window.nr = nr;
}

static int window_read(struct search *s, struct content *champion, uint64_t start, uint64_t *end)
{
	const struct remote_hooks *remote = s->e->remote;
	int r;

	s->window.nr = 0;
	r = content_logged_extents(champion, start, end, &s->window);
	if (r == 0 && remote && remote->any_unusable(s->e))
		leave_out_unusable(s);
	return r < 0 || start >= *end ? MIN(r, 0) :
					extents_read(champion, &s->window, s->bytes, (size_t)(*end - start), start);
}

/* Search this range of the champion. Returns the number of matches or <0. */
static int search_window(struct search *s, struct content *champion, uint64_t start, uint64_t end, int64_t delta)
{
	unsigned before = s->shift.nr_matches;
	int r;

	r = window_read(s, champion, start, &end);
	if (r < 0 || start >= end)
		return r;
	shift_look(&s->shift, s->bytes, (uint32_t)(end - start), start, (int64_t)s->j->off + delta);
	for (unsigned i = before; i < s->shift.nr_matches && r == 0; i++) {
		const struct shift_match *m = &s->shift.matches[i];

		s->error = r = add_parts(s, m, start);
		if (s->j->off + m->at + m->len > s->at) {
			s->at = s->j->off + m->at + m->len;
			s->from = m->from + m->len;
		}
	}
	return r < 0 ? r : (int)(s->shift.nr_matches - before);
}

static uint64_t plus(uint64_t at, int64_t delta)
{
	return delta < 0 && at < (uint64_t)-delta ? 0 : at + (uint64_t)delta;
}

/* Search for all wanted bytes in [first, last), at distance `delta`. */
static int look_around(struct search *s, struct content *champion, uint32_t first, uint32_t last, int64_t delta)
{
	uint64_t start = plus(plus(s->j->off + first, delta), -(int64_t)AROUND);
	uint64_t end = plus(plus(s->j->off + last, delta), AROUND);

	return search_window(s, champion, start, MIN(end, start + WINDOW_MAX), delta);
}

/* --- maps of champions --- */

static uint64_t map_bytes(const struct shifted_map *m)
{
	return sizeof(*m) + m->anchors.nr_slots * sizeof(m->anchors.slots[0]) + m->nr_steps / 8 + sizeof(*m->whole);
}

void shifted_unmap(struct champions *its)
{
	mutex_lock(&its->map_lock);
	if (its->map && atomic_load(&its->nr_challengers) == 0) {
		atomic_fetch_sub(&content_engine(its->of)->searches->map_memory, map_bytes(its->map));
		free(its->map->whole);
		free(TAKE(its->map));
	}
	mutex_unlock(&its->map_lock);
}

static struct shifted_map *map_new(struct engine *e, uint64_t size)
{
	uint64_t nr = shift_map_slots(&e->cdc, size, MAP_SLOTS);
	struct shifted_map *m = malloc(sizeof(*m) + nr * sizeof(m->anchors.slots[0]));

	if (!m)
		return NULL;
	*m = (struct shifted_map){ .nr_steps = size / MAP_STEP + 1 };
	m->whole = calloc(m->nr_steps / 64 + 1, sizeof(*m->whole));
	shift_map_init(&m->anchors, nr, &e->cdc, size);
	if (m->whole && atomic_fetch_add(&e->searches->map_memory, map_bytes(m)) + map_bytes(m) <= e->conf.cache / MAPS_PART)
		return m;
	if (m->whole) /* too many maps: without this one, less is found */
		atomic_fetch_sub(&e->searches->map_memory, map_bytes(m));
	free(m->whole);
	free(m);
	return NULL;
}

static int map_add(struct search *s, struct champions *its, uint64_t step, uint64_t len) REQUIRES(its->map_lock)
{
	uint64_t start = step * MAP_STEP, end = start + len;
	int r = window_read(s, its->of, start, &end);

	if (r == 0 && start < end)
		shift_map_add(&its->map->anchors, &s->e->cdc, s->bytes, (uint32_t)(end - start), start);
	return r;
}

static int map_begin(struct search *s, struct champions *its) REQUIRES(its->map_lock)
{
	uint64_t size = content_logged_size(its->of);
	int r = 0;

	its->map = map_new(s->e, size);
	if (!its->map || size <= MAP_FIRST)
		return 0;
	for (uint64_t i = 0; i < its->map->nr_steps && r == 0; i++)
		r = map_add(s, its, i, MAP_SAMPLE);
	return r;
}

/* Number of steps that may be mapped completely by now, such that reading them is likely to pay off. */
static uint64_t map_allowed(const struct search *s, const struct champions *its) REQUIRES(its->map_lock)
{
	const struct shifted_map *m = its->map;
	uint64_t vain = s->hint.vain_bytes + s->shift.nr_bytes, bytes;

	if (!champion_is_useful(s->c, its->of))
		bytes = vain / 16;
	else if (m->nr_steps * MAP_STEP <= MAP_WHOLE)
		return m->nr_steps;
	else
		bytes = (s->hint.nr_found >= FOUND_MIN ? 16 : 4) * vain;
	return MIN((MAP_FIRST + bytes) / MAP_STEP, m->nr_whole + MAP_FIRST / MAP_STEP);
}

/* Map more steps completely, starting at `from`. */
static int map_more(struct search *s, struct champions *its, uint64_t from) REQUIRES(its->map_lock)
{
	struct shifted_map *m = its->map;
	uint64_t most = map_allowed(s, its), first = from / MAP_STEP;
	int r = 0;

	first -= first > 0;
	for (uint64_t i = 0; i < m->nr_steps && m->nr_whole < most && r == 0; i++) {
		uint64_t step = (first + i) % m->nr_steps;

		if (m->whole[step / 64] >> step % 64 & 1)
			continue;
		r = map_add(s, its, step, MAP_STEP);
		m->whole[step / 64] |= UINT64_C(1) << step % 64;
		m->nr_whole++;
	}
	return r;
}

static unsigned find_in_map(struct search *s, struct content *champion, uint64_t from, struct shift_place *ret)
{
	struct champions *its = content_champions(champion);
	unsigned nr = 0;

	mutex_lock(&its->map_lock); /* held while reading: other threads that wait here would read the same */
	if (!its->map && s->shift.nr_bytes >= MAP_MIN)
		map_begin(s, its); /* on error, use what has been mapped */
	if (its->map) {
		if (s->shift.nr_bytes >= MAP_MIN)
			map_more(s, its, from);
		nr = shift_map_find(&its->map->anchors, &s->shift, PLACES_MAX, ret);
	}
	mutex_unlock(&its->map_lock);
	return nr;
}

/* --- searching --- */

/* Expected offset of this job's first wanted byte in the champion, without insertions or deletions. */
static uint64_t lost_at(const struct search *s, const struct content *champion)
{
	const struct shift_range *w = &s->shift.want[0];

	if (w->start > 0 || s->hint.nr_vain == 0)
		return s->at > 0 ? s->from : s->j->off + w->start;
	return s->hint.ino == content_ino(champion) ? s->hint.from : s->j->off;
}

static int search_mapped(struct search *s, struct content *champion)
{
	struct shift_place places[PLACES_MAX];
	unsigned nr = find_in_map(s, champion, lost_at(s, champion), places);
	int r = 0;

	for (unsigned i = 0; i < nr && r >= 0; i++) {
		const struct shift_range *w = shift_wants(&s->shift, places[i].at);

		if (w)
			r = look_around(s, champion, w->start, w->end,
					(int64_t)(places[i].from - (s->j->off + places[i].at)));
	}
	return MIN(r, 0);
}

/* Returns the number of matches. */
static int search(struct search *s, struct content *champion)
{
	struct shift *sh = &s->shift;
	unsigned before = sh->nr_matches;
	uint64_t all = sh->nr_bytes;
	int r = 0;

	if (sh->nr_want > 0 && (s->hint.nr_vain == 0 || s->hint.nr_vain % AGAIN_EACH == AGAIN_AFTER))
		r = look_around(s, champion, sh->want[0].start, sh->want[sh->nr_want - 1].end,
				s->hint.ino == content_ino(champion) ? (int64_t)(s->hint.from - s->hint.at) : 0);
	if (r >= 0 && sh->nr_want > 0 && sh->nr_bytes > all / 16)
		r = search_mapped(s, champion);
	return r < 0 ? r : (int)(sh->nr_matches - before);
}

static int by_at(const void *a, const void *b)
{
	const struct shift_match *x = a, *y = b;

	return (x->at > y->at) - (x->at < y->at);
}

static int by_off(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

/* Accept the runs of which enough was found. */
static int accept(struct search *s, const struct shift_range *runs, unsigned nr, struct shifted *ret)
{
	struct shift_match *m = s->shift.matches, *end = m + s->shift.nr_matches;
	struct extent *x = s->parts.x, *last = x ? x + s->parts.nr : NULL;
	int r = 0;

	qsort(m, s->shift.nr_matches, sizeof(*m), by_at);
	if (x)
		qsort(x, s->parts.nr, sizeof(*x), by_off);
	for (unsigned i = 0; i < nr && r == 0; i++) {
		uint32_t enough = (runs[i].end - runs[i].start) / 8, sum = 0;
		unsigned before = ret->nr_found;

		for (; m < end && m->at < runs[i].end; m++) {
			ret->found[ret->nr_found++] = (struct shift_range){ m->at, m->at + m->len };
			sum += m->len;
		}
		if (sum < enough)
			ret->nr_found = before;
		for (; x < last && x->off < runs[i].end && r == 0; x++)
			if (sum >= enough)
				r = extent_list_add(&ret->extents, x->off, x->len, x->addr);
	}
	return r;
}

static void hint_set(struct content *c, const struct search *s, uint64_t ino)
{
	struct champions *p = content_champions(c);

	mutex_lock(&p->lock);
	if (ino != 0) {
		p->shift.nr_vain = 0;
		p->shift.nr_found++;
		if (s->at > p->shift.at || ino != p->shift.ino) {
			p->shift.ino = ino;
			p->shift.at = s->at;
			p->shift.from = s->from;
		}
	} else {
		p->shift.nr_vain++;
	}
	p->shift.vain_bytes += s->shift.nr_bytes;
	mutex_unlock(&p->lock);
}

static struct search *search_new(struct content *c, const struct job *j, const struct shift_range *runs, unsigned nr)
{
	struct champions *p = content_champions(c);
	struct engine *e = content_engine(c);
	struct search *s = search_take(e);

	if (!s)
		return NULL;
	s->e = e;
	s->c = c;
	s->j = j;
	mutex_lock(&p->lock);
	s->hint = p->shift;
	mutex_unlock(&p->lock);
	s->window = s->parts = (struct extent_list){ 0 };
	s->at = s->from = 0;
	s->error = 0;
	s->look.pack = 0;
	shift_init(&s->shift, &e->cdc, j->data);
	for (unsigned i = 0; i < nr; i++)
		shift_want(&s->shift, runs[i].start, runs[i].end);
	return s;
}

/* Search the champions in turn until one has most. Returns the inode of the first with a match; 0: none. */
static uint64_t search_all(struct search *s, struct content **champions, unsigned nr)
{
	uint64_t all = s->shift.nr_bytes, ino = 0;

	for (unsigned i = 0; i < nr && s->error == 0 && s->shift.nr_bytes > all / 2; i++) {
		if (i >= LIKELY && !champion_is_useful(s->c, champions[i]))
			continue;
		/* a champion that cannot be read counts as one without a match */
		if (search(s, champions[i]) > 0 && ino == 0) {
			ino = content_ino(champions[i]);
			champion_knew(s->c, champions[i], 1, 1);
		}
	}
	return ino;
}

bool shifted_is_likely(struct content *c)
{
	struct champions *p = content_champions(c);
	bool is;

	mutex_lock(&p->lock);
	is = p->shift.nr_found >= FOUND_MIN && p->shift.nr_vain == 0;
	mutex_unlock(&p->lock);
	return is;
}

int shifted_find(struct content *c, const struct job *j, const struct shift_range *runs, unsigned nr, struct shifted **ret)
{
	_cleanup_(shifted_freep) struct shifted *found = NULL;
	_cleanup_(search_freep) struct search *s = NULL;
	struct content *champions[CHAMPIONS_MAX];
	unsigned nr_champions = nr > 0 ? champions_get(c, true, champions) : 0;
	uint64_t ino = 0;
	int r;

	if (nr_champions == 0)
		return 0;
	s = search_new(c, j, runs, nr);
	if (s)
		ino = search_all(s, champions, nr_champions);
	for (unsigned i = 0; i < nr_champions; i++)
		content_close(champions[i]);
	r = s ? s->error : -ENOMEM;
	if (r < 0)
		return r;
	hint_set(c, s, ino);
	if (ino == 0)
		return 0;
	found = calloc(1, sizeof(*found));
	r = found ? accept(s, runs, nr, found) : -ENOMEM;
	if (r < 0 || found->nr_found == 0)
		return r;
	*ret = TAKE(found);
	return 1;
}
