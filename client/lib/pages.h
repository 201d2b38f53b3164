/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page manager decides which page of the protected memory a checkpoint writes next, and whether a page that the
 * program changes before it has been written is copied or waited for. Algorithms 1 to 4 of AI-Ckpt (Nicolae and
 * Cappello, HPDC'13).
 *
 * It handles page numbers only: the caller copies, protects and writes pages, waits, locks and reads the clock.
 * pages_touch(), pages_next() and pages_done() allocate nothing, so they may run in a signal handler.
 *
 *            begin: what was touched in the last interval      next                     done
 *   PROCESSED ──────────────────────────────────▶ SCHEDULED ───────────▶ IN_PROGRESS ───────────▶ PROCESSED
 *
 * A touch is the first write to a page since the checkpoint was requested; it opens the page. The state of the page at
 * the touch is recorded for the order of the next checkpoint:
 *
 *   COW       not yet written, and there was a free slot to copy it to
 *   WAIT      not yet written and no slot was free, or it was being copied by the writer: the program waits for it
 *   AVOIDED   written already, while the checkpoint was still in progress
 *   AFTER     the checkpoint was complete
 *
 * The order in which pages are written (enum pages_order):
 *
 *   ADDRESS    waited for, then ascending
 *   PATTERN    waited for, then copied, then last interval's WAIT, COW, AVOIDED, each by earliest touch, then the rest;
 *              this is the order of the paper
 *   PREDICTED  waited for, then by the time of the touch in the last interval, starting at the page that it has
 *              reached: see pages.c
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
	uint32_t next; /* in the list of pages waited for, or of copied pages */
	uint32_t slot; /* of its copy */
	uint32_t rank; /* in the queue of this checkpoint */
	uint32_t touch_us; /* since the last checkpoint was requested, without the time that the program waited */
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
	uint32_t *dirty, *queue; /* pages: touched in this interval, by time; of the checkpoint in progress */
	uint32_t nr, nr_dirty, nr_queue;
	uint32_t *free_slots;
	uint32_t nr_slots, nr_free; /* of the buffer for copies */

	enum pages_order order;
	bool under_way;
	uint32_t left; /* pages of the checkpoint not yet done */
	uint32_t head; /* where in the queue to go on */
	struct page_list waiting, copied;
	uint32_t nr_waited; /* pages that the program waits for, and has not touched yet */

	/* the program's position in the order of the last interval, by its touches in this one */
	uint32_t *order_us; /* of the queue: when each was touched in the last interval */
	uint32_t seen_rank, nr_in_row;
	uint32_t waited_us; /* by the program in this interval */
	uint32_t nr_phases; /* times that the predicted position was corrected */

	uint64_t count[NR_ACCESSES]; /* of this interval */
};

/* Bytes of zeroed memory, owned by the caller, that pages_init() needs for so many pages and slots. */
size_t pages_room(uint32_t nr, uint32_t nr_slots);
/* `from` (NULL: none): state to copy, with no checkpoint in progress; it may be freed then. */
void pages_init(struct pages *m, void *room, uint32_t nr, uint32_t nr_slots, const struct pages *from);

/* Marks a page dirty without a touch: its content differs from the last checkpoint. */
void pages_add_dirty(struct pages *m, uint32_t p, bool open);
/* Makes pages clean and closed: they belong to no region any more. No checkpoint may be in progress. */
void pages_forget(struct pages *m, uint32_t first, uint32_t nr);

/* Starts a checkpoint: closes all pages and schedules the dirty ones. None may be in progress. */
void pages_begin(struct pages *m, enum pages_order order);

enum pages_verdict {
	PAGES_OPEN, /* it may be written to */
	PAGES_COPY, /* the same, after the caller has copied it to *slot */
	PAGES_WAIT, /* call again when it has been written */
};
/* `now_us`: since pages_begin(). */
enum pages_verdict pages_touch(struct pages *m, uint32_t p, uint32_t now_us, uint32_t *slot);
/* Records that the program has waited so long and continues. */
void pages_waited(struct pages *m, uint32_t us);

/*
 * Returns up to `max` page numbers to write next; a page with a copy (page[p].slot) is to be written from there. 0:
 * none are left. With each page come the other scheduled pages of its aligned block of `block` pages that the program
 * does not wait for.
 */
uint32_t pages_next(struct pages *m, uint32_t now_us, uint32_t block, uint32_t *ret, uint32_t max);
/* These pages have been copied to the write buffer: their slots are free again. */
void pages_done(struct pages *m, const uint32_t *p, uint32_t nr);

/* The checkpoint is complete; or it has failed, and its pages are dirty again. */
void pages_end(struct pages *m);
void pages_fail(struct pages *m);
