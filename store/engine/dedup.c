/*
 * New or known: what a job does with its chunks: pages or, cut by content (chunker.h), of varied lengths.
 *
 *   chunk ─ all zero ─────────────────────────────▶ hole
 *     │ fingerprint
 *     ├─ same as the champion's at this offset? ──▶ champion   (a comparison with the pack's table, no look-up)
 *     ├─ same as what lies behind the last match? ▶ successor  (likewise: neighbours stay neighbours)
 *     ├─ in memory: stored lately? ───────────────▶ memory
 *     ├─ in RocksDB? ─────────────────────────────▶ indexed    (unless the filter says no; one by one, after some
 *     │                                                        misses the rest in one batch)
 *     ├─ auto, and moved in the champion? ────────▶ shifted    (shifted.c; to the byte: what is left of its pages is
 *     cut │                                                        and goes through all this once more)
 *     └─ no: append ──────────────────────────────▶ fresh
 *
 * Every answer is an address whose full fingerprint has been compared in the pack's own table. To be exact when several
 * writers bring the same new page at once, the last look into memory and the reservation of the place happen under one
 * lock (append_lock); RocksDB needs no second look unless fingerprints moved into it meanwhile (absorb_generation).
 *
 * A place given out before its bytes are written may be shared at once. Whoever shares waits for the write before its
 * recipe says so; if the write failed, it begins again. Crash: nothing in the log points at a frame that was not
 * written.
 *
 * Many new pages make a frame of their own, written from the job's memory; few are copied into the small frame that all
 * jobs share and that is written when it is full or at a commit. The small frame is in our hands: sharing needs no
 * wait. Chunks of varied lengths go to such a frame in any case: they lie anywhere in memory, and disks want whole
 * blocks.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "index/fingerprints.h"
#include "store/engine/dedup.h"
#include "store/engine/engine_internal.h"

#define TRIES_MAX 100u /* to share a chunk whose writing failed, as its owner is about to forget it */
#define MISSES_MAX 4u /* in a row, then the rest is asked for at once */
#define BULK_MIN (PACK_FRAME_BYTES / 4 * 3) /* bytes of new pages worth a frame of their own: its table costs 0.5 % */

static const uint8_t *page_of(const struct batch *b, unsigned i)
{
	return b->data + b->at[i];
}

static uint32_t len_of(const struct batch *b, unsigned i)
{
	return b->at[i + 1] - b->at[i];
}

static bool is_zero(const uint8_t *p, size_t len)
{
	uint64_t w[2] = { 0 };

	memcpy(w, p, MIN(len, sizeof(w)));
	if (w[0] | w[1])
		return false; /* most pages show it at once */
	return len <= 8 || memcmp(p, p + 8, len - 8) == 0;
}

/* Fingerprint runs of pages that are unknown. */
static void fingerprint(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		unsigned start = i;

		while (i < b->n && b->cause[i] == UNKNOWN)
			i++;
		for (unsigned k = start; !b->page && k < i; k++)
			b->fps[k] = fp_of(&b->e->key, page_of(b, k), len_of(b, k));
		if (b->page && i > start)
			fp_of_each(&b->e->key, page_of(b, start), b->page, i - start, b->fps + start);
	}
}

/* With `verify`, equal fingerprints are not enough. */
static bool same_bytes(struct batch *b, unsigned i, struct addr a)
{
	_cleanup_(freep) uint8_t *stored = NULL;

	if (!b->e->conf.verify)
		return true;
	stored = aligned_alloc(PACK_BLOCK, round_up(len_of(b, i), PACK_BLOCK));
	if (!stored || packs_read(b->e->packs, a, len_of(b, i), stored) < 0)
		return packs_is_damaged(b->e->packs, a); /* the caller heals it */
	if (memcmp(stored, page_of(b, i), len_of(b, i)) == 0)
		return true;
	atomic_fetch_add_explicit(&b->e->count.verified_different, len_of(b, i), memory_order_relaxed);
	return false;
}

/* What lies at `a` is intact, or is now. Where it cannot be written over we look for another copy, and store one if
 * there is none; heal.c then points all who share the damaged one there. */
static bool make_good(struct batch *b, unsigned i, struct addr a)
{
	int r = packs_is_damaged(b->e->packs, a) ? packs_heal(b->e->packs, a, page_of(b, i), len_of(b, i)) : 0;

	if (r == -EOPNOTSUPP) {
		if (!b->any_damaged)
			memset(b->damaged, 0, sizeof(b->damaged));
		b->any_damaged = true;
		b->damaged[i] = a;
	} else if (r < 0) {
		b->alone[i] = true;
	}
	return r == 0;
}

/* Page i is what lies at `a`. */
static bool take(struct batch *b, unsigned i, struct addr a, enum cause cause)
{
	if (freed_condemned(b->e, a))
		return false;
	if (!same_bytes(b, i, a)) {
		b->alone[i] = true;
		return false;
	}
	if (!make_good(b, i, a))
		return false;
	b->addr[i] = a;
	b->cause[i] = cause;
	return true;
}

/* Does the hint lead to it? Then *ret is where it lies. */
static bool matches(struct batch *b, unsigned i, struct addr hint, struct addr *ret)
{
	uint32_t len;
	struct fp fp;

	return packs_find(b->e->packs, hint, ret, &len, &fp) > 0 && len == len_of(b, i) && fp_equal(fp, b->fps[i]);
}

/* Where chunk k is, if chunk i is at `a` and they are neighbours there as they are here. */
static struct addr after(const struct batch *b, struct addr a, unsigned i, unsigned k)
{
	a.off += b->at[k] - b->at[i];
	return a;
}

/* How many of the addresses from i on lie side by side in one frame, as one table look-up can answer. */
static unsigned run_length(const struct batch *b, const struct addr *a, unsigned i)
{
	unsigned n = 1;

	while (i + n < b->n && addr_equal(a[i + n], after(b, a[i], i, i + n)) && pack_same_frame(a[i], a[i + n]))
		n++;
	return n;
}

/* The same for varied lengths: a chunk is where it should be if one of its length begins there. */
static void compare_varied(struct batch *b, const struct addr *a, enum cause cause)
{
	struct pack_chunk there[PAGES_MAX];
	bool was_there = true;
	int told;

	for (unsigned i = 0, n; i < b->n; i += n) {
		n = 1;
		if (addr_is_none(a[i]))
			continue;
		if (was_there) /* else likely none of them is */
			n = run_length(b, a, i);
		told = packs_chunks(b->e->packs, a[i], b->at[i + n] - b->at[i], n, there);
		was_there = told > 0;
		for (unsigned k = 0; k < n; k++) {
			if (told <= (int)k || there[k].off != a[i + k].off || there[k].len != len_of(b, i + k)) {
				n = k + 1; /* from here on they are cut in other places: look again */
				break;
			}
			if (b->cause[i + k] == UNKNOWN && fp_equal(there[k].fp, b->fps[i + k]))
				take(b, i + k, a[i + k], cause);
		}
	}
}

static void compare_with(struct batch *b, const struct addr *a, enum cause cause)
{
	struct fp fps[PAGES_MAX];
	int told;

	if (!b->page) {
		compare_varied(b, a, cause);
		return;
	}
	for (unsigned i = 0, n; i < b->n; i += n) {
		n = 1;
		if (addr_is_none(a[i]) || a[i].off % PACK_BLOCK)
			continue;
		n = run_length(b, a, i);
		told = packs_fps(b->e->packs, a[i], b->page, n, fps);
		for (unsigned k = i; told > 0 && k < i + (unsigned)told; k++)
			if (b->cause[k] == UNKNOWN && fp_equal(fps[k - i], b->fps[k]))
				take(b, k, a[k], cause);
	}
}

static unsigned nr_unknown(const struct batch *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < b->n; i++)
		n += b->cause[i] == UNKNOWN;
	return n;
}

static bool all_known(const struct batch *b)
{
	return memchr(b->cause, UNKNOWN, b->n) == NULL;
}

static void ask_file(struct batch *b, struct content *c)
{
	struct addr a[PAGES_MAX];

	if (content_addresses(c, b->off, b->at, b->n, a) == 0)
		compare_with(b, a, CHAMPION); /* without it we only look longer */
}

/* The file's own old bytes, then its champions' until one knows most. */
static void ask_champions(struct batch *b)
{
	struct content *champions[CHAMPIONS_MAX];
	unsigned nr;

	ask_file(b, b->c);
	nr = champions_get(b->c, false, champions);
	for (unsigned i = 0; i < nr; i++) {
		unsigned before = nr_unknown(b);

		if (before > b->n / 2) {
			ask_file(b, champions[i]);
			champion_knew(b->c, champions[i], before - nr_unknown(b), b->n);
		}
		content_close(champions[i]);
	}
}

static struct addr find_in_memory(struct engine *e, struct fp fp) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = fptable_find(&e->recent, fp);
	struct addr a;

	if (!s)
		s = fptable_find(&e->frozen, fp);
	if (!s)
		s = fptable_find(&e->kept, fp);
	if (!s)
		return ADDR_NONE;
	a = (struct addr){ .pack = s->pack, .off = s->off };
	return freed_condemned(e, a) ? ADDR_NONE : a;
}

/* Each look is a cache miss: let them all be on their way before the first one waits. */
static void prefetch(const struct engine *e, struct fp fp) REQUIRES(e->append_lock)
{
	fptable_prefetch(&e->recent, fp);
	fptable_prefetch(&e->frozen, fp);
	fptable_prefetch(&e->kept, fp);
	if (e->filter.in_use.blocks)
		__builtin_prefetch(fingerprint_filter_block(&e->filter.in_use, fingerprint_key(fp)));
}

/* Page i has been found: what follows in its frame is likely what follows in the file, but for pages that changed. */
static void ask_neighbours(struct batch *b, unsigned i)
{
	struct addr a[PAGES_MAX];

	for (unsigned k = 0; k < b->n; k++) {
		a[k] = k > i ? after(b, b->addr[i], i, k) : ADDR_NONE;
		if (!addr_is_none(a[k]) && !pack_same_frame(a[k], b->addr[i]))
			a[k] = ADDR_NONE;
	}
	compare_with(b, a, SUCCESSOR);
}

static void ask_memory(struct batch *b, uint64_t *ret_generation)
{
	struct engine *e = b->e;
	struct addr a[PAGES_MAX];

	mutex_lock(&e->append_lock);
	*ret_generation = e->absorb_generation;
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == UNKNOWN)
			prefetch(e, b->fps[i]);
	for (unsigned i = 0; i < b->n; i++) {
		a[i] = b->cause[i] == UNKNOWN ? find_in_memory(e, b->fps[i]) : ADDR_NONE;
		b->absent[i] = e->filter.in_use.blocks &&
			       !fingerprint_filter_has(&e->filter.in_use, fingerprint_key(b->fps[i]));
	}
	mutex_unlock(&e->append_lock);
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == UNKNOWN && !b->alone[i] && !addr_is_none(a[i]) && take(b, i, a[i], MEMORY))
			ask_neighbours(b, i);
}

/* All still unknown from `from` on, in one batched look-up. */
static int ask_index_all(struct batch *b, unsigned from)
{
	struct fp fps[PAGES_MAX];
	struct addr a[PAGES_MAX], found;
	unsigned n = 0, in_vain = 0;
	int r;

	for (unsigned i = from; i < b->n; i++)
		if (b->cause[i] == UNKNOWN && !b->absent[i] && !b->alone[i])
			fps[n++] = b->fps[i];
	r = n > 0 ? fingerprints_find(b->e->db, fps, n, a) : 0;
	if (r < 0)
		return r;
	n = 0;
	for (unsigned i = from; i < b->n; i++)
		if (b->cause[i] == UNKNOWN && !b->absent[i] && !b->alone[i]) {
			if (addr_is_none(a[n]))
				in_vain++;
			else if (matches(b, i, a[n], &found))
				take(b, i, found, INDEXED);
			n++;
		}
	atomic_fetch_add_explicit(&b->e->count.in_vain, in_vain, memory_order_relaxed);
	return 0;
}

/* One hit is often followed by its neighbours, which cost no further look-up; several misses by more of them. */
static int ask_index(struct batch *b)
{
	unsigned misses = 0;
	struct addr a;
	int r;

	for (unsigned i = 0; i < b->n; i++) {
		if (b->cause[i] != UNKNOWN || b->absent[i] || b->alone[i])
			continue;
		r = fingerprints_find(b->e->db, &b->fps[i], 1, &a);
		if (r < 0)
			return r;
		if (!addr_is_none(a) && matches(b, i, a, &a) && take(b, i, a, INDEXED)) {
			ask_neighbours(b, i);
			misses = 0;
		} else if (++misses == MISSES_MAX) {
			return ask_index_all(b, i + 1);
		}
	}
	return 0;
}

/* --- appending --- */

/* A place in memory's table for a page of this very job: pack PLACEHOLDER, offset = index of the page. */
#define PLACEHOLDER UINT32_MAX

/* What memory may have there is condemned or damaged, or it would have been found. */
static int claim_page(struct engine *e, struct fp fp, unsigned i) REQUIRES(e->append_lock)
{
	struct addr a = { .pack = PLACEHOLDER, .off = i };
	struct fptable_slot *s = fptable_find(&e->recent, fp);

	if (!s)
		return fptable_insert(&e->recent, fp, a, 0);
	s->pack = a.pack;
	s->off = a.off;
	return 0;
}

static int claim(struct engine *e, struct batch *b, unsigned *ret_nr) REQUIRES(e->append_lock)
{
	unsigned nr = 0;
	int r;

	for (unsigned i = 0; i < b->n; i++) {
		struct addr a;

		if (b->cause[i] != UNKNOWN)
			continue;
		a = b->alone[i] ? ADDR_NONE : find_in_memory(e, b->fps[i]);
		if (addr_is_none(a) || packs_is_damaged(e->packs, a)) {
			r = b->alone[i] ? 0 : claim_page(e, b->fps[i], i);
			if (r < 0)
				return r;
			b->cause[i] = CLAIMED;
			nr++;
		} else {
			b->addr[i] = a; /* maybe a placeholder: resolved below */
			b->cause[i] = MEMORY;
		}
	}
	*ret_nr = nr;
	return 0;
}

static void unclaim(struct engine *e, struct batch *b) REQUIRES(e->append_lock)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED || b->addr[i].pack == PLACEHOLDER) {
			if (b->cause[i] == CLAIMED && !b->alone[i])
				fptable_remove(&e->recent, b->fps[i]);
			b->addr[i] = ADDR_NONE;
			b->cause[i] = UNKNOWN;
		}
}

static void place(struct engine *e, struct batch *b, unsigned i, struct pack_frame *f) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = b->alone[i] ? NULL : fptable_find(&e->recent, b->fps[i]);

	if (b->page)
		b->addr[i] = pack_frame_add(f, b->fps[i], page_of(b, i));
	else
		b->addr[i] = pack_frame_add_varied(f, b->fps[i], page_of(b, i), len_of(b, i));
	if (s) {
		s->pack = b->addr[i].pack;
		s->off = b->addr[i].off;
		s->number = pack_frame_last(f);
	}
}

/* The shared frame that takes a chunk like this. */
static struct pack_frame **shared_frame(struct engine *e, const struct batch *b) REQUIRES(e->append_lock)
{
	return b->page ? &e->small : &e->varied;
}

static int small_frame(struct engine *e, const struct batch *b, unsigned i, struct pack_frame **full, unsigned *nr_full)
	REQUIRES(e->append_lock)
{
	struct pack_frame **f = shared_frame(e, b);

	if (*f && !pack_frame_takes(*f, len_of(b, i))) {
		full[(*nr_full)++] = TAKE(*f);
		e->nr_filling++;
	}
	return *f ? 0 : packs_frame_open(e->packs, PACK_SMALL, b->page, f);
}

/* A frame of its own is compressed as the file is to be; a shared one as anyone wants who is in it. */
static void set_compression(struct engine *e, const struct batch *b, struct pack_frame *bulk) REQUIRES(e->append_lock)
{
	struct pack_frame *shared = *shared_frame(e, b);

	if (bulk)
		pack_frame_set_compression(bulk, b->compression);
	else if (shared && b->compression.kind != PACK_COMPRESS_NONE)
		pack_frame_set_compression(shared, b->compression);
}

/* Give every claimed page its place. *bulk is the job's own frame, `full` are small frames that are to be written
 * now. */
static int place_all(struct engine *e, struct batch *b, unsigned nr, struct pack_frame **bulk, struct pack_frame **full,
		     unsigned *nr_full) REQUIRES(e->append_lock)
{
	int r = 0;

	if (b->page && nr * (uint64_t)b->page >= BULK_MIN)
		r = packs_frame_open(e->packs, PACK_BULK, b->page, bulk);
	else if (nr > 0 && e->nr_unwritten >= NR_UNWRITTEN_MAX)
		r = e->unwritten_error;
	for (unsigned i = 0; i < b->n && r == 0; i++) {
		if (b->cause[i] != CLAIMED)
			continue;
		if (!*bulk)
			r = small_frame(e, b, i, full, nr_full);
		if (r == 0) {
			set_compression(e, b, *bulk);
			place(e, b, i, *bulk ? *bulk : *shared_frame(e, b));
		}
	}
	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->addr[i].pack == PLACEHOLDER)
			b->addr[i] = b->addr[b->addr[i].off];
	return r;
}

/* A small frame that cannot be written now stays in memory, readable, and is tried again at the next commit. */
static void write_small(struct engine *e, struct pack_frame *f)
{
	int r = packs_frame_write(e->packs, f);

	mutex_lock(&e->append_lock);
	if (r < 0) {
		e->unwritten[e->nr_unwritten++] = f;
		e->unwritten_error = r;
	}
	e->nr_filling--;
	cond_broadcast(&e->filling_cond);
	mutex_unlock(&e->append_lock);
}

static int write_bulk(struct batch *b, struct pack_frame *f)
{
	struct engine *e = b->e;
	int r = packs_frame_write(e->packs, f);

	if (r == 0)
		return 0;
	mutex_lock(&e->append_lock);
	unclaim(e, b);
	mutex_unlock(&e->append_lock);
	packs_frame_abandon(e->packs, f);
	return r;
}

/* 1: appended; 0: fingerprints moved into RocksDB since we asked it, ask again; <0. */
static int append(struct batch *b, uint64_t generation)
{
	struct pack_frame *bulk = NULL, *full[2]; /* 256 chunks of 1 MiB at most fill one up, and perhaps another */
	struct engine *e = b->e;
	unsigned nr, nr_full = 0;
	int r;

	mutex_lock(&e->append_lock);
	while (e->nr_filling + e->nr_unwritten >= NR_UNWRITTEN_MAX && e->nr_filling > 0)
		cond_wait(&e->filling_cond, &e->append_lock);
	r = absorb_throttle(e);
	if (r < 0 || e->absorb_generation != generation) {
		mutex_unlock(&e->append_lock);
		return r;
	}
	r = claim(e, b, &nr);
	if (r == 0)
		r = place_all(e, b, nr, &bulk, full, &nr_full);
	if (r < 0)
		unclaim(e, b);
	mutex_unlock(&e->append_lock);
	for (unsigned i = 0; i < nr_full; i++)
		write_small(e, full[i]);
	if (r < 0) {
		if (bulk)
			packs_frame_abandon(e->packs, bulk);
		return r;
	}
	if (bulk)
		r = write_bulk(b, bulk);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] == CLAIMED)
			b->cause[i] = FRESH;
	return 1;
}

/*
 * Whose bytes we share may still be on their way. 1: all there, 0: one failed and is unknown again. Its owner takes it
 * out of the table of recent ones; if that one has been frozen meanwhile it stays, so after some tries we store our
 * own.
 */
static int wait_for_shared(struct batch *b, unsigned nr_tries)
{
	struct addr there = ADDR_NONE; /* the last one waited for, with all of its frame */
	int all = 1;

	for (unsigned i = 0; i < b->n; i++) {
		if (b->cause[i] == ZERO || b->cause[i] == SHIFTED || b->cause[i] == FRESH)
			continue;
		if (!addr_is_none(there) && pack_same_frame(there, b->addr[i]))
			continue;
		if (packs_wait(b->e->packs, b->addr[i]) == 0) {
			there = b->addr[i];
			continue;
		}
		b->addr[i] = ADDR_NONE;
		b->cause[i] = UNKNOWN;
		b->alone[i] = nr_tries >= TRIES_MAX;
		all = 0;
	}
	if (!all)
		sched_yield(); /* the owner is about to take it out of the table */
	return all;
}

static void count(struct batch *b)
{
	struct engine_counters *k = &b->e->count;
	_Atomic uint64_t *const counter[] = {
		[ZERO] = &k->zero,     [CHAMPION] = &k->champion, [SUCCESSOR] = &k->successor,
		[MEMORY] = &k->memory, [INDEXED] = &k->indexed,	  [FRESH] = &k->fresh,
	}; /* SHIFTED ones are counted to the byte */
	uint64_t bytes[FRESH + 1] = { 0 };

	for (unsigned i = 0; i < b->n; i++)
		bytes[b->cause[i]] += len_of(b, i);
	for (int i = ZERO; i <= FRESH; i++)
		if (bytes[i] && counter[i])
			atomic_fetch_add_explicit(counter[i], bytes[i], memory_order_relaxed);
}

static void note_damaged(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		if (b->cause[i] != ZERO && !b->alone[i] && !addr_is_none(b->damaged[i]) &&
		    !addr_equal(b->addr[i], b->damaged[i]))
			heal_note(b->e, b->damaged[i], len_of(b, i), b->addr[i]);
}

/* Of the first `len` bytes, which begin at `base` of the job. */
static int extents_of(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret)
{
	int r = 0;

	for (unsigned i = 0; i < b->n && r == 0; i++)
		if (b->cause[i] != ZERO && b->cause[i] != SHIFTED)
			r = extent_list_add(ret, base + b->at[i], MIN(len, b->at[i + 1]) - b->at[i], b->addr[i]);
	return r;
}

static int settle(struct batch *b)
{
	unsigned nr_tries = 0;
	uint64_t generation;
	int r;

	do {
		do {
			ask_memory(b, &generation);
			r = all_known(b) ? 1 : ask_index(b);
			if (r == 0)
				r = all_known(b) ? 1 : append(b, generation);
		} while (r == 0);
		if (r < 0)
			return r;
	} while (wait_for_shared(b, nr_tries++) == 0);
	return 0;
}

void batch_clear(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		b->cause[i] = is_zero(page_of(b, i), len_of(b, i)) ? ZERO : UNKNOWN;
	memset(b->alone, 0, b->n);
	memset(b->addr, 0, b->n * sizeof(b->addr[0]));
	b->any_damaged = false;
}

void batch_begin(struct batch *b)
{
	fingerprint(b);
	ask_champions(b);
}

int batch_look(struct batch *b)
{
	uint64_t generation;

	ask_memory(b, &generation);
	return all_known(b) ? 0 : ask_index(b);
}

int batch_finish(struct batch *b, uint32_t base, uint32_t len, struct extent_list *ret)
{
	int r;

	if (!all_known(b) || wait_for_shared(b, 0) == 0) {
		r = settle(b);
		if (r < 0)
			return r;
	}
	if (b->any_damaged)
		note_damaged(b);
	r = extents_of(b, base, len, ret);
	if (r == 0)
		count(b);
	return r;
}

int batch_store_cuts(struct batch *b, const struct job *j, struct extent_list *ret)
{
	uint32_t base = 0;
	int r = 0;

	for (size_t done = 0; done < j->nr_cuts && r == 0; done += b->n, base += b->at[b->n]) {
		b->data = j->data + base;
		b->off = j->off + base;
		b->n = (unsigned)MIN(j->nr_cuts - done, (size_t)PAGES_MAX);
		b->at[0] = 0;
		for (unsigned i = 0; i < b->n; i++)
			b->at[i + 1] = j->cuts[done + i] - base;
		batch_clear(b);
		batch_begin(b);
		r = batch_finish(b, base, b->at[b->n], ret);
	}
	return r;
}

static int store_pages(struct batch *b, const struct job *j, struct extent_list *ret)
{
	b->n = (unsigned)((j->len + b->page - 1) / b->page);
	for (unsigned i = 0; i <= b->n; i++)
		b->at[i] = i * b->page;
	batch_clear(b);
	if (b->c->is_auto)
		return batch_store_shifted(b, j, ret);
	batch_begin(b);
	return batch_finish(b, 0, j->len, ret);
}

int dedup_store(struct engine *e, const struct job *j, struct extent_list *ret)
{
	_cleanup_(freep) struct batch *b = malloc(sizeof(*b));
	struct content *c = j->c;

	if (!b)
		return -ENOMEM;
	b->e = e;
	b->c = c;
	b->data = j->data;
	b->off = j->off;
	b->page = j->cuts ? PACK_VARIED : (uint32_t)e->conf.page;
	mutex_lock(&c->lock);
	b->compression = compress_for_pack(c->compress);
	mutex_unlock(&c->lock);
	return j->cuts ? batch_store_cuts(b, j, ret) : store_pages(b, j, ret);
}

/*
 * Called by a commit: every chunk the log refers to is written, then durable. The sync's point is set under the lock
 * that frames are opened with, when no small frame is open: each frame before it is with a thread that is writing it.
 */
int dedup_sync_frames(struct engine *e, struct pack_marks *ret)
{
	struct pack_frame *mine[ARRAY_SIZE(e->unwritten) + 2];
	unsigned nr = 0;

	mutex_lock(&e->append_lock);
	while (e->nr_unwritten > 0)
		mine[nr++] = e->unwritten[--e->nr_unwritten];
	if (e->small)
		mine[nr++] = TAKE(e->small);
	if (e->varied)
		mine[nr++] = TAKE(e->varied);
	e->nr_filling += nr;
	packs_sync_begin(e->packs);
	mutex_unlock(&e->append_lock);
	for (unsigned i = 0; i < nr; i++)
		write_small(e, mine[i]);
	return packs_sync_end(e->packs, ret); /* a frame that cannot be written makes it fail */
}
