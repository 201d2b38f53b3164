/*
 * A write to a closed page: Algorithm 2 of the paper, for a page and for those that are protected together with it.
 *
 * fault_touch() runs in handlers of SIGSEGV and in the thread that reads a userfaultfd. It is safe there: it takes one
 * lock (siglock.h argues why that cannot be held by the thread it interrupts), waits for one futex, copies memory, and
 * calls mprotect(2), ioctl(2) and clock_gettime(2), which are system calls or as good as that. It allocates nothing and
 * logs nothing. What it reads, tables of regions and pages, is changed under the lock alone and never lies in protected
 * memory: it is mapped by us or in blocks of malloc's, of which only pages that are whole within one block can be
 * protected.
 *
 * A program that goes through its memory page by page, with no checkpoint under way, has nothing to be told: after some
 * pages in a row those before it are opened, too (streams.h). If it stops, at most half as many are written that have
 * not changed.
 *
 * Who waits does so for the writer, which never waits for the program: it writes from copies (writer.c), and takes the
 * lock for moments.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "client/client.h"
#include "client/streams.h"
#include "client/track.h"

/* Opens a unit's pages for the program. -EAGAIN: some have yet to be written. */
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

/* The unit with this page; a larger one if the kernel has too many pieces of memory to tell apart. */
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

/* This page and, with no checkpoint under way, those that will be written to next: then nobody has to be told of each,
 * and nobody waits. */
static int touch_row(struct region *r, uint32_t page, uint32_t now_us) REQUIRES(client.lock)
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

/* The program waits while there is a page that it waits for. */
static void count_waiting(uint64_t now_ns) REQUIRES(client.lock)
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

/* A child of fork(2) has our tables but not our threads: its memory is its own. */
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

		error = touch_row(r, page, client_epoch_us(now));
		count_waiting(now);
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

/* Where the next region begins; `end` if there is none before it. */
static uintptr_t next_region(uintptr_t address, uintptr_t end)
{
	uintptr_t start;

	client_lock();
	start = region_next_address(address);
	client_unlock();
	return start < end ? start : end;
}

/* Whether a page of it is closed is for fault_touch() to find; only how far regions reach is looked for here. */
void ckptfs_touch(const void *p, size_t len)
{
	uintptr_t page = client.page_size, address = (uintptr_t)p, end = address + len;
	sigset_t before;

	if (!client.alive || len == 0 || end < address)
		return;
	signals_block(&before);
	for (address = round_down(address, page); address < end; address += page)
		if (!fault_touch(address, true))
			address = round_up(next_region(address + page, end), page) - page;
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
		/* -EAGAIN: others of its unit have yet to be written. */
		if (touch_page(region_of_page(p[i]), p[i], client_epoch_us(now)) != -EAGAIN)
			woken = true;
	}
	if (!woken)
		return;
	count_waiting(now);
	atomic_fetch_add(&client.progress, 1);
	futex_wake_all(&client.progress);
}

void fault_release_all(void)
{
	fault_done(client.pages.queue, client.pages.nr_queue);
}
