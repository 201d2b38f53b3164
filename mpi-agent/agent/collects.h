/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Garbage collection of pinned chunks by all nodes, as one node sees it: finds the pinned chunks that no other node
 * refers to any more. A sequence of steps; each goes down a tree from rank 0 to all daemons, and their answers are
 * merged on the way back:
 *
 *   PREPARE ─▶ MARK, UNPIN ─▶ MARK, UNPIN ─▶ ... ─▶ COLLECTED
 *              window 0        window 1
 *
 * PREPARE: each daemon collects its local garbage, and reports whether all nodes that it has registered are connected.
 * If one is not, the collection ends: the chunks that it refers to are not known. MARK: each sends a filter of the
 * chunks that it refers to; the filters are united. UNPIN: all receive the union, and unpin the chunks not in it.
 *
 * No round runs during a window (rounds_hold()), and the results of earlier rounds are dropped at its start: so
 * a daemon has either marked a chunk that it refers to, or refers to it only later, after an owner has stored it in a
 * new round. Between windows a pending round is run.
 *
 * A missing answer or node, or a timeout, ends the collection: chunks not unpinned so far stay pinned. A late UNPIN
 * does no harm: the daemon unpins only chunks that it had at MARK and that no node referred to
 * (store/remote/cluster_gc.c).
 *
 * Memory: a filter of LINK_FILTER_MAX, and those of neighbours in the tree in transit; windows keep it independent of
 * the size of the stores.
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

/* Messages of the daemon. -EBADMSG: malformed; -ENOMEM, -EIO: fatal. */
int collects_want(struct collects *c);
int collects_done(struct collects *c, uint64_t number, const void *body, size_t len);
/* Messages of other nodes. */
int collects_peer_want(struct collects *c);
int collects_peer_step(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
int collects_peer_done(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
int collects_peer_collected(struct collects *c, uint32_t from, uint64_t number, const void *body, size_t len);
/* The agents are ending: abandons the collection in progress. */
void collects_end(struct collects *c);

/* Called repeatedly. 1: made progress; 0; -ENOMEM, -EIO: fatal. */
int collects_progress(struct collects *c, uint64_t now_ns);
uint64_t collects_nr(const struct collects *c); /* ended collections */
