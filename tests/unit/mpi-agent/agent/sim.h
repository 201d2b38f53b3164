/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rounds of several nodes in one thread, with faults at chosen or random moments. The reduction and each node's part in
 * a round are those of the product (mpi-agent/popular/popular_merge.h, store/remote/round.h); stores, agents and
 * messages are modelled. A run is a function of its configuration alone.
 *
 * What a node has acknowledged must be readable at every moment: locally, or from other nodes by a reference. All its
 * owners have the bytes, durable and pinned, on different hosts: as many as requested, or as there are hosts that
 * offered them.
 *
 * Beside tests/worlds, which runs the real agents and has its stores from here (sim_node.c), this is faster: 10,000 runs
 * have 100,000 faults, where the 600 of tests/worlds have 4,000.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NODES 9u
#define SIM_ROUNDS 5u

/* Where something goes wrong, in the order of a round. */
enum sim_step {
	SIM_BEGIN, /* the agent's message */
	SIM_OFFER, /* the daemon's */
	SIM_PIN, /* another node's, to the one that is said to have a page; and its answer */
	SIM_DECISION,
	SIM_STORE, /* what the daemon is to write */
	SIM_STORED,
	SIM_SETTLED,
	SIM_FINISH, /* what is left to be written, and the commit */
	SIM_STEPS,
};

enum sim_fault {
	SIM_FINE,
	SIM_LOST, /* of a message; at other steps it means nothing */
	SIM_LATE, /* it comes in the next round, at the same step; SIM_STORE: when this one is over */
	SIM_FULL, /* nothing more can be stored; at other steps than those that store it means nothing */
	SIM_CRASH, /* just before; in memory nothing is left */
	SIM_CRASH_AFTER, /* just after */
	SIM_WORLD_DIES, /* all agents do: no node receives anything more of this round */
	SIM_FAULTS,
};

/* Mistakes that a run can be made with, to see that it finds them. */
enum sim_flaw {
	SIM_RIGHT,
	SIM_REFERS_EARLY, /* to others before they have said that they have it */
	SIM_ONE_WILL_DO, /* of several owners */
	SIM_PINS_LATE, /* after it has said that it has stored */
	SIM_TAKES_STALE, /* answers of any round */
	SIM_ALWAYS_STORED, /* says so even if not */
	SIM_SILENCE_IS_CONSENT, /* a node that receives no end of a round takes it for a good one */
	SIM_FREES_PINNED, /* when no file of its own needs it */
	SIM_FORGETS_PINNED, /* in a crash */
	SIM_TRUSTS_HINTS, /* takes a page for pinned that a node is said to have */
	SIM_PINS_UNNOTED, /* says that it has pinned a page, and has not noted it */
	SIM_PINS_UNLOOKED, /* says so of a page that it may not have */
	SIM_REMEMBERS_TOO_MUCH, /* also owners that have not said that they have stored a page */
	SIM_REMEMBERS_TOO_LONG, /* also what nodes that collected together may have dropped */
	SIM_REFERS_LATE, /* goes by what was decided in a round that was over without it */
	SIM_UNPINS_REFERRED, /* when nodes collect together: what others refer to */
	SIM_FLAWS,
};

struct sim_conf {
	uint64_t seed; /* of everything that is random */
	unsigned nr_nodes; /* 0: random, 1 to SIM_NODES */
	unsigned faults_percent; /* of steps that something happens at, by chance */
	/* One fault that is not by chance; SIM_FINE: none. */
	enum sim_fault fault;
	enum sim_step step;
	unsigned round, node;
	bool identical; /* all nodes bring the same */
	enum sim_flaw flaw;
	bool trace; /* to stderr */
};

struct sim_result {
	bool failed;
	char why[160];
	uint64_t nr_remote; /* pages that other nodes than the writer stored */
	uint64_t nr_unpinned; /* pages that no node refers to, as nodes have found together */
	uint64_t nr_faults;
};

void sim_run(const struct sim_conf *conf, struct sim_result *ret);
