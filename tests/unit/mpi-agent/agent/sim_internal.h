/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The state of a simulation, and what its parts see of each other: sim.c goes from round to round, says what goes wrong
 * and looks at what must hold; sim_node.c is a store and a node's part in a round; sim_agents.c is the agents, with all
 * messages between them and nodes; sim_decide.c is what agents decide about the pages of a round.
 */
#pragma once

#include "base/util.h"
#include "mpi-agent/popular/known.h"
#include "mpi-agent/popular/popular_merge.h"
#include "tests/unit/mpi-agent/agent/sim.h"
#include "store/remote/cluster_calls.h"

#define SIM_PAGES 32u

/* A reference to other nodes, by their numbers in the simulation. */
struct sim_ref {
	bool is;
	unsigned nr, expected; /* owners; 0: unknown how many there should be, as sets were cut */
	unsigned owners[CLUSTER_OWNERS_MAX];
	uint32_t has; /* bit i: owners[i] has had it before */
};

enum sim_state { SIM_NODE_IDLE, SIM_NODE_OFFERED, SIM_NODE_STORING, SIM_NODE_STORED };

/* One commit's part in a round. */
struct sim_part {
	uint64_t round;
	unsigned nr, pages[SIM_PAGES]; /* offered, by fingerprint */
	struct cluster_decision d;
	struct sim_ref refs[SIM_PAGES]; /* of the pages offered, as decided */
	uint8_t fates[SIM_PAGES];
};

/* What has not come yet. */
struct sim_late {
	bool begin, offer, decision, stored, settled;
	uint64_t begin_round, offer_round, decision_round, stored_round, settled_round;
	bool offered[SIM_PAGES];
	struct sim_part part; /* of DECISION: what it says */
	bool has_stored[SIM_NODES];
};

struct sim_node {
	unsigned host;
	uint8_t id[CLUSTER_ID_LEN];
	/* On its disk. */
	bool has[SIM_PAGES], pinned[SIM_PAGES], acked[SIM_PAGES];
	struct sim_ref remote[SIM_PAGES];
	/* In its memory. */
	bool is_up;
	bool file[SIM_PAGES]; /* files as applications see them, of which `acked` are durable */
	bool paused[SIM_PAGES]; /* new, and nowhere yet */
	enum sim_state state;
	struct sim_part part;
	struct sim_late late;
};

/* The agents, which live and die together. */
struct sim_world {
	bool lives;
	uint64_t round;
	unsigned nr, members[SIM_NODES]; /* by their number in a round */
	bool offered[SIM_NODES][SIM_PAGES]; /* in this round, by number in the simulation */
	bool has_stored[SIM_NODES];
	/* What agents know of others, by number in the simulation; what they know is by number in a round. */
	struct holders known[SIM_NODES][SIM_PAGES];
	bool entered[SIM_NODES][SIM_PAGES]; /* offered, and not had by as many as are to */
	bool is_reported[SIM_NODES][SIM_PAGES]; /* to the page's home: the node that stored it alone; by number in a round */
};

struct sim {
	const struct sim_conf *conf;
	struct sim_result *result;
	uint64_t seed;
	unsigned nr_nodes, nr_owners, round;
	size_t max; /* pages in a set */
	struct sim_node nodes[SIM_NODES];
	struct sim_world world;
	struct sim_ref refs[SIM_PAGES]; /* as this round has decided, owners by their numbers in it */
};

/* --- sim.c --- */

unsigned sim_below(struct sim *s, unsigned n); /* by chance */
bool sim_chance(struct sim *s, unsigned percent);
unsigned sim_number_of(const struct sim *s, const struct sim_node *n);
struct fp sim_fp_of_page(unsigned page);
_printf_(2, 3) void sim_trace(const struct sim *s, const char *fmt, ...);
_printf_(2, 3) void sim_wrong(struct sim *s, const char *fmt, ...); /* ends the run; the first one counts */
bool sim_is_flaw(const struct sim *s, enum sim_flaw flaw);
enum sim_fault sim_fault_at(struct sim *s, enum sim_step step, const struct sim_node *n);
void sim_check(struct sim *s); /* what must hold at every moment */

/* --- sim_node.c --- */

void sim_crash(struct sim *s, struct sim_node *n);
void sim_mount(struct sim *s, struct sim_node *n);
void sim_delete_and_collect(struct sim *s, struct sim_node *n);
void sim_write_pages(struct sim *s, struct sim_node *n);
void sim_commit_locally(struct sim *s, struct sim_node *n, enum sim_fault fault);
void sim_on_begin(struct sim *s, struct sim_node *n, uint64_t round);
void sim_on_decision(struct sim *s, struct sim_node *n, uint64_t round, const struct sim_part *p);
int sim_store(struct sim *s, struct sim_node *n, enum sim_fault fault);
void sim_finish(struct sim *s, struct sim_node *n, const bool *has_stored, enum sim_fault fault);
void sim_unpin(struct sim *s, struct sim_node *n, const bool *referred); /* and what no file needs is given back */

/* --- sim_agents.c --- */

void sim_world_begin(struct sim *s); /* of the nodes that are up */
void sim_world_round(struct sim *s); /* a node that does not receive its end goes on alone */

/* --- sim_decide.c --- */

struct merge_conf sim_merge_conf(const struct sim *s, uint32_t hosts[SIM_NODES]); /* borrows `hosts` */
struct popular sim_popular_of(const struct sim *s, const struct merge_conf *conf, unsigned rank, unsigned page);
void sim_decide(struct sim *s); /* s->refs, for all nodes alike */
/* What one node receives of it; `nodes` and `owners` are its arrays. */
struct sim_part sim_decision_for(struct sim *s, unsigned rank, struct cluster_node *nodes,
				 struct cluster_owners *owners);
