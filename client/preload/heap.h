/*
 * The allocator of programs whose memory is captured. All that it hands out, and all that it knows about it, lies in
 * one range of addresses that grows at its end: a copy of the range is a heap that can be read, and at its old
 * addresses one that can be used.
 *
 *   struct heap_state, struct unit[] │ data: units of 64 KiB
 *
 *   span    a unit of objects of one size (up to HEAP_SMALL_MAX), with a bit for each that is free
 *   large   one or more units
 *   free    runs of units, listed by size; neighbours are joined
 *
 * Safe from any thread, not from signal handlers, as malloc(3). What is freed stays in the range: it is used again, and
 * never given back to the kernel, behind whose back pages would become zeros. A pointer that is none of ours ends the
 * program, with a line that says so, as in the C library.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/siglock.h"

#define HEAP_UNIT 65536u
#define HEAP_SMALL_MAX 8192u

struct heap_state;

/* Zeroed; only the state is in the range: locks are not to be restored. */
struct heap {
	uintptr_t wanted; /* where the range is to be; 0, or taken: anywhere */
	size_t most; /* bytes of addresses that it may have; 0: as many as are good */
	struct siglock lock;
	_Atomic(const void *) holder; /* see heap_hold() */
	_Atomic(struct heap_state *) state; /* NULL: nothing has been allocated yet */
};

/* align: a power of two. NULL and errno: ENOMEM */
void *heap_alloc(struct heap *h, size_t size, size_t align, bool zeroed);
void *heap_realloc(struct heap *h, void *p, size_t size);
void heap_free(struct heap *h, void *p); /* errno stays */
size_t heap_usable(struct heap *h, const void *p);
bool heap_has(const struct heap *h, const void *p); /* an address of its range */

/*
 * Until heap_let_go() this thread alone allocates. For fork(2), and for the moment of a checkpoint. false: somebody is
 * allocating, for long: a handler of signals that has interrupted it may wait for a lock that the caller has, which is
 * to let go of it and try again.
 */
bool heap_hold(struct heap *h);
bool heap_is_held(const struct heap *h); /* by this thread */
void heap_let_go(struct heap *h);
/* a handler of signals has interrupted this thread in one of these functions: not to be held now */
bool heap_is_inside(const struct heap *h);

/* All that is known of it agrees. Held, or with nobody else there: for tests, and whoever reads a copy of one. */
bool heap_is_whole(const struct heap *h);

/* What of the range can be read by now, as two pieces of whole pages; both only grow. Lengths are 0 if there is
 * nothing. Held. */
struct heap_extent {
	uint8_t *p;
	size_t len;
};
void heap_extents(const struct heap *h, struct heap_extent ret[2]);
