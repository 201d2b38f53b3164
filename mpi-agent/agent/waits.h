/* Timeouts of an agent. Tests link others (tests/cluster/agent_waits.c). */
#pragma once

#include <stdint.h>

struct waits {
	uint64_t hello_ns; /* for the daemon's first word */
	uint64_t offer_ns; /* for its pages, after BEGIN; it takes 2 s at most for that */
	uint64_t lookup_ns; /* for others to say which pages they have, and to lend them; less is known then */
	uint64_t stored_ns; /* for it to have stored what it is to */
	/* for chunks of one node, before another is asked; and for those of the own daemon that others want */
	uint64_t ask_ns;
	uint64_t fetch_ns; /* for all chunks of a FETCH; the daemon waits for 20 s */
	/* for any word of another node, and for all to take part in a round: this world has no use then */
	uint64_t stall_ns;
	uint64_t prepare_ns; /* for all nodes to collect what is theirs, before they do so together, ... */
	uint64_t window_ns; /* and for each step of that, while there are no rounds */
	/* for another node to keep what this one wants it to, and for its own daemon to do so for others */
	uint64_t keep_ns;
	uint64_t end_ns; /* for all to leave together */
};

const struct waits *waits_of_agent(void);
