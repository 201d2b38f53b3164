/*
 * Memory that a daemon and its agent both see, so that long answers need not go through their socket.
 *
 * Each end has one of its own, in which it alone writes and says what is in use, and gives the other a descriptor of it
 * with its first message. Where an answer lies is told over the socket (PLACES, THERE), and so is that it is not needed
 * any more (TAKEN). Nothing in the memory says how it is used, so nobody has to believe it, and an end that dies leaves
 * nothing to be mended: its arena goes with it.
 *
 * The file can neither shrink nor grow, and nobody but its owner can map it for writing (seals of memfd_create(2)): who
 * looks at the other's cannot be made to fault. What is there may change while it is looked at; who has to rely on
 * bytes copies them first.
 *
 * References may be got and put by any thread. What is in use belongs to one thread, or a lock of its owner's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_LEN ((size_t)32 << 20)
#define ARENA_MIN ((size_t)64 << 10) /* what is shorter goes through the socket as well */

struct arena;

/* Of both ends. */
struct arenas {
	struct arena *own, *theirs; /* NULL: none */
};

/* One of this end's. Logs why not. */
int arena_new(size_t len, struct arena **ret);
/* The other end's, to look at. Takes fd. -EBADMSG: it is none that can be looked at safely. */
int arena_open(int fd, struct arena **ret);
struct arena *arena_get(struct arena *a);
void arena_put(struct arena *a); /* NULL is fine */
void arena_putp(struct arena **a);

const uint8_t *arena_data(const struct arena *a);
size_t arena_len(const struct arena *a);

/* --- of this end's --- */

int arena_fd(const struct arena *a); /* borrowed */
/* Some that is not in use, and begins at a page: always the first there is, so that the same memory comes again soon.
 * NULL: there is none, now. */
uint8_t *arena_take(struct arena *a, size_t len);
void arena_give_back(struct arena *a, const uint8_t *p, size_t len); /* as it was taken */
