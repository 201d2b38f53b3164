/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PREDICTION extends the paper in two ways.
 *
 * Time. The paper writes all pages that were waited for before all others, however late they were touched. What matters
 * is when a page will be touched: writing the earliest first minimises the longest wait. The queue is in the order of
 * the touches of the last interval. The times of the touches, without the time that the program waited (else pages
 * would seem to be touched late after a slow checkpoint), decide when a copy is written: a copy delays no thread, but
 * occupies a slot. Copies are written first while no page is about to be touched, or slots run short; otherwise pages
 * that are about to be touched are, and need not be copied.
 *
 * Phase. If checkpoints are not requested at the same point of the program's iteration, the order of the last interval
 * is rotated. A run of touches that follow each other in that order at another position than the head of the queue
 * reveals the program's position, and the queue continues from there, cyclically.
 */
#include "client/lib/pages.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"

#define PHASE_ROW 8 /* touches in a run: by chance one occurs once in many thousands of intervals */
#define PHASE_STEP 64 /* maximum ranks between touches of a run: pages written already are not touched in order */
#define SOON_US 2000 /* the time of a few batches */

size_t pages_room(uint32_t nr, uint32_t nr_slots)
{
	return (size_t)nr * (sizeof(struct page) + 3 * sizeof(uint32_t)) + (size_t)nr_slots * sizeof(uint32_t);
}

static void copy_state(struct pages *m, const struct pages *from)
{
	uint32_t nr = MIN(m->nr, from->nr);

	assert(!from->under_way);
	memcpy(m->page, from->page, nr * sizeof(*m->page));
	for (uint32_t i = 0; i < from->nr_dirty; i++)
		if (from->dirty[i] < nr)
			m->dirty[m->nr_dirty++] = from->dirty[i];
	m->waited_us = from->waited_us;
	memcpy(m->count, from->count, sizeof(m->count));
}

void pages_init(struct pages *m, void *room, uint32_t nr, uint32_t nr_slots, const struct pages *from)
{
	*m = (struct pages){
		.page = room,
		.nr = nr,
		.nr_slots = nr_slots,
		.nr_free = nr_slots,
		.waiting = { PAGES_NONE, PAGES_NONE },
		.copied = { PAGES_NONE, PAGES_NONE },
	};
	m->dirty = (uint32_t *)(m->page + nr);
	m->queue = m->dirty + nr;
	m->order_us = m->queue + nr;
	m->free_slots = m->order_us + nr;
	for (uint32_t i = 0; i < nr_slots; i++)
		m->free_slots[i] = nr_slots - 1 - i;
	for (uint32_t p = 0; p < nr; p++)
		m->page[p] = (struct page){ .next = PAGES_NONE, .slot = PAGES_NONE, .rank = PAGES_NONE };
	if (from)
		copy_state(m, from);
}

static void list_add(struct pages *m, struct page_list *l, uint32_t p)
{
	m->page[p].next = PAGES_NONE;
	if (l->tail == PAGES_NONE)
		l->head = p;
	else
		m->page[l->tail].next = p;
	l->tail = p;
}

static uint32_t list_pop(struct pages *m, struct page_list *l)
{
	uint32_t p = l->head;

	if (p == PAGES_NONE)
		return p;
	l->head = m->page[p].next;
	if (l->head == PAGES_NONE)
		l->tail = PAGES_NONE;
	return p;
}

static void add_dirty(struct pages *m, uint32_t p)
{
	if (m->page[p].dirty)
		return;
	m->page[p].dirty = true;
	m->dirty[m->nr_dirty++] = p;
}

void pages_add_dirty(struct pages *m, uint32_t p, bool open)
{
	add_dirty(m, p);
	m->page[p].open = open;
	m->page[p].touch_us = UINT32_MAX; /* unknown */
}

void pages_forget(struct pages *m, uint32_t first, uint32_t nr)
{
	uint32_t kept = 0;

	assert(!m->under_way);
	for (uint32_t p = first; p < first + nr; p++)
		m->page[p].open = m->page[p].dirty = false;
	for (uint32_t i = 0; i < m->nr_dirty; i++)
		if (m->page[m->dirty[i]].dirty)
			m->dirty[kept++] = m->dirty[i];
	m->nr_dirty = kept;
}

/* --- a checkpoint begins --- */

static void queue_by_address(struct pages *m)
{
	for (uint32_t p = 0; p < m->nr; p++)
		if (m->page[p].dirty)
			m->queue[m->nr_queue++] = p;
}

/* By the kind of access in the last interval, then by time, which is the order of m->dirty. */
static void queue_by_pattern(struct pages *m)
{
	static const uint8_t class_of[NR_ACCESSES] = {
		[ACCESS_WAIT] = 0, [ACCESS_COW] = 1, [ACCESS_AVOIDED] = 2, [ACCESS_AFTER] = 3, [ACCESS_UNTOUCHED] = 3
	};
	uint32_t at[5] = { 0 };

	for (uint32_t i = 0; i < m->nr_dirty; i++)
		at[class_of[m->page[m->dirty[i]].access] + 1]++;
	for (int c = 1; c < 5; c++)
		at[c] += at[c - 1];
	for (uint32_t i = 0; i < m->nr_dirty; i++)
		m->queue[at[class_of[m->page[m->dirty[i]].access]]++] = m->dirty[i];
	m->nr_queue = m->nr_dirty;
}

static void queue_by_time(struct pages *m)
{
	memcpy(m->queue, m->dirty, m->nr_dirty * sizeof(*m->queue));
	m->nr_queue = m->nr_dirty;
	for (uint32_t i = 0; i < m->nr_queue; i++)
		m->order_us[i] = m->page[m->queue[i]].touch_us;
}

void pages_begin(struct pages *m, enum pages_order order)
{
	assert(!m->under_way && m->waiting.head == PAGES_NONE && m->copied.head == PAGES_NONE);
	m->order = order;
	m->nr_queue = 0;
	if (order == PAGES_BY_ADDRESS)
		queue_by_address(m);
	else if (order == PAGES_BY_PATTERN)
		queue_by_pattern(m);
	else
		queue_by_time(m);
	for (uint32_t p = 0; p < m->nr; p++) {
		m->page[p].access = ACCESS_UNTOUCHED;
		m->page[p].open = m->page[p].dirty = false;
		m->page[p].rank = PAGES_NONE;
	}
	for (uint32_t i = 0; i < m->nr_queue; i++) {
		m->page[m->queue[i]].state = PAGE_SCHEDULED;
		m->page[m->queue[i]].rank = i;
	}
	m->nr_dirty = 0;
	m->left = m->nr_queue;
	m->head = 0;
	m->under_way = true;
	m->seen_rank = PAGES_NONE;
	m->nr_in_row = m->nr_phases = 0;
	m->waited_us = 0;
	memset(m->count, 0, sizeof(m->count));
}

/* --- touches --- */

/* The distance from `from` to `to` in the cyclic queue. */
static uint32_t queue_distance(const struct pages *m, uint32_t from, uint32_t to)
{
	return to >= from ? to - from : to + m->nr_queue - from;
}

/* Updates the program's position in the queue, and moves the head of the queue there. */
static void follow_program(struct pages *m, uint32_t rank)
{
	uint32_t next;

	if (rank == PAGES_NONE)
		return;
	if (m->seen_rank != PAGES_NONE && queue_distance(m, m->seen_rank, rank) <= PHASE_STEP)
		m->nr_in_row++;
	else
		m->nr_in_row = 0;
	m->seen_rank = rank;
	if (m->nr_in_row < PHASE_ROW)
		return;
	m->nr_in_row = 0;
	next = rank + 1 == m->nr_queue ? 0 : rank + 1;
	if (next == m->head || m->page[m->queue[next]].state != PAGE_SCHEDULED)
		return; /* the head is there, or has passed it */
	m->nr_phases += queue_distance(m, m->head, rank) > PHASE_STEP;
	m->head = next;
}

static void record_touch(struct pages *m, uint32_t p, enum page_access access, uint32_t now_us)
{
	struct page *page = &m->page[p];

	page->access = (uint8_t)access;
	page->open = true;
	m->nr_waited -= page->waited;
	page->waited = false;
	page->touch_us = now_us > m->waited_us ? now_us - m->waited_us : 0;
	m->count[access]++;
	add_dirty(m, p);
	if (m->under_way && m->order == PAGES_BY_PREDICTION)
		follow_program(m, page->rank);
}

enum pages_verdict pages_touch(struct pages *m, uint32_t p, uint32_t now_us, uint32_t *slot)
{
	struct page *page = &m->page[p];

	if (page->open)
		return PAGES_OPEN; /* another thread was faster */
	if (page->state == PAGE_PROCESSED) {
		record_touch(m, p, page->waited ? ACCESS_WAIT : m->under_way ? ACCESS_AVOIDED : ACCESS_AFTER, now_us);
		return PAGES_OPEN;
	}
	if (page->state == PAGE_SCHEDULED && !page->waited && m->nr_free > 0) {
		page->slot = *slot = m->free_slots[--m->nr_free];
		if (m->order != PAGES_BY_ADDRESS)
			list_add(m, &m->copied, p);
		record_touch(m, p, ACCESS_COW, now_us);
		return PAGES_COPY;
	}
	if (page->state == PAGE_SCHEDULED && !page->waited)
		list_add(m, &m->waiting, p);
	m->nr_waited += !page->waited;
	page->waited = true;
	return PAGES_WAIT;
}

void pages_waited(struct pages *m, uint32_t us)
{
	m->waited_us += us;
}

/* --- what to write --- */

/* The next page of the queue, without removing it. */
static uint32_t queue_peek(struct pages *m)
{
	for (uint32_t looked = 0; looked < m->nr_queue; looked++) {
		struct page *page = &m->page[m->queue[m->head]];

		/* Copies have their own list, except in the order by address. */
		if (page->state == PAGE_SCHEDULED && (page->slot == PAGES_NONE || m->order == PAGES_BY_ADDRESS))
			return m->queue[m->head];
		m->head = m->head + 1 == m->nr_queue ? 0 : m->head + 1;
	}
	return PAGES_NONE;
}

/* Is the page at the head about to be touched, and are enough slots free to copy others meanwhile? */
static bool head_is_urgent(struct pages *m, uint32_t now_us)
{
	uint32_t p = queue_peek(m), now = now_us > m->waited_us ? now_us - m->waited_us : 0;

	return p != PAGES_NONE && m->nr_free > m->nr_slots / 2 && m->order_us[m->head] < now + SOON_US;
}

/* Skips pages that were selected before, with a neighbour. */
static uint32_t pop_copied(struct pages *m)
{
	uint32_t p;

	do
		p = list_pop(m, &m->copied);
	while (p != PAGES_NONE && m->page[p].state != PAGE_SCHEDULED);
	return p;
}

static uint32_t select_next(struct pages *m, uint32_t now_us)
{
	uint32_t p = list_pop(m, &m->waiting);

	if (p == PAGES_NONE && !(m->order == PAGES_BY_PREDICTION && head_is_urgent(m, now_us)))
		p = pop_copied(m);
	return p == PAGES_NONE ? queue_peek(m) : p;
}

/* Selects the pages of its block that the program does not wait for; those have their own list. Returns how many. */
static uint32_t select_neighbours(struct pages *m, uint32_t p, uint32_t block, uint32_t *ret, uint32_t max)
{
	uint32_t first = p - p % block, end = MIN(first + block, m->nr), nr = 0;

	for (uint32_t q = first; q < end && nr < max; q++)
		if (m->page[q].state == PAGE_SCHEDULED && !m->page[q].waited) {
			m->page[q].state = PAGE_IN_PROGRESS;
			ret[nr++] = q;
		}
	return nr;
}

uint32_t pages_next(struct pages *m, uint32_t now_us, uint32_t block, uint32_t *ret, uint32_t max)
{
	uint32_t nr = 0;

	while (nr < max) {
		uint32_t p = select_next(m, now_us);

		if (p == PAGES_NONE)
			break;
		m->page[p].state = PAGE_IN_PROGRESS;
		ret[nr++] = p;
		if (block > 1)
			nr += select_neighbours(m, p, block, ret + nr, max - nr);
	}
	return nr;
}

void pages_done(struct pages *m, const uint32_t *p, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct page *page = &m->page[p[i]];

		assert(page->state == PAGE_IN_PROGRESS);
		page->state = PAGE_PROCESSED;
		if (page->slot != PAGES_NONE) {
			m->free_slots[m->nr_free++] = page->slot;
			page->slot = PAGES_NONE;
		}
	}
	m->left -= nr;
}

void pages_end(struct pages *m)
{
	assert(m->left == 0 && m->waiting.head == PAGES_NONE);
	m->copied = (struct page_list){ PAGES_NONE, PAGES_NONE }; /* the rest was selected with a neighbour */
	m->under_way = false;
}

void pages_fail(struct pages *m)
{
	while (list_pop(m, &m->waiting) != PAGES_NONE || list_pop(m, &m->copied) != PAGES_NONE)
		;
	for (uint32_t i = 0; i < m->nr_queue; i++) {
		uint32_t p = m->queue[i];

		if (m->page[p].state != PAGE_PROCESSED) {
			m->page[p].state = PAGE_IN_PROGRESS;
			pages_done(m, &p, 1);
		}
		add_dirty(m, p);
	}
	pages_end(m);
}
