#include "client/preload/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/util.h"
#include "client/client.h"
#include "client/preload/heap.h"
#include "client/preload/preload.h"

struct piece {
	uintptr_t start, end; /* whole pages */
	bool heap;
};

static struct siglock lock;
static _Atomic(const void *) holder;
static _Thread_local char self __attribute__((tls_model("initial-exec")));
static uint32_t depth; /* of whoever holds it: handlers of fork(2) map memory, too */
/* that whoever holds it had blocked before: its own handlers may map memory, and would wait for it */
static sigset_t signals;

static struct piece *pieces; /* by address, without overlap */
static size_t nr_pieces, size_pieces;
static uintptr_t heap_seen[2]; /* up to where the heap's extents are pieces */
static bool started, stopped;

void capture_lock(void) NO_THREAD_SAFETY_ANALYSIS
{
	if (atomic_load(&holder) != &self) {
		sigset_t before;

		siglock_enter(&lock, &before);
		signals = before;
		atomic_store(&holder, &self);
	}
	depth++;
}

void capture_unlock(void) NO_THREAD_SAFETY_ANALYSIS
{
	if (--depth == 0) {
		sigset_t before = signals;

		atomic_store(&holder, NULL);
		siglock_leave(&lock, &before);
	}
}

void capture_start(void)
{
	started = true;
}

void capture_stop(void)
{
	stopped = true;
}

static bool make_room(void)
{
	size_t size = MAX(2 * size_pieces, (size_t)1024);
	struct piece *p;

	if (nr_pieces + 2 <= size_pieces)
		return true;
	p = mmap(NULL, size * sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return false;
	if (pieces) {
		memcpy(p, pieces, nr_pieces * sizeof(*p));
		munmap(pieces, size_pieces * sizeof(*p));
	}
	pieces = p;
	size_pieces = size;
	return true;
}

/* The first piece that ends behind it. */
static size_t find(uintptr_t address)
{
	size_t low = 0, high = nr_pieces;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (pieces[middle].end > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void insert(size_t at, struct piece piece)
{
	memmove(pieces + at + 1, pieces + at, (nr_pieces - at) * sizeof(*pieces));
	pieces[at] = piece;
	nr_pieces++;
}

static void take_out(size_t at)
{
	memmove(pieces + at, pieces + at + 1, (nr_pieces - at - 1) * sizeof(*pieces));
	nr_pieces--;
}

static void add(uintptr_t start, uintptr_t end, bool heap)
{
	if (stopped || start == end)
		return;
	if (make_room())
		insert(find(start), (struct piece){ start, end, heap });
	else
		log_warning("memory at %#" PRIxPTR ": %zu bytes are not captured: no memory", start,
			    (size_t)(end - start));
}

void capture_add(const void *p, size_t len)
{
	add((uintptr_t)p, (uintptr_t)p + round_up(len, (uint64_t)sysconf(_SC_PAGESIZE)), heap_has(&preload_heap, p));
}

/* What the heap has now becomes pieces. It is held. */
static void add_heap(void)
{
	struct heap_extent extent[2];

	heap_extents(&preload_heap, extent);
	for (int i = 0; i < 2; i++) {
		uintptr_t start = MAX((uintptr_t)extent[i].p, heap_seen[i]), end = (uintptr_t)extent[i].p + extent[i].len;

		if (extent[i].len == 0 || start == end)
			continue;
		add(start, end, true);
		heap_seen[i] = end;
	}
}

/* Nothing has been done yet with the lock, which a handler may wait for that has interrupted somebody who allocates. */
static void look_at_heap(void)
{
	if (heap_is_held(&preload_heap) || heap_is_inside(&preload_heap)) {
		add_heap();
		return;
	}
	while (!heap_hold(&preload_heap)) {
		capture_unlock();
		capture_lock();
	}
	add_heap();
	heap_let_go(&preload_heap);
}

bool capture_has(const void *p, size_t len)
{
	size_t i = find((uintptr_t)p);

	return heap_has(&preload_heap, p) || (i < nr_pieces && pieces[i].start < (uintptr_t)p + len);
}

bool capture_covers(const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p, end = at + len;

	for (size_t i = find(at); at < end && i < nr_pieces && pieces[i].start <= at; i++)
		at = pieces[i].end;
	return at >= end;
}

/* Its pages are the program's again. A handler of signals that has interrupted a call of ckptfs.h cannot wait for that:
 * the region stays, and the next checkpoint says that it cannot be read. */
static void forget_region(uintptr_t start)
{
	struct region *r;
	int error;

	if (!started || !client_enter(&error))
		return;
	r = region_at((const void *)start);
	if (r)
		client_drop_region(r);
	client_leave();
}

/* Whole pages: a call that will fail may say anything. */
static struct piece around(const void *p, size_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = round_down((uintptr_t)p, page), end;

	if (__builtin_add_overflow((uintptr_t)p, len, &end) || end > UINTPTR_MAX - page)
		end = start; /* there is no such memory */
	return (struct piece){ .start = start, .end = round_up(end, page) };
}

void capture_release(const void *p, size_t len)
{
	struct piece whole = around(p, len);
	uintptr_t at = whole.start;
	size_t i;

	if (heap_has(&preload_heap, p)) /* it may have grown since the last checkpoint */
		look_at_heap();
	while (!stopped && (i = find(at)) < nr_pieces && pieces[i].start < whole.end) {
		struct piece was = pieces[i];
		uintptr_t from = MAX(was.start, whole.start);

		at = MIN(was.end, whole.end);
		forget_region(was.start);
		take_out(i);
		add(was.start, from, was.heap);
		add(from, at, was.heap);
		add(at, was.end, was.heap);
	}
}

bool capture_remove(const void *p, size_t len)
{
	struct piece whole = around(p, len);
	size_t i = find(whole.start);
	bool any = false;

	while (!stopped && i < nr_pieces && pieces[i].start < whole.end) {
		take_out(i);
		any = true;
	}
	return any && started;
}

int capture_gather(void) NO_THREAD_SAFETY_ANALYSIS
{
	add_heap();
	for (size_t i = 0; i < nr_pieces; i++) {
		void *p = (void *)pieces[i].start;
		char name[IMAGE_NAME_MAX + 1];
		struct region *r;
		int error;

		if (region_at(p))
			continue;
		snprintf(name, sizeof(name), "%s.%" PRIxPTR, pieces[i].heap ? "heap" : "map", pieces[i].start);
		error = client_add_region(name, p, pieces[i].end - pieces[i].start, REGION_CAPTURED, 0, &r);
		if (error == -ENOMEM || error == -EFBIG)
			return error;
		if (error < 0) { /* it is not there any more, or another userfaultfd has it */
			log_warning("memory at %p: %zu bytes are left out of checkpoints: %s", p,
				    (size_t)(pieces[i].end - pieces[i].start), strerror(-error));
			take_out(i--);
		}
	}
	return 0;
}
