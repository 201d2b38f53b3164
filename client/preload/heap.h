/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allocator of programs with captured memory. All allocations and their metadata are in one range of addresses
 * that grows at its end: a copy of the range is a heap that can be read and, at the old addresses, used.
 *
 *   struct heap_state, struct unit[] │ data: units of 64 KiB
 *
 *   span    a unit of objects of one size (up to HEAP_SMALL_MAX), with a bit for each that is free
 *   large   one or more units
 *   free    runs of units, listed by size; neighbours are joined
 *
 * Thread-safe but not async-signal-safe, like malloc(3). Freed memory stays in the range and is reused; it is never
 * returned to the kernel, because pages that become zeros without a write would not be tracked. An invalid pointer
 * aborts the program with a message, as in the C library.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/siglock.h"

#define HEAP_UNIT 65536u
#define HEAP_SMALL_MAX 8192u

struct heap_state;

/* Zero-initialised. The state is in the range; this struct is not: locks must not be restored. */
struct heap {
	uintptr_t wanted; /* preferred start of the range; 0, or in use: anywhere */
	size_t most; /* maximum size of the range; 0: chosen by the size of memory */
	struct siglock lock;
	_Atomic(const void *) holder; /* see heap_hold() */
	_Atomic(struct heap_state *) state; /* NULL: nothing has been allocated yet */
};

/* align: a power of two. NULL and errno: ENOMEM */
void *heap_alloc(struct heap *h, size_t size, size_t align, bool zeroed);
void *heap_realloc(struct heap *h, void *p, size_t size);
void heap_free(struct heap *h, void *p); /* errno unchanged */
size_t heap_usable(struct heap *h, const void *p);
bool heap_has(const struct heap *h, const void *p); /* the address is in its range */

/*
 * Until heap_release() only this thread can allocate. For fork(2), and while a checkpoint is taken. false: another
 * thread has been allocating for long. A signal handler that has interrupted it may be waiting for a lock of the
 * caller, which must release that lock and retry.
 */
bool heap_hold(struct heap *h);
bool heap_is_held(const struct heap *h); /* by this thread */
void heap_release(struct heap *h);
/* true in a signal handler that has interrupted one of these functions: the heap cannot be held */
bool heap_is_inside(const struct heap *h);

/* The readable parts of the range: two extents of whole pages, which only grow; empty ones have length 0. With the heap
 * held. */
struct heap_extent {
	uint8_t *p;
	size_t len;
};
void heap_extents(const struct heap *h, struct heap_extent ret[2]);
