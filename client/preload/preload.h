/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libckptfs-preload.so: libckptfs for unmodified programs.
 *
 *   malloc.c    replacements for the C library's functions
 *   heap.h      the allocator
 *   capture.h   the memory that checkpoints contain
 *   preload.c   initialisation, and the thread that takes checkpoints
 *
 * Locks: capture_lock(), client.call, the heaps (heap_hold()), in this order, then those of client.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct heap;

extern struct heap preload_heap; /* the program's */
/* this thread belongs to libckptfs, or runs its code */
extern _Thread_local bool preload_own __attribute__((tls_model("initial-exec")));

uint32_t preload_own_threads(void); /* running threads of libckptfs; briefly one less */
bool preload_allocated(const void *p); /* by one of our heaps */

/* Hold all locks during fork(2), so that the state is consistent in the child. */
void preload_before_fork(void);
void preload_after_fork(void);
