/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/preload/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/preload/heap.h"
#include "client/preload/preload.h"

struct piece {
	uintptr_t start, end; /* whole pages */
	bool heap;
};

static struct siglock lock;
static _Atomic(const void *) holder;
static _Thread_local char self __attribute__((tls_model("initial-exec")));
static uint32_t depth; /* the lock is recursive: handlers of fork(2) map memory, too */
static sigset_t signals; /* mask of the holder before; signals are blocked because handlers may map memory */

static struct piece *pieces; /* by address, without overlap */
static size_t nr_pieces, size_pieces;
static uintptr_t heap_seen[2]; /* ends of the heap's extents that are pieces */
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

static bool reserve_pieces(void)
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

/* The first piece that ends behind the address. */
static size_t piece_index(uintptr_t address)
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

static void piece_insert(size_t at, struct piece piece)
{
	memmove(pieces + at + 1, pieces + at, (nr_pieces - at) * sizeof(*pieces));
	pieces[at] = piece;
	nr_pieces++;
}

static void piece_remove(size_t at)
{
	memmove(pieces + at, pieces + at + 1, (nr_pieces - at - 1) * sizeof(*pieces));
	nr_pieces--;
}

static void piece_add(uintptr_t start, uintptr_t end, bool heap)
{
	if (stopped || start == end)
		return;
	if (reserve_pieces())
		piece_insert(piece_index(start), (struct piece){ start, end, heap });
	else
		log_warning("memory at %#" PRIxPTR ": cannot capture %zu bytes: out of memory", start,
			    (size_t)(end - start));
}

void capture_add(const void *p, size_t len)
{
	piece_add((uintptr_t)p, (uintptr_t)p + round_up(len, (uint64_t)sysconf(_SC_PAGESIZE)),
		  heap_has(&preload_heap, p));
}

/* Adds what the heap has grown by. With the heap held. */
static void add_heap(void)
{
	struct heap_extent extent[2];

	heap_extents(&preload_heap, extent);
	for (int i = 0; i < 2; i++) {
		uintptr_t start = MAX((uintptr_t)extent[i].p, heap_seen[i]), end = (uintptr_t)extent[i].p + extent[i].len;

		if (extent[i].len == 0 || start == end)
			continue;
		piece_add(start, end, true);
		heap_seen[i] = end;
	}
}

/* Holds the heap and adds what it has grown by. The capture lock may be released meanwhile, so nothing may have been
 * read under it yet: a signal handler that has interrupted an allocating thread may be waiting for it. */
static void hold_and_add_heap(void)
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
	heap_release(&preload_heap);
}

bool capture_has(const void *p, size_t len)
{
	size_t i = piece_index((uintptr_t)p);

	return heap_has(&preload_heap, p) || (i < nr_pieces && pieces[i].start < (uintptr_t)p + len);
}

bool capture_covers(const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p, end = at + len;

	for (size_t i = piece_index(at); at < end && i < nr_pieces && pieces[i].start <= at; i++)
		at = pieces[i].end;
	return at >= end;
}

/* Removes the region of a piece. In a signal handler that has interrupted a public function this is not possible: the
 * region stays, and the next checkpoint fails to read it. */
static void drop_region(uintptr_t start)
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

/* The whole pages of a range, which may be invalid: the system call will fail then. */
static struct piece page_range(const void *p, size_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = round_down((uintptr_t)p, page), end;

	if (__builtin_add_overflow((uintptr_t)p, len, &end) || end > UINTPTR_MAX - page)
		end = start;
	return (struct piece){ .start = start, .end = round_up(end, page) };
}

void capture_release(const void *p, size_t len)
{
	struct piece whole = page_range(p, len);
	uintptr_t at = whole.start;
	size_t i;

	if (heap_has(&preload_heap, p)) /* it may have grown since the last checkpoint */
		hold_and_add_heap();
	while (!stopped && (i = piece_index(at)) < nr_pieces && pieces[i].start < whole.end) {
		struct piece was = pieces[i];
		uintptr_t from = MAX(was.start, whole.start);

		at = MIN(was.end, whole.end);
		drop_region(was.start);
		piece_remove(i);
		piece_add(was.start, from, was.heap);
		piece_add(from, at, was.heap);
		piece_add(at, was.end, was.heap);
	}
}

bool capture_remove(const void *p, size_t len)
{
	struct piece whole = page_range(p, len);
	size_t i = piece_index(whole.start);
	bool any = false;

	while (!stopped && i < nr_pieces && pieces[i].start < whole.end) {
		piece_remove(i);
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
		if (error < 0) { /* unmapped by a bare system call, or registered with another userfaultfd */
			log_warning("memory at %p: %zu bytes excluded from checkpoints: %s", p,
				    (size_t)(pieces[i].end - pieces[i].start), strerror(-error));
			piece_remove(i--);
		}
	}
	return 0;
}
