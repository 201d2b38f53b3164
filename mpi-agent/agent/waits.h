/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Timeouts of an agent. Tests link different ones (tests/cluster/agent_waits.c). */
#pragma once

#include <stdint.h>

struct waits {
	uint64_t hello_ns; /* for the daemon's WELCOME */
	uint64_t offer_ns; /* for the daemon's OFFER after BEGIN, which takes 2 s at most */
	uint64_t lookup_ns; /* for lookups; the round continues without late answers */
	uint64_t stored_ns; /* for the daemon's STORED */
	/* for chunks of one node, before the next one is asked; and for the daemon to answer GETs of peers */
	uint64_t ask_ns;
	uint64_t fetch_ns; /* for all chunks of a FETCH; the daemon waits for 20 s */
	/* for any message of the previous rank, and for all nodes to take part in a round: then the agents end */
	uint64_t stall_ns;
	uint64_t prepare_ns; /* for PREPARE: all nodes collect their local garbage */
	uint64_t window_ns; /* for each later step of a collection, while no round can run */
	/* for another node to store a replica, and for the own daemon to do so for peers */
	uint64_t keep_ns;
	uint64_t end_ns; /* for all agents to end */
};

const struct waits *waits_of_agent(void);
