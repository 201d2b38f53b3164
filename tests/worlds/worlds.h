/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Whole worlds of agents in one thread: each agent is loop_run() of mpi-agent/agent/agent_loop.h with all that is below it, on a
 * stack of its own, and MPI, clock, sockets and daemons are ours (worlds_internal.h). Which message comes when, which
 * agent is slow or dies, and when, is by chance; a run is a function of its configuration alone.
 *
 * Stores, and what must hold of them, are those of tests/unit/mpi-agent/agent/sim.h, which simulates modelled
 * agents: what a node has acknowledged is readable at every moment. Besides:
 *   - all daemons that learn how a round has ended learn the same, and likewise for what it has decided;
 *   - an agent that has no daemon any more, or is in a world that has lost an agent, ends within bounded time;
 *   - a daemon has an answer within bounded time, if its agent is there;
 *   - where nothing goes wrong no daemon waits for a round in vain, and what all nodes have is stored as often as it is
 *     to be.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WORLDS_NODES 7u

/* Mistakes of daemons that a run can be made with, to see that it finds them. */
enum worlds_flaw {
	WORLDS_RIGHT,
	WORLDS_REFERS_EARLY, /* to others, before they have said that they have it */
	WORLDS_PINS_LATE, /* after it has said that it has stored */
	WORLDS_ALWAYS_STORED, /* says so even if not */
	WORLDS_SILENCE_IS_CONSENT, /* a daemon that receives no end of a round takes it for a good one */
	WORLDS_PINS_UNNOTED, /* says that it has pinned a page, and has not noted it */
	WORLDS_PINS_UNLOOKED, /* says so of a page that it may not have */
	WORLDS_IGNORES_MISSING, /* collects though a node is away */
	WORLDS_FLAWS,
};

struct worlds_conf {
	uint64_t seed; /* of everything that is random */
	unsigned faults_percent; /* of steps that something happens at; 0: nothing goes wrong */
	bool identical; /* all nodes bring the same */
	enum worlds_flaw flaw;
	bool trace; /* to stderr */
};

struct worlds_result {
	bool failed;
	char why[160];
	uint64_t nr_worlds, nr_rounds; /* rounds that a daemon has received the end of */
	uint64_t nr_remote, nr_pinned,
		nr_unpinned; /* pages: stored by others than the writer; pinned when asked; dropped */
	uint64_t nr_collected; /* by all nodes together, to the end */
	uint64_t nr_faults, nr_turns;
};

void worlds_run(const struct worlds_conf *conf, struct worlds_result *ret);
void worlds_release(void); /* what runs have shared */
