/*
 * Which memory of an unmodified program is captured: what its heap has, and what it maps for itself: private,
 * anonymous, for reading and writing. In checkpoints each piece is a region, heap.ADDRESS or map.ADDRESS. Not captured,
 * because nobody could put it back, or it is not the program's alone:
 *
 *   stacks, data of the program and its libraries, thread-local storage   the program has them anew when it starts
 *   files that are mapped, shared memory, memory of devices               are elsewhere
 *   memory that is mapped without being readable and writable             it may become code, or never be used
 *   memory whose protection is changed, that is moved or huge pages       what has been captured of it is left out from then on, which is logged
 *
 * Pieces become regions when a checkpoint is taken, never before: so nobody who allocates or maps memory waits for one.
 * Whoever takes memory away that is a region waits until the checkpoint under way has what it needs of it.
 *
 * Lock: capture_lock(), taken before client.call, and before the heap is held.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

void capture_lock(void);
void capture_unlock(void);

/* The rest with the lock. */
void capture_start(void); /* checkpoints have been begun: from now on pieces are regions */
void capture_stop(void); /* in a child of fork(2): nothing is captured any more */
/* This has been mapped, or is memory of the heap that was cut out. Without memory for tables it is not captured, which
 * is logged. */
void capture_add(const void *p, size_t len);
/* Before some of it is taken away or changed by other means than writing to it. The checkpoint under way needs it no
 * more, the next one has it anew. */
void capture_release(const void *p, size_t len);
/* And when that has succeeded: nothing of it is captured any more. true: there was something, and checkpoints have
 * begun. */
bool capture_remove(const void *p, size_t len);
bool capture_has(const void *p, size_t len); /* some of it */
bool capture_covers(const void *p, size_t len); /* all of it */
/* All pieces become regions. With client.call and the heap held, and no checkpoint under way. */
int capture_gather(void);
