/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Captured memory of an unmodified program: its heap, and its private anonymous mappings that are readable and
 * writable. In checkpoints each piece is a region, heap.ADDRESS or map.ADDRESS. Not captured, because it cannot be
 * restored or is not private to the program:
 *
 *   stacks, data of the program and its libraries, thread-local storage   set up again when the program starts
 *   mapped files, shared memory, memory of devices                        stored outside of the process
 *   mappings that are not readable and writable                           may become code, or never be used
 *   memory that is moved or gets another protection, huge pages           excluded from then on, which is logged
 *
 * Pieces become regions when a checkpoint is taken, not before: allocating or mapping memory never waits for one.
 * Unmapping a region waits until the checkpoint in progress has copied or written its pages.
 *
 * Lock: capture_lock(), taken before client.call and before the heap is held.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

void capture_lock(void);
void capture_unlock(void);

/* The functions below need the lock. */
void capture_start(void); /* after ckptfs_init(): pieces may be regions from now on */
void capture_stop(void); /* in a child of fork(2): captures nothing any more */
/* Adds memory that was mapped, or part of the heap that had been removed. Failures (ENOMEM) are logged. */
void capture_add(const void *p, size_t len);
/* Call before a range is unmapped or changed other than by writing to it. The checkpoint in progress does not need it
 * any more, and the next one writes all of it. */
void capture_release(const void *p, size_t len);
/* Call after that has succeeded: stops capturing the range. true: some of it was captured, after capture_start(). */
bool capture_remove(const void *p, size_t len);
bool capture_has(const void *p, size_t len); /* some of the range */
bool capture_covers(const void *p, size_t len); /* all of the range */
/* Makes all pieces regions. With client.call and the heap held, and no checkpoint in progress. */
int capture_gather(void);
