/*
 * Questions between daemons: this node's go to the agent of the node that is asked, and others' to the daemon here; answers go back the same way. What they say is not looked at. A question
 * that is not answered in time is answered with an error, by the agent there, or else by the one here: whoever asks has an answer in bounded time, once. Some are under way at once, and
 * more are answered with -EBUSY.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct link;
struct peers;
struct queries;
struct waits;
struct world;

/* Borrows all of these. */
int queries_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, struct queries **ret);
void queries_free(struct queries *q); /* NULL is fine */

/* All of these: -EBADMSG: not what it should be; -ENOMEM, -EIO */
int queries_query(struct queries *q, uint64_t number, const void *body, size_t len); /* the daemon's QUERY */
int queries_answer(struct queries *q, uint64_t number, const void *body, size_t len); /* and its ANSWER, to others */
int queries_peer_question(struct queries *q, uint32_t from, uint64_t number, const void *body, size_t len);
int queries_peer_answer(struct queries *q, uint32_t from, uint64_t number, const void *body, size_t len);
int queries_progress(struct queries *q, uint64_t now_ns); /* 1: something has happened; 0; <0 */
