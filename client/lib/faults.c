/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes to closed pages: Algorithm 2 of the paper, for a page and the pages that are protected together with it.
 *
 * fault_touch() runs in handlers of SIGSEGV and in the thread that reads a userfaultfd. It is safe there: it takes one
 * lock (siglock.h explains why the interrupted thread cannot hold it), waits on one futex, copies memory, and calls
 * mprotect(2), ioctl(2) and clock_gettime(2), which are system calls or equivalent. It does not allocate or log. The
 * tables of regions and pages that it reads are changed only under the lock and are never in protected memory: they are
 * mapped by libckptfs or allocated by malloc(3), and only pages wholly within one allocation can be protected.
 *
 * While no checkpoint is in progress, sequential writes need not fault on every page: after some pages in a row the
 * pages ahead are opened, too (streams.h). If the program stops there, at most half as many unchanged pages are
 * written.
 *
 * A faulting thread may wait for the writer, but the writer never waits for the program: it writes from copies
 * (writer.c) and holds the lock only briefly.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/streams.h"
#include "client/lib/track.h"

/* Opens a unit's pages for the program. -EAGAIN: some must be written first. */
static int touch_unit(struct region *r, uint32_t first, uint32_t nr, uint32_t now_us) REQUIRES(client.lock)
{
	bool wait = false;

	for (uint32_t p = first; p < first + nr; p++) {
		uint32_t slot = PAGES_NONE;

		switch (pages_touch(&client.pages, p, now_us, &slot)) {
		case PAGES_COPY:
			memcpy(client.copies + (size_t)slot * client.page_size, region_address(r, p), client.page_size);
			break;
		case PAGES_WAIT:
			wait = true;
			break;
		case PAGES_OPEN:
			break;
		}
	}
	if (wait)
		return -EAGAIN;
	return r->track->open(region_address(r, first), (size_t)nr * client.page_size);
}

static void unit_of(const struct region *r, uint32_t page, uint32_t *first, uint32_t *nr)
{
	*first = r->first + (uint32_t)round_down(page - r->first, r->unit);
	*nr = MIN(r->unit, r->first + r->nr_pages - *first);
}

/* Opens the unit with this page; a larger one if the process has too many mappings. */
static int touch_page(struct region *r, uint32_t page, uint32_t now_us) REQUIRES(client.lock)
{
	uint32_t first, nr;
	int error;

	for (;;) {
		unit_of(r, page, &first, &nr);
		error = touch_unit(r, first, nr, now_us);
		if (error != -ENOMEM || nr == r->nr_pages)
			return error;
		r->unit *= 2;
	}
}

static struct streams streams; /* with client.lock */

/* Opens this page and, with no checkpoint in progress, those that are likely to be written next. */
static int touch_ahead(struct region *r, uint32_t page, uint32_t now_us) REQUIRES(client.lock)
{
	uint64_t low = (uintptr_t)r->start / client.page_size;
	struct streams_range range;

	if (r->unit > 1 || client.pages.under_way)
		return touch_page(r, page, now_us);
	range = streams_touch(&streams, low + (page - r->first), low, low + r->nr_pages);
	if (range.nr > 1 && touch_unit(r, r->first + (uint32_t)(range.first - low), (uint32_t)range.nr, now_us) == 0)
		return 0;
	return touch_page(r, page, now_us);
}

/* Accounts for the time during which at least one page is waited for. */
static void account_wait(uint64_t now_ns) REQUIRES(client.lock)
{
	uint64_t waited;

	if (client.pages.nr_waited > 0 && client.waiting_since_ns == 0)
		client.waiting_since_ns = now_ns;
	if (client.pages.nr_waited > 0 || client.waiting_since_ns == 0)
		return;
	waited = now_ns - client.waiting_since_ns;
	client.waiting_since_ns = 0;
	client.wait_ns += waited;
	pages_waited(&client.pages, (uint32_t)(waited / 1000));
}

/* A child of fork(2) has the tables but not the threads, and is not tracked: open the whole region. */
static bool open_in_child(uintptr_t address) NO_THREAD_SAFETY_ANALYSIS
{
	struct region *r = region_of_address(address);

	return r && r->track == &track_mprotect && r->track->open(r->start, (size_t)r->nr_pages * client.page_size) == 0;
}

bool fault_touch(uintptr_t address, bool wait)
{
	struct region *r;
	int error = 0;

	if (!client_alive())
		return open_in_child(address);
	siglock_lock(&client.lock);
	while ((r = region_of_address(address)) != NULL) {
		uint32_t page = r->first + (uint32_t)((address - (uintptr_t)r->start) / client.page_size), progress;
		uint64_t now = monotonic_ns();

		error = touch_ahead(r, page, client_epoch_us(now));
		account_wait(now);
		if (error != -EAGAIN || !wait)
			break;
		progress = atomic_load(&client.progress);
		siglock_unlock(&client.lock);
		futex_wait(&client.progress, progress);
		siglock_lock(&client.lock);
	}
	siglock_unlock(&client.lock);
	return r != NULL && (error == 0 || error == -EAGAIN);
}

/* The start of the next tracked range; `end` if there is none before it. */
static uintptr_t next_tracked(uintptr_t address, uintptr_t end)
{
	uintptr_t start;

	client_lock();
	start = region_next_address(address);
	client_unlock();
	return start < end ? start : end;
}

/* fault_touch() checks whether a page is closed; ranges between regions are skipped. */
void ckptfs_touch(const void *p, size_t len)
{
	uintptr_t page = client.page_size, address = (uintptr_t)p, end = address + len;
	sigset_t before;

	if (!client.alive || len == 0 || end < address)
		return;
	signals_block(&before);
	for (address = round_down(address, page); address < end; address += page)
		if (!fault_touch(address, true))
			address = round_up(next_tracked(address + page, end), page) - page;
	signals_restore(&before);
}

void fault_done(const uint32_t *p, uint32_t nr)
{
	bool woken = false;
	uint64_t now = 0;

	if (client.pages.nr_waited == 0)
		return;
	for (uint32_t i = 0; i < nr; i++) {
		if (!client.pages.page[p[i]].waited)
			continue;
		if (now == 0)
			now = monotonic_ns();
		/* -EAGAIN: other pages of its unit must be written first. */
		if (touch_page(region_of_page(p[i]), p[i], client_epoch_us(now)) != -EAGAIN)
			woken = true;
	}
	if (!woken)
		return;
	account_wait(now);
	atomic_fetch_add(&client.progress, 1);
	futex_wake_all(&client.progress);
}

void fault_release_all(void)
{
	fault_done(client.pages.queue, client.pages.nr_queue);
}
