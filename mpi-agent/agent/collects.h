/*
 * Collecting together, as one node sees it: which chunks that nodes have lent does no other refer to any more? A
 * sequence of steps, each of them down a tree from rank 0 to all daemons, and what they answer, united on its way,
 * back:
 *
 *   PREPARE ─▶ MARK, UNLEND ─▶ MARK, UNLEND ─▶ ... ─▶ COLLECTED
 *              window 0        window 1
 *
 * PREPARE: each daemon collects what is its own to collect, and tells whether all nodes are here that it knows of. If
 * one is not, that was it: nobody knows what it refers to. MARK: each tells what it refers to in a filter; these are
 * united (or). UNLEND: all hear of the result, and give up what is not in it.
 *
 * While a window is under way no round is (rounds_hold()), and what earlier ones have made popular is forgotten at its
 * beginning: what a daemon comes to refer to, it has marked, or it comes later and was stored for it then. Between
 * windows a round that is wanted has its turn.
 *
 * Whatever is missing (an answer, a node, the time) is the end of it: what has not been given up stays lent, and no
 * more is asked for. A daemon that hears UNLEND late does no harm: it gives up what all had said they do not refer to,
 * of what it had then (store/engine/together.c).
 *
 * Memory: a filter of LINK_FILTER_MAX, those of neighbours in the tree on their way, and nothing that grows with what
 * is stored: that is what windows are for.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct collects;
struct link;
struct peers;
struct rounds;
struct waits;
struct world;

/* Borrows all of these. */
int collects_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
		 struct rounds *rounds, struct collects **ret);
void collects_free(struct collects *c); /* NULL is fine */

/* What the daemon says. -EBADMSG: what cannot be; -ENOMEM, -EIO: the end. */
int collects_want(struct collects *c);
int collects_done(struct collects *c, uint64_t number, const void *body, size_t len);
/* What other nodes say. */
int collects_peer_want(struct collects *c);
int collects_peer_step(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
int collects_peer_done(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
int collects_peer_collected(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
/* This world ends: what is under way is given up. */
void collects_end(struct collects *c);

/* Called again and again. 1: something has happened; 0; -ENOMEM, -EIO: this cannot go on. */
int collects_progress(struct collects *c, uint64_t now_ns);
uint64_t collects_nr(const struct collects *c); /* that have ended here */
