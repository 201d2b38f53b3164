/*
 * libckptfs-preload.so: libckptfs for programs that know nothing of it.
 *
 *   malloc.c    what the program calls instead of the C library's functions
 *   heap.h      what it gets
 *   capture.h   which of its memory is in checkpoints
 *   preload.c   begins, and takes checkpoints
 *
 * Locks: capture_lock(), client.call, the heaps (heap_hold()), in this order, then those of client.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct heap;

extern struct heap preload_heap; /* the program's */
/* this thread is libckptfs's, or does its work */
extern _Thread_local bool preload_own __attribute__((tls_model("initial-exec")));

uint32_t preload_own_threads(void); /* that run; it may be one less for a moment */
bool preload_allocated(const void *p); /* by one of our heaps */

/* Around fork(2): nobody else is in the midst of anything, so that the child can go on. */
void preload_fork_begins(void);
void preload_fork_ends(void);
