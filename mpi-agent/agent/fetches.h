/*
 * Chunks that this node's daemon wants of others. A FETCH is asked for in pieces, each of one node, several at once:
 * the first owner of a chunk, then the next, if one does not have it or does not answer in time, and then all others,
 * one after the other. Who has not answered in time, or has said after half of it that it has nothing, is asked last,
 * until it has answered again. When all is there, everybody was asked, or time is up, the daemon gets what there is,
 * once: where it lies (arena.h), until it has taken it, or, if not all of it lies there, its bytes.
 *
 * Memory: chunks of FETCH_BYTES_MAX at once, and what waits to be asked for. The daemon compares chunks with their
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
	uint64_t chunks, bytes; /* that came */
	uint64_t missing; /* that nobody had, or not in time */
	uint64_t asked; /* messages */
};

/* Borrows all of these. `arena`: of this end, which the daemon looks at; NULL: it does not. */
int fetches_new(const struct world *w, struct peers *p, struct link *daemon, const struct arena *arena,
		const struct waits *waits, struct fetches **ret);
void fetches_free(struct fetches *fs); /* NULL is fine */

/* The daemon's FETCH. -EBADMSG, -ENOMEM, -EIO */
int fetches_fetch(struct fetches *fs, uint64_t number, const void *body, size_t len);
/* Another node's CHUNKS: `message` with the header, taken if it is of use. -EBADMSG: not what was asked for, which is
 * then asked of others. */
int fetches_chunks(struct fetches *fs, uint32_t from, uint64_t number, uint64_t now_ns, struct message *message);
/* The daemon's TAKEN. -EBADMSG: of nothing that it was given */
int fetches_taken(struct fetches *fs, uint64_t number);
/* 1: something has happened; 0; <0 */
int fetches_progress(struct fetches *fs, uint64_t now_ns);
bool fetches_waiting(const struct fetches *fs); /* for another node */
const struct fetches_figures *fetches_figures(const struct fetches *fs);
