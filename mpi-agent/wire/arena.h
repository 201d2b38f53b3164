/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Shared memory between a daemon and its agent, so that long answers need not be copied through their socket.
 *
 * Each end has an arena that it alone writes to and allocates from, and passes a descriptor of it with its first
 * message. The location of an answer is sent over the socket (PLACES, THERE), and so is the notice that its memory can
 * be reused (TAKEN). The memory contains no metadata, so none has to be trusted, and nothing needs repair if an end
 * dies: its arena is freed with it.
 *
 * The file can neither shrink nor grow, and only its owner can map it for writing (seals of memfd_create(2)): reading
 * never faults. The content may change while it is read: copy bytes before relying on them.
 *
 * References may be taken and dropped by any thread. Allocations need one thread, or a lock of the owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_LEN ((size_t)32 << 20)
#define ARENA_MIN ((size_t)64 << 10) /* shorter answers are sent through the socket */

struct arena;

/* The arenas of both ends. */
struct arenas {
	struct arena *own, *theirs; /* NULL: none */
};

/* Creates an arena for this end. Logs failures. */
int arena_new(size_t len, struct arena **ret);
/* Maps the other end's arena read-only. Takes fd. -EBADMSG: not safe to read. */
int arena_open(int fd, struct arena **ret);
struct arena *arena_get(struct arena *a);
void arena_put(struct arena *a); /* NULL is fine */
void arena_putp(struct arena **a);

const uint8_t *arena_data(const struct arena *a);
size_t arena_len(const struct arena *a);

/* --- own arena --- */

int arena_fd(const struct arena *a); /* borrowed */
/* Allocates page-aligned memory, first fit, so that recently used memory is reused. NULL: no room. */
uint8_t *arena_take(struct arena *a, size_t len);
void arena_give_back(struct arena *a, const uint8_t *p, size_t len); /* p and len as of arena_take() */
