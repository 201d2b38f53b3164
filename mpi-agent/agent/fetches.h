/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Fetches remote chunks for this node's daemon. A FETCH is split into requests to single nodes, several at once: to the
 * first owner of a chunk, then to the next if one does not have it or does not answer in time, and then to all other
 * nodes in turn. Unresponsive nodes, and those with unresponsive daemons, are asked last until they answer. When all
 * chunks have arrived, all nodes were asked, or time is up, the daemon gets one answer: the places in the arena
 * (arena.h) until it has taken them or, if not all chunks are there, the bytes.
 *
 * Memory: chunks of FETCH_BYTES_MAX at once, and the queue of requests. The daemon verifies chunks against their
 * fingerprints, for which the agent has no key.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct fetches;
struct message;
struct waits;
struct link;
struct peers;
struct world;

struct fetches_figures {
	uint64_t chunks, bytes; /* received */
	uint64_t missing; /* chunks that no node had, or sent in time */
	uint64_t asked; /* requests sent */
};

/* Borrows all arguments. `arena`: own arena, if it is shared with the daemon; NULL: none. */
int fetches_new(const struct world *w, struct peers *p, struct link *daemon, const struct arena *arena,
		const struct waits *waits, struct fetches **ret);
void fetches_free(struct fetches *fs); /* NULL is fine */

/* The daemon's FETCH. -EBADMSG, -ENOMEM, -EIO */
int fetches_fetch(struct fetches *fs, uint64_t number, const void *body, size_t len);
/* Another node's CHUNKS: `message` includes the header, and is moved if it is kept. -EBADMSG: malformed; the chunks are
 * then requested from other nodes. */
int fetches_chunks(struct fetches *fs, uint32_t from, uint64_t number, uint64_t now_ns, struct message *message);
/* The daemon's TAKEN. -EBADMSG: there is no such answer */
int fetches_taken(struct fetches *fs, uint64_t number);
/* 1: made progress; 0; <0 */
int fetches_progress(struct fetches *fs, uint64_t now_ns);
bool fetches_waiting(const struct fetches *fs); /* waits for other nodes */
const struct fetches_figures *fetches_figures(const struct fetches *fs);
