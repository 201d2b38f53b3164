/*
 * The page manager: which page of the protected memory a checkpoint writes next, and what becomes of a program that
 * wants to change one before it has been written. Algorithms 1 to 4 of AI-Ckpt (Nicolae and Cappello, HPDC'13).
 *
 * Pure: it knows numbers, not addresses; it copies, protects, writes and waits for nothing, has no lock (its caller
 * has) and asks no clock. pages_touch(), pages_next() and pages_done() allocate nothing, so they may run in a signal
 * handler.
 *
 *            begin: what was touched in the last epoch         next                     done
 *   PROCESSED ──────────────────────────────────▶ SCHEDULED ───────────▶ IN_PROGRESS ───────────▶ PROCESSED
 *
 * A touch is the first write to a page since the checkpoint was asked for; from then on the page is open. What it met
 * is what the next checkpoint learns from:
 *
 *   COW       not yet written, and there was room to copy it
 *   WAIT      not yet written, and there was none, or it was just being taken: the program waits for it
 *   AVOIDED   written already, and the checkpoint was still under way
 *   AFTER     the checkpoint was complete
 *
 * The order in which pages are written (enum pages_order):
 *
 *   ADDRESS    waited for, then ascending
 *   PATTERN    waited for, then copied, then last epoch's WAIT, COW, AVOIDED, each by earliest touch, then the rest: the paper's
 *   PREDICTED  waited for, then by the time of the touch in the last epoch, from the page on at which the program is: see pages.c
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGES_NONE UINT32_MAX /* no page, no slot */

enum page_state { PAGE_PROCESSED, PAGE_SCHEDULED, PAGE_IN_PROGRESS };
enum page_access { ACCESS_UNTOUCHED, ACCESS_COW, ACCESS_WAIT, ACCESS_AVOIDED, ACCESS_AFTER, NR_ACCESSES };
enum pages_order { PAGES_BY_ADDRESS, PAGES_BY_PATTERN, PAGES_BY_PREDICTION };

struct page {
	uint32_t next; /* in the list of waited for or of copied pages */
	uint32_t slot; /* that has its copy */
	uint32_t rank; /* in the queue of this checkpoint */
	uint32_t touch_us; /* after the last checkpoint was asked for, without what the program has waited */
	uint8_t state, access;
	bool dirty; /* for the next checkpoint */
	bool open; /* may be written to */
	bool waited; /* for, by the program */
};

struct page_list {
	uint32_t head, tail;
};

struct pages {
	struct page *page;
	uint32_t *dirty, *queue; /* pages: touched in this epoch, by time; those of the checkpoint under way */
	uint32_t nr, nr_dirty, nr_queue;
	uint32_t *free_slots;
	uint32_t nr_slots, nr_free; /* of the buffer for copies */

	enum pages_order order;
	bool under_way;
	uint32_t left; /* pages of the checkpoint not yet done */
	uint32_t head; /* where in the queue to go on */
	struct page_list waiting, copied;
	uint32_t nr_waited; /* pages that the program waits for, and has not touched yet */

	/* where the program is in the order of the last epoch, by its touches in this one */
	uint32_t *order_us; /* of the queue: when each was touched in the last epoch */
	uint32_t seen_rank, nr_in_row;
	uint32_t waited_us; /* by the program in this epoch */
	uint32_t nr_phases; /* times that it was found elsewhere than predicted */

	uint64_t count[NR_ACCESSES]; /* of this epoch */
};

/* Bytes that pages_init() needs for so many pages and slots, in zeroed memory of the caller's. */
size_t pages_room(uint32_t nr, uint32_t nr_slots);
/* `from` (NULL: none): pages that are to be taken over, with no checkpoint under way; their memory may be given back
 * then. */
void pages_init(struct pages *m, void *room, uint32_t nr, uint32_t nr_slots, const struct pages *from);

/* Page `p` is dirty though nobody has touched it: its content is not that of the last checkpoint. */
void pages_add_dirty(struct pages *m, uint32_t p, bool open);
/* These pages are nobody's any more: clean and closed. No checkpoint is under way. */
void pages_forget(struct pages *m, uint32_t first, uint32_t nr);

/* A checkpoint is asked for: all pages are closed, those that are dirty are scheduled. None is under way. */
void pages_begin(struct pages *m, enum pages_order order);

enum pages_verdict {
	PAGES_OPEN, /* it may be written to */
	PAGES_COPY, /* the same, when the caller has copied it to *slot */
	PAGES_WAIT, /* ask again when it is done */
};
/* `now_us`: since pages_begin(). */
enum pages_verdict pages_touch(struct pages *m, uint32_t p, uint32_t now_us, uint32_t *slot);
/* The program has waited so long, and may go on. */
void pages_waited(struct pages *m, uint32_t us);

/*
 * What to write next, at most `max`: page numbers; those with a copy (page[p].slot) from there. 0: nothing is left.
 * Each comes with those of its block of so many pages that are to be written, too, and that nobody waits for; 1: it
 * comes alone.
 */
uint32_t pages_next(struct pages *m, uint32_t now_us, uint32_t block, uint32_t *ret, uint32_t max);
/* These have been taken and are no longer needed: slots are free again. */
void pages_done(struct pages *m, const uint32_t *p, uint32_t nr);

/* The checkpoint is complete, or has failed: then what it was about is dirty again. Nothing is in progress. */
void pages_end(struct pages *m);
void pages_fail(struct pages *m);
