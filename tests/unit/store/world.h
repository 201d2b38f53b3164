/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Several stores of one cluster in one process. The rounds are the real ones of the engine; what is between the nodes
 * is a barrier here, and the number of a page decides which node stores it. Every function fails the test if it
 * cannot do its work; also those that engines call in threads of a commit, from where there is no way back into the
 * test, so that tests/meson.build has it end the program then.
 */
#pragma once

#include <pthread.h>

#include "store/remote/cluster_calls.h"
#include "tests/unit/store/rig.h"

#define NODES 4u
#define OWN 100 /* seeds of what only one node has */
#define PIECES 5000u /* more than a file has here */

struct world;

struct world_node {
	struct world *w;
	struct rig *rig;
	unsigned number;
	pthread_t thread;
	int result;

	/* of the round */
	const struct fp *offer;
	size_t nr_offered;
	struct cluster_decision d;
	int stored;
	unsigned nr_wanted; /* rounds, before a commit */
	size_t nr_announced; /* pages that no round was about */
	bool takes_none; /* others store what it has in common with them */
};

struct world {
	struct world_node nodes[NODES];
	char keyfile[64];
	struct cluster_calls calls[NODES];
	bool open; /* there are rounds */
	unsigned replicas;
	bool fail_decide, fail_settle; /* no node receives the result */
	int fail_store; /* 1 + the number of the node that has not stored what it was to; 0: none */
	unsigned nr_remote; /* the first nodes cannot be reached */
	void (*before_settle)(struct world_node *n);
	struct world_node *deferred_meanwhile; /* this node writes during the decision; NULL: none does */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned nr_in_round, nr_arrived, generation;
};

int world_setup(void **state); /* all nodes have an empty store, and there are rounds */
int world_teardown(void **state);

#define world_test(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

void world_present(struct world *w, unsigned node); /* it hears that all take part; so they do to begin with */
void world_commit(struct world *w, unsigned nr); /* of the first `nr` nodes, together */
void world_assert_committed(struct world *w);
/* The same file on every node. */
void world_write_all(struct world *w, uint64_t ino, size_t len, uint64_t seed);
void world_check_all(struct world *w, uint64_t ino, size_t len, uint64_t seed);
void world_rebuild_all(struct world *w); /* each index, from packs and journal */
uint64_t world_stored(struct world *w, unsigned node); /* bytes */
uint64_t world_stored_by_all(struct world *w);
