/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/preload/heap.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "base/util.h"
#include "client/preload/heap_state.h"

#define ALIGN 16u
#define RANGE_MIN GiB(64) /* of addresses */
#define RESERVE_LEAST MiB(64)
#define GROW_MIN 64u /* units: the range grows by a quarter, within these bounds */
#define GROW_MAX 1024u
#define HOLD_TRIES 1000

/* its address identifies the thread, from its first instruction on */
static _Thread_local char self __attribute__((tls_model("initial-exec")));

/* --- lock --- */

/* The heap in which this thread is allocating: a signal handler that calls fork(2) must not wait for it. */
static _Thread_local _Atomic(struct heap *) inside __attribute__((tls_model("initial-exec")));

/* Takes the lock unless this thread holds the heap; true: heap_leave() must release it. */
static bool heap_enter(struct heap *h) NO_THREAD_SAFETY_ANALYSIS
{
	if (atomic_load_explicit(&h->holder, memory_order_relaxed) == &self)
		return false;
	atomic_store_explicit(&inside, h, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	siglock_lock(&h->lock);
	return true;
}

static void heap_leave(struct heap *h, bool entered) NO_THREAD_SAFETY_ANALYSIS
{
	if (!entered)
		return;
	siglock_unlock(&h->lock);
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&inside, NULL, memory_order_relaxed);
}

bool heap_is_inside(const struct heap *h)
{
	return atomic_load_explicit(&inside, memory_order_relaxed) == h;
}

bool heap_hold(struct heap *h) NO_THREAD_SAFETY_ANALYSIS
{
	for (int i = 0; !siglock_try(&h->lock); i++) {
		if (i == HOLD_TRIES)
			return false;
		sched_yield();
	}
	atomic_store(&h->holder, &self);
	return true;
}

bool heap_is_held(const struct heap *h)
{
	return atomic_load(&h->holder) == &self;
}

void heap_release(struct heap *h) NO_THREAD_SAFETY_ANALYSIS
{
	atomic_store(&h->holder, NULL);
	siglock_unlock(&h->lock);
}

/* --- the range --- */

static _Noreturn void heap_abort(const char *why)
{
	if (write(STDERR_FILENO, why, strlen(why)) < 0)
		abort();
	abort();
}

/* Maps only what is used, because RLIMIT_AS counts all mappings. false: the range is in use by other mappings, or
 * ENOMEM. */
static bool map_more(bool reserved, void *p, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_FIXED : MAP_FIXED_NOREPLACE);

	return len == 0 || syscall(SYS_mmap, p, len, PROT_READ | PROT_WRITE, flags, -1, 0) == (long)p;
}

/* Reserves a range at any address if the preferred one is in use: other mappings could be placed behind it. As large as
 * the limits of the process allow. */
static uint8_t *reserve(size_t len, size_t *ret_len)
{
	struct rlimit limit;

	if (syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		len = MIN(len, (size_t)round_down(limit.rlim_cur / 4, MiB(1)));
	for (; len >= RESERVE_LEAST; len = round_down(len / 2, MiB(1))) {
		long p = syscall(SYS_mmap, NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p != -1) {
			*ret_len = len;
			return (uint8_t *)p;
		}
	}
	return NULL;
}

static size_t range_bytes(size_t most)
{
	struct sysinfo info;
	size_t len = RANGE_MIN;

	if (syscall(SYS_sysinfo, &info) == 0) /* bypasses interpose_processes.c, which may allocate */
		len = MAX(len, (size_t)round_up(4 * (uint64_t)info.totalram * info.mem_unit, MiB(1)));
	return MIN(len, most);
}

static size_t table_bytes(uint32_t nr_units)
{
	return (size_t)round_up(sizeof(struct heap_state) + nr_units * sizeof(struct unit), HEAP_UNIT);
}

static struct heap_state *heap_start(struct heap *h)
{
	size_t len = range_bytes(h->most ? h->most : SIZE_MAX);
	uint8_t *p = (uint8_t *)h->wanted;
	bool reserved = !p || !map_more(false, p, HEAP_UNIT);
	struct heap_state *s;
	uint32_t nr;

	if (reserved) {
		p = reserve(len, &len);
		if (!p)
			return NULL;
		if (!map_more(true, p, HEAP_UNIT)) {
			syscall(SYS_munmap, p, len);
			return NULL;
		}
	}
	s = (struct heap_state *)p;
	nr = (uint32_t)MIN(len / (HEAP_UNIT + sizeof(struct unit)), (size_t)HEAP_NONE - 1);
	s->range = len;
	s->reserved = reserved;
	s->table_len = HEAP_UNIT;
	s->data = (uint8_t *)round_up((uintptr_t)p + table_bytes(nr), HEAP_UNIT);
	s->nr = (uint32_t)MIN((size_t)(p + len - s->data) / HEAP_UNIT, (size_t)nr);
	memset(s->free, 0xff, sizeof(s->free)); /* HEAP_NONE */
	memset(s->spans, 0xff, sizeof(s->spans));
	atomic_store(&h->state, s);
	return s;
}

static struct heap_state *state_of(struct heap *h)
{
	struct heap_state *s = atomic_load_explicit(&h->state, memory_order_relaxed);

	return s ? s : heap_start(h);
}

static bool grow(struct heap_state *s, uint32_t upto)
{
	uint32_t step = MIN(s->readable / 4, GROW_MAX), want;
	size_t table;

	if (upto > s->nr)
		return false;
	if (upto <= s->readable)
		return true;
	step = MAX(step, GROW_MIN);
	want = MAX(upto, s->readable + step);
	want = MIN(want, s->nr);
	table = table_bytes(want);
	if (!map_more(s->reserved, (uint8_t *)s + s->table_len, table - MIN(table, s->table_len)))
		return false;
	s->table_len = MAX(table, s->table_len);
	if (!map_more(s->reserved, s->data + (size_t)s->readable * HEAP_UNIT, (size_t)(want - s->readable) * HEAP_UNIT)) {
		want = upto; /* near a memory limit: try the minimum */
		if (!map_more(s->reserved, s->data + (size_t)s->readable * HEAP_UNIT,
			      (size_t)(want - s->readable) * HEAP_UNIT))
			return false;
	}
	s->readable = want;
	return true;
}

/* --- runs of units --- */

static void list_add(struct heap_state *s, uint32_t *head, uint32_t u)
{
	s->unit[u].prev = HEAP_NONE;
	s->unit[u].next = *head;
	if (*head != HEAP_NONE)
		s->unit[*head].prev = u;
	*head = u;
}

static void list_remove(struct heap_state *s, uint32_t *head, uint32_t u)
{
	const struct unit *it = &s->unit[u];

	if (it->prev != HEAP_NONE)
		s->unit[it->prev].next = it->next;
	else
		*head = it->next;
	if (it->next != HEAP_NONE)
		s->unit[it->next].prev = it->prev;
}

static void run_unlink(struct heap_state *s, uint32_t u)
{
	list_remove(s, &s->free[heap_bin_of(s->unit[u].nr)], u);
}

/* Frees a run, joining it with free neighbours. */
static void run_free(struct heap_state *s, uint32_t u, uint32_t nr)
{
	if (nr == 0)
		return;
	if (u + nr < s->top && s->unit[u + nr].kind == UNIT_FREE) {
		run_unlink(s, u + nr);
		nr += s->unit[u + nr].nr;
	}
	if (u > 0 && s->unit[u - 1].kind == UNIT_FREE) {
		uint32_t before = s->unit[u - 1].nr;

		run_unlink(s, u - before);
		u -= before;
		nr += before;
	}
	s->unit[u].kind = s->unit[u + nr - 1].kind = UNIT_FREE;
	s->unit[u].nr = s->unit[u + nr - 1].nr = nr;
	list_add(s, &s->free[heap_bin_of(nr)], u);
}

/* Allocates a run and returns its first unit; HEAP_NONE: no memory. *ret_fresh: it is zeroed. */
static uint32_t run_alloc(struct heap_state *s, uint32_t nr, bool *ret_fresh)
{
	uint32_t u;

	for (uint32_t bin = heap_bin_of(nr); bin < HEAP_BINS; bin++)
		for (u = s->free[bin]; u != HEAP_NONE; u = s->unit[u].next)
			if (s->unit[u].nr >= nr) {
				run_unlink(s, u);
				for (uint32_t i = u; i < u + nr; i++) /* run_free() must not join the rest with them */
					s->unit[i].kind = UNIT_INSIDE;
				run_free(s, u + nr, s->unit[u].nr - nr);
				*ret_fresh = false;
				return u;
			}
	if (nr > s->nr - s->top || !grow(s, s->top + nr))
		return HEAP_NONE;
	u = s->top;
	s->top += nr;
	*ret_fresh = true;
	return u;
}

/* --- small objects --- */

/* 16 to 128 in steps of 16, then four to each doubling. */
static uint32_t class_of(size_t size)
{
	uint32_t shift;

	if (size <= 128)
		return (uint32_t)((MAX(size, (size_t)1) + 15) / 16 - 1);
	shift = 63 - (uint32_t)__builtin_clzll(size - 1);
	return 8 + (shift - 7) * 4 + (uint32_t)(((size - 1) >> (shift - 2)) & 3);
}

static size_t class_size(uint32_t class)
{
	uint32_t doubling = class < 8 ? 0 : (class - 8) / 4;

	return class < 8 ? (class + 1) * 16u : (128u << doubling) + ((class - 8) % 4 + 1) * (32u << doubling);
}

static uint32_t span_new(struct heap_state *s, uint32_t class)
{
	uint32_t size = (uint32_t)class_size(class), words = (HEAP_UNIT / size + 63) / 64, u;
	struct span *span;
	bool fresh;

	u = run_alloc(s, 1, &fresh);
	if (u == HEAP_NONE)
		return HEAP_NONE;
	s->unit[u].kind = UNIT_SPAN;
	s->unit[u].class = (uint8_t)class;
	span = (struct span *)heap_unit_at(s, u);
	span->first = (uint32_t)round_up(sizeof(*span) + words * sizeof(span->free[0]), ALIGN);
	span->nr = span->nr_free = (HEAP_UNIT - span->first) / size;
	span->hint = 0;
	for (uint32_t w = 0; w < words; w++) {
		uint32_t left = span->nr - MIN(span->nr, w * 64);

		span->free[w] = left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1;
	}
	list_add(s, &s->spans[class], u);
	return u;
}

static void *small_alloc(struct heap_state *s, uint32_t class)
{
	uint32_t u = s->spans[class], bit;
	struct span *span;

	if (u == HEAP_NONE)
		u = span_new(s, class);
	if (u == HEAP_NONE)
		return NULL;
	span = (struct span *)heap_unit_at(s, u);
	while (span->free[span->hint] == 0)
		span->hint++;
	bit = (uint32_t)__builtin_ctzll(span->free[span->hint]);
	span->free[span->hint] &= ~(UINT64_C(1) << bit);
	if (--span->nr_free == 0)
		list_remove(s, &s->spans[class], u);
	return (uint8_t *)span + span->first + (span->hint * 64 + bit) * class_size(class);
}

/* The object of the span that contains the pointer, which may have been aligned upwards within it. */
static uint32_t object_of(const struct heap_state *s, uint32_t u, const void *p)
{
	const struct span *span = (const struct span *)heap_unit_at(s, u);
	size_t off = (size_t)((const uint8_t *)p - (const uint8_t *)span), size = class_size(s->unit[u].class);
	uint32_t i;

	if (off < span->first || (off - span->first) / size >= span->nr)
		heap_abort("ckptfs: free(): invalid pointer\n");
	i = (uint32_t)((off - span->first) / size);
	if (span->free[i / 64] >> i % 64 & 1)
		heap_abort("ckptfs: free(): double free\n");
	return i;
}

static void small_free(struct heap_state *s, uint32_t u, const void *p)
{
	struct span *span = (struct span *)heap_unit_at(s, u);
	uint32_t i = object_of(s, u, p), *head = &s->spans[s->unit[u].class];

	span->free[i / 64] |= UINT64_C(1) << i % 64;
	span->hint = MIN(span->hint, i / 64);
	if (span->nr_free++ == 0)
		list_add(s, head, u);
	/* The last span with a free object is kept: freeing it would be costly for alternating malloc() and free(). */
	if (span->nr_free == span->nr && !(s->unit[u].next == HEAP_NONE && s->unit[u].prev == HEAP_NONE)) {
		list_remove(s, head, u);
		run_free(s, u, 1);
	}
}

/* --- large blocks --- */

static uint32_t units_of(size_t size)
{
	return (uint32_t)((MAX(size, (size_t)1) + HEAP_UNIT - 1) / HEAP_UNIT);
}

static void large_init(struct heap_state *s, uint32_t u, uint32_t nr)
{
	for (uint32_t i = u + 1; i < u + nr; i++)
		s->unit[i].kind = UNIT_INSIDE;
	s->unit[u].kind = UNIT_LARGE;
	s->unit[u].nr = nr;
}

static void *large_alloc(struct heap_state *s, size_t size, size_t align, bool *ret_fresh)
{
	uint32_t nr = units_of(size), spare = align > HEAP_UNIT ? (uint32_t)(align / HEAP_UNIT) - 1 : 0, u, skip;

	u = run_alloc(s, nr + spare, ret_fresh);
	if (u == HEAP_NONE)
		return NULL;
	skip = (uint32_t)((round_up((uintptr_t)heap_unit_at(s, u), align) - (uintptr_t)heap_unit_at(s, u)) / HEAP_UNIT);
	large_init(s, u + skip, nr);
	run_free(s, u, skip);
	run_free(s, u + skip + nr, spare - skip);
	return heap_unit_at(s, u + skip);
}

/* Resizes in place. false: no room behind it. */
static bool large_resize(struct heap_state *s, uint32_t u, uint32_t nr)
{
	uint32_t old = s->unit[u].nr, next = u + old, more = nr - MIN(nr, old);

	if (more > 0 && next == s->top) {
		if (more > s->nr - s->top || !grow(s, s->top + more))
			return false;
		s->top += more;
	} else if (more > 0) {
		uint32_t found = s->unit[next].kind == UNIT_FREE ? s->unit[next].nr : 0;

		if (found < more)
			return false;
		run_unlink(s, next);
		large_init(s, u, nr);
		run_free(s, u + nr, found - more);
		return true;
	}
	large_init(s, u, nr);
	run_free(s, u + nr, old - MIN(old, nr));
	return true;
}

/* --- public functions --- */

bool heap_has(const struct heap *h, const void *p)
{
	const struct heap_state *s = atomic_load_explicit(&h->state, memory_order_relaxed);

	return s && (uintptr_t)p - (uintptr_t)s < s->range;
}

static uint32_t unit_at(const struct heap_state *s, const void *p)
{
	size_t u = (size_t)((const uint8_t *)p - s->data) / HEAP_UNIT;

	if ((const uint8_t *)p < s->data || u >= s->top ||
	    (s->unit[u].kind != UNIT_SPAN && s->unit[u].kind != UNIT_LARGE) ||
	    (s->unit[u].kind == UNIT_LARGE && p != heap_unit_at(s, (uint32_t)u)))
		heap_abort("ckptfs: malloc: invalid pointer\n");
	return (uint32_t)u;
}

void *heap_alloc(struct heap *h, size_t size, size_t align, bool zeroed)
{
	size_t room = align > ALIGN ? size + align : size;
	bool entered, fresh = false;
	struct heap_state *s;
	void *p = NULL;

	if (size > PTRDIFF_MAX || align > PTRDIFF_MAX / 2) {
		errno = ENOMEM;
		return NULL;
	}
	entered = heap_enter(h);
	s = state_of(h);
	if (s && room <= HEAP_SMALL_MAX)
		p = small_alloc(s, class_of(room));
	else if (s && size / HEAP_UNIT + align / HEAP_UNIT < s->nr)
		p = large_alloc(s, size, align, &fresh);
	heap_leave(h, entered);
	if (!p) {
		errno = ENOMEM;
		return NULL;
	}
	p = (void *)round_up((uintptr_t)p, align);
	if (zeroed && !fresh)
		memset(p, 0, size);
	return p;
}

static size_t usable_bytes(const struct heap_state *s, const void *p)
{
	uint32_t u = unit_at(s, p);
	const uint8_t *end = heap_unit_at(s, u) + (size_t)s->unit[u].nr * HEAP_UNIT;

	if (s->unit[u].kind == UNIT_SPAN)
		end = heap_unit_at(s, u) + ((const struct span *)heap_unit_at(s, u))->first +
		      (object_of(s, u, p) + 1) * class_size(s->unit[u].class);
	return (size_t)(end - (const uint8_t *)p);
}

size_t heap_usable(struct heap *h, const void *p)
{
	bool entered = heap_enter(h);
	size_t n = usable_bytes(atomic_load(&h->state), p);

	heap_leave(h, entered);
	return n;
}

void heap_free(struct heap *h, void *p)
{
	bool entered = heap_enter(h);
	struct heap_state *s = atomic_load(&h->state);
	uint32_t u = unit_at(s, p);

	if (s->unit[u].kind == UNIT_SPAN)
		small_free(s, u, p);
	else
		run_free(s, u, s->unit[u].nr);
	heap_leave(h, entered);
}

void *heap_realloc(struct heap *h, void *p, size_t size)
{
	bool entered = heap_enter(h), stays;
	struct heap_state *s = atomic_load(&h->state);
	uint32_t u = unit_at(s, p);
	size_t had = usable_bytes(s, p);
	void *q;

	if (s->unit[u].kind == UNIT_SPAN)
		stays = size <= had && class_of(size) + 4 > s->unit[u].class; /* wastes at most half */
	else
		stays = size > HEAP_SMALL_MAX && size / HEAP_UNIT < s->nr && large_resize(s, u, units_of(size));
	heap_leave(h, entered);
	if (stays)
		return p;
	q = heap_alloc(h, size, ALIGN, false);
	if (!q)
		return NULL;
	memcpy(q, p, MIN(had, size));
	heap_free(h, p);
	return q;
}

void heap_extents(const struct heap *h, struct heap_extent ret[2])
{
	struct heap_state *s = atomic_load(&h->state);

	ret[0] = (struct heap_extent){ (uint8_t *)s, s ? s->table_len : 0 };
	ret[1] = (struct heap_extent){ s ? s->data : NULL, s ? (size_t)s->readable * HEAP_UNIT : 0 };
}

/* --- invariants --- */
