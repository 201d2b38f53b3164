/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The parts of a simulation: worlds.c goes from event to event; agents.c is stacks and what an agent's loop calls
 * instead of the system; agent_flaws.c is the mistakes of agents; wires.c is what lies between agent and daemon;
 * daemons.c is the daemons, daemon_collects.c what they do when nodes collect together, and node_stores.c their stores;
 * mpi.c is MPI; reduction.c shares it among several agents; memory.c frees what agents leave behind, as the end of a
 * process does.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/rounds.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"
#include "mpi-agent/popular/popular_merge.h"
#include "node_stores.h"
#include "worlds.h"

#define MS UINT64_C(1000000)
#define NEVER UINT64_MAX

/* --- one direction of a socket: messages, and when each comes --- */

struct packet {
	struct packet *next;
	uint64_t at_ns;
	struct buf bytes;
};
struct wire {
	struct packet *first, **end;
	uint64_t last_ns; /* nothing comes before what was sent before */
};
void wire_init(struct wire *w);
void wire_release(struct wire *w);
void wire_send(struct wire *w, uint64_t at_ns, struct buf *bytes); /* takes these */
bool wire_take(struct wire *w, uint64_t now_ns, struct buf *ret); /* one that has come */
uint64_t wire_next_ns(const struct wire *w);

/* --- a daemon --- */

struct agent;
struct daemon {
	struct node *node;
	/* its end of the socket */
	bool is_connected;
	struct agent *agent;
	uint64_t closed_ns; /* when it sees that the agent is gone; NEVER: it is not */
	struct wire in, out;
	bool is_hung; /* says nothing more, for as long as it is connected */
	/* its part in a world */
	struct link_node *nodes;
	uint32_t nr_nodes, self;
	uint64_t write_ns, offer_ns, store_ns, timeout_ns; /* when it does so; NEVER */
	unsigned nr_writes; /* to come */
	uint64_t begun; /* the round that it is to offer for; 0: none */
	uint64_t left; /* the round: it does not wait for its decision any more */
	bool is_wanted, is_silent;
	bool is_unannounced[NR_PAGES];
	struct cluster_node cluster[WORLDS_NODES];
	struct cluster_owners owners[NR_PAGES];
	/* collecting together */
	bool is_collecting, is_marked[NR_PAGES]; /* pinned, when the window was marked */
	bool wants_collect;
	uint64_t mark_ns, mark_until_ns, mark_number; /* a MARK that waits for a round to end */
	struct link_step mark;
	/* durable */
	bool has_registered[WORLDS_NODES];
};

/* --- an agent --- */

struct fiber;
struct agent {
	struct fiber *fiber;
	struct daemon *daemon;
	struct world w;
	struct link link;
	struct link_node nodes[WORLDS_NODES];
	uint32_t hosts[WORLDS_NODES], by_store[WORLDS_NODES];
	bool is_over, is_killed; /* killed: its turn never comes again */
	int result;
	uint64_t wake_ns, stopped_ns; /* when its nap ends; until when nothing wakes it */
	uint64_t ending_ns; /* since when it has no daemon; 0: it has one */
	/* agent_flaws.c */
	uint64_t round; /* that it has begun last */
	struct trusted {
		uint64_t number;
		uint32_t to, nr;
	} trusted[WORLDS_NODES]; /* PIN requests that it answers itself */
	unsigned nr_trusted;
};

struct worlds {
	const struct worlds_conf *conf;
	struct worlds_result *result;
	uint64_t seed; /* advances */
	unsigned nr_nodes, nr_owners;
	struct node nodes[WORLDS_NODES];
	uint64_t now_ns;
	unsigned per_100000[NR_FAULTS]; /* in this run */
	unsigned nr_occasions; /* so far, of the fault of the configuration */
	struct waits waits;
	struct rounds_conf rounds_conf;
	uint64_t popular_max;
	struct daemon daemons[WORLDS_NODES];
	/* this world */
	unsigned nr;
	struct agent agents[WORLDS_NODES];
	struct agent *current; /* the one that runs; NULL: none */
	bool is_dead; /* nothing works any more; agents unwind */
	uint64_t died_ns; /* when the first of its agents has; NEVER: all live */
	/* What was received of rounds, which must be the same everywhere: by round, of the last ones. */
	struct received {
		uint64_t round;
		bool is_settled, is_decided[NR_PAGES];
		uint8_t stored[WORLDS_NODES];
		struct link_owners owners[NR_PAGES];
	} received[8];
};
extern struct worlds *ws; /* the one that is run */

/* --- worlds.c --- */
bool ws_faulty(enum worlds_fault f); /* by chance, and as much as the configuration wants; counted */
unsigned ws_below(unsigned n); /* by chance */
bool ws_chance(unsigned percent);
uint64_t ws_between(uint64_t least, uint64_t most);
_printf_(1, 2) void ws_trace(const char *fmt, ...);
_printf_(1, 2) void ws_wrong(const char *fmt, ...); /* ends the run; the first one counts */
bool ws_is_flaw(enum worlds_flaw flaw);

/* --- agents.c --- */
void agent_begin(struct agent *a);
void agent_turn(struct agent *a); /* until it naps, or is over */

/* --- daemons.c --- */
void daemon_init(struct daemon *d, struct node *n);
void daemon_connect(struct daemon *d, struct agent *a);
void daemon_disconnect(struct daemon *d); /* by the daemon, or as it sees that the agent is gone */
void daemon_crash(struct daemon *d);
uint64_t daemon_next_ns(const struct daemon *d);
void daemon_step(struct daemon *d);
bool daemon_is_busy(const struct daemon *d); /* with a round, or about to want one */

unsigned daemon_number(const struct daemon *d);
void daemon_say(struct daemon *d, struct buf *b); /* takes it */

/* --- daemon_collects.c --- */
void daemon_on_step(struct daemon *d, uint64_t number, const void *body, size_t len);
void daemon_on_collected(struct daemon *d, const void *body, size_t len);
void daemon_mark(struct daemon *d); /* as soon as no round is in the way */

/* --- mpi.c --- */
void mpi_begin(void);
MPI_Comm mpi_comm(unsigned i); /* 0: rounds, 1: messages */

/* --- reduction.c --- */
struct reduction;
struct reduction *reduction_swap(struct reduction *red); /* the thread's one, for another agent's */

/* --- memory.c --- */
void memory_track(bool on);
void memory_free_all(void); /* of what was had while it was on */
