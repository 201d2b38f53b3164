/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Nodes with modelled stores: pages are numbers, and there is one file per page. Each node's part in a round is that of
 * the product (store/remote/round.h).
 *
 * What a node has acknowledged must be readable at every moment: locally, or from other nodes by a reference. All its
 * owners have the bytes, durable and pinned, on different hosts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/fp.h"
#include "store/remote/cluster_calls.h"

#define NR_PAGES 32u

/* A reference to other nodes, by their numbers in the simulation. */
struct node_ref {
	bool is;
	unsigned nr; /* owners */
	unsigned owners[CLUSTER_OWNERS_MAX];
	uint32_t has; /* bit i: owners[i] has had it before */
};

enum node_state { NODE_IDLE, NODE_OFFERED, NODE_STORING, NODE_STORED };

/* One commit's part in a round. */
struct node_part {
	uint64_t round;
	unsigned nr, pages[NR_PAGES]; /* offered, by fingerprint */
	struct cluster_decision d;
	struct node_ref refs[NR_PAGES]; /* of the pages offered, as decided */
	uint8_t fates[NR_PAGES];
};

struct node {
	unsigned host;
	uint8_t id[CLUSTER_ID_LEN];
	/* On its disk. */
	bool has[NR_PAGES], pinned[NR_PAGES], acked[NR_PAGES];
	struct node_ref remote[NR_PAGES];
	/* In its memory. */
	bool is_up;
	bool file[NR_PAGES]; /* files as applications see them, of which `acked` are durable */
	bool deferred[NR_PAGES]; /* new, and not stored yet */
	enum node_state state;
	struct node_part part;
};

unsigned node_number(const struct node *n);
struct fp fp_of_page(unsigned page);
void nodes_check(void); /* what must hold at every moment */

void node_crash(struct node *n); /* in memory nothing is left */
void node_mount(struct node *n);
void node_delete_pages(struct node *n); /* some of them, by chance */
void node_write_pages(struct node *n);
/* `is_full`: the disk is, and what cannot be stored stays in memory. */
void node_commit(struct node *n, bool is_full); /* without a round */
void node_offer(struct node *n, uint64_t round);
void node_decide(struct node *n, uint64_t round, const struct node_part *p);
int node_store(struct node *n, bool is_full);
void node_finish(struct node *n, const bool *has_stored, bool is_full); /* NULL: the node has not received it */
