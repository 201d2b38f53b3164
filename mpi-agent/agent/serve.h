/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Serves chunks of this node to others: passes their GETs to the daemon, and its answers back. A GET that the daemon
 * does not answer in time is answered without chunks, so that the requesting node asks another one. A limited number is
 * passed to the daemon at once; the others stay with the sender (peers.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct waits;
struct link;
struct peers;
struct serve;

struct serve_figures {
	uint64_t chunks, bytes; /* sent to peers */
	uint64_t missing; /* chunks not present, or not answered in time */
};

/* Borrows all arguments. `theirs`: the daemon's arena; NULL: none */
int serve_new(struct peers *p, struct link *daemon, const struct arena *theirs, const struct waits *waits,
	      struct serve **ret);
void serve_free(struct serve *s); /* NULL is fine */

bool serve_has_room(const struct serve *s); /* for another GET */
/* -EBADMSG, -ENOMEM, -EIO */
int serve_get(struct serve *s, uint32_t from, uint64_t number, const void *body, size_t len);
/* The daemon's CHUNKS. */
int serve_chunks(struct serve *s, uint64_t number, const void *body, size_t len);
/* The daemon's THERE: sent from its arena without a copy; TAKEN follows when MPI has sent it. */
int serve_there(struct serve *s, uint64_t number, const void *body, size_t len);
int serve_progress(struct serve *s, uint64_t now_ns); /* 1: made progress; 0; <0 */
const struct serve_figures *serve_figures(const struct serve *s);
