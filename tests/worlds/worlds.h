/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Whole worlds of agents in one thread: each agent is loop_run() of mpi-agent/agent/agent_loop.h with all that is below
 * it, on a stack of its own, and MPI, clock, sockets and daemons are ours (worlds_internal.h). Which message comes when,
 * which agent is slow or dies, and when, is by chance; a run is a function of its configuration alone.
 *
 * What a node has acknowledged must be readable at every moment (node_stores.h). Besides:
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

/* What goes wrong. */
enum worlds_fault {
	ANY_FAULT, /* in a configuration */
	SLOW_MESSAGE, /* between agents; so are the next */
	AGENT_STOPS, /* for a while */
	AGENT_DIES, /* and the others do not learn of it */
	NODE_ABSENT, /* for the whole world */
	WORLD_DIES,
	SLOW_WORD, /* of a daemon; so are the next */
	SLOW_OFFER,
	SLOW_STORE,
	DAEMON_HANGS, /* it sends nothing more */
	DAEMON_CRASHES,
	DISK_FULL,
	NR_FAULTS,
};

/* Mistakes that a run can be made with, to see that it finds them. */
enum worlds_flaw {
	WORLDS_RIGHT,
	/* of daemons and their stores */
	WORLDS_REFERS_EARLY, /* to peers before they have reported that they have stored the page */
	WORLDS_REFERS_LATE, /* uses the decision of a round that ended without this node */
	WORLDS_ONE_WILL_DO, /* refers to a page that only one of several owners has stored */
	WORLDS_PINS_LATE, /* after the daemon has reported that it has stored */
	WORLDS_ALWAYS_STORED, /* reports this even if the disk was full */
	WORLDS_SILENCE_IS_CONSENT, /* a daemon that does not receive the end of a round assumes that all have stored */
	WORLDS_FREES_PINNED, /* when no file of its own needs the page */
	WORLDS_FORGETS_PINNED, /* in a crash */
	WORLDS_PINS_UNNOTED, /* reports that it has pinned a page, without a note of it */
	WORLDS_PINS_UNLOOKED, /* reports this of a page that it may not have */
	WORLDS_IGNORES_MISSING, /* collects although a node is absent */
	WORLDS_UNPINS_REFERRED, /* unpins in a collection what peers refer to */
	/* of agents (agent_flaws.c) */
	WORLDS_TAKES_STALE, /* takes messages of an earlier round of the daemon for those of this round */
	WORLDS_TRUSTS_HINTS, /* takes a page for pinned that a home says that a node has */
	WORLDS_REMEMBERS_TOO_MUCH, /* caches owners that have not reported that they have stored */
	WORLDS_REMEMBERS_TOO_LONG, /* keeps its cache through a collection */
	WORLDS_FLAWS,
};

struct worlds_conf {
	uint64_t seed; /* of everything that is random */
	unsigned faults_percent; /* of steps that something happens at; 0: nothing goes wrong */
	enum worlds_fault fault; /* only this, at faults_percent of its occasions */
	unsigned nth; /* or once, at this of its occasions, from 1 */
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
