/*
 * The daemon's half of what it says to the agent of its node (link_format.h): struct cluster_calls for the engine, and
 * answers for the other nodes.
 *
 * One thread has the socket: it listens, takes one agent at a time, reads, writes, and waits for nothing else. Another
 * reads chunks that other nodes want, so that a slow disk does not hold rounds up, and a third has the store commit
 * when a round begins and something is pending, or when the engine wants one. A fourth takes the steps of a collection
 * of all nodes (service_collect.c), a fifth answers what daemons of other nodes ask (service_query.c), a sixth does
 * what they want to be kept (service_keep.c), and a seventh rebuilds chunks that other nodes want and nobody has: it
 * waits for these nodes, which must not wait for it in turn. Who calls struct cluster_calls waits for these, each time
 * no longer than the limits below; nobody waits when no agent is there, or one that has been silent for that long,
 * until it speaks of a round again.
 *
 * Nothing here makes rounds happen by themselves. What is pending is committed after `commit=` seconds at the latest,
 * taken to a round when much is, and committed when somebody waits for it (engine.h); each of these comes to decide(),
 * which asks for a round.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "mpi-agent/link_format.h"

struct buf;
struct cluster_calls;
struct cluster_node;
struct cluster_want;
struct link_copy;
struct link_done;
struct link_drop;
struct link_put;
struct link_step;
struct link_welcome;
struct service;

struct service_limits {
	uint64_t round_ns; /* how long decide(), and then settle(), wait; 0: 20 s */
	uint64_t begin_ns; /* how long a round waits for this node to come to decide(); 0: 2 s */
	uint64_t fetch_ns; /* how long fetch() waits for the next chunks; 0: 20 s */
	uint64_t tell_ns; /* how long after stored() others are told, if that has time; 0: 0.25 s */
};

/* What it wants of the store. Called from its threads, which hold no lock. */
struct service_store {
	void *userdata;
	bool (*pending)(void *userdata); /* engine_cluster_pending(); returns soon */
	void (*commit)(void *userdata); /* make it durable, which comes to decide() on the way */
	int (*chunks)(void *userdata, struct cluster_want *wants, size_t nr); /* engine_cluster_chunks() */
	/* engine_cluster_lend(), to these nodes: they are met before, so that it is known if one is missing when nodes
	 * collect together */
	int (*lend)(void *userdata, const struct cluster_node *nodes, uint32_t nr_nodes, const struct fp *fps,
		    size_t nr, bool *lent);
	/* A step of a collection of all nodes, which are these; `is_ours`: asked for by service_collect(). `filter`:
	 * MARK, zeros, step->len of them. NULL: -EOPNOTSUPP */
	int (*step)(void *userdata, const struct link_step *step, const struct cluster_node *nodes, uint32_t nr_nodes,
		    bool is_ours, uint8_t *filter, struct link_done *ret);
	/* It is over, one way or another; more than once, perhaps. `free_too`: what was given up here is to be freed.
	 * NULL: nobody wants to know */
	void (*collected)(void *userdata, bool free_too);
	/* The daemon of another node asks: 0 and what it gets, up to LINK_ANSWER_MAX bytes, appended; or why not. Soon:
	 * it is not waited for long. NULL: -EOPNOTSUPP */
	int (*answer)(void *userdata, const void *question, size_t len, struct buf *ret);
	/*
	 * What others want to be kept here; `nodes` are those that take part. kept[i]: enum link_kept, zeros before. An
	 * error is what they hear. NULL: -EOPNOTSUPP
	 */
	int (*keep)(void *userdata, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
		    uint8_t *kept);
	int (*copy)(void *userdata, const struct link_copy *copy, const struct cluster_node *nodes, uint32_t nr_nodes);
	int (*drop)(void *userdata, const struct link_drop *drop);
	/* NODES has come, and what waited for others can go on; or the agent who told them has gone (service_nodes()).
	 * Returns at once. NULL: nothing waits */
	void (*met)(void *userdata);
	/* Chunks that no node has any more, of what several others have (`got`: those that are there already). May take
	 * as long as fetch(). NULL: nothing can be */
	int (*rebuild)(void *userdata, struct cluster_want *wants, size_t nr);
	/* SHARED has come: engine_cluster_is_shared(). Returns at once. NULL: nobody wants to know */
	void (*shared)(void *userdata);
	/* engine_cluster_held_ns(); returns soon. NULL: nobody waits for what is being written */
	uint64_t (*held_ns)(void *userdata);
};

/*
 * Before the engine is opened, which wants its calls: until it starts, and after it has stopped, no agent is there.
 * Then the engine is closed, and then the service is freed.
 */
int service_new(const struct service_limits *limits, struct service **ret); /* NULL: the defaults */
const struct cluster_calls *service_calls(struct service *s);
/* Listen at `path` (0600, and only for the user it runs as and root) and say who is there. Copies both. */
int service_start(struct service *s, const char *path, const struct link_welcome *welcome,
		  const struct service_store *store);
void service_stop(struct service *s); /* started or not; NULL is fine */
void service_free(struct service *s); /* NULL is fine */

/* As fetch() of its calls, but nothing is rebuilt: for whoever does that. */
int service_fetch_whole(void *service, struct cluster_want *wants, size_t nr);

/*
 * All nodes collect together: wait for the end of that. -ENOTCONN: no agent is there, or it has gone; -ECANCELED:
 * goes_on(), which is asked now and then. What has come of it, also if it failed, is in *ret.
 */
int service_collect(struct service *s, bool (*goes_on)(void *userdata), void *userdata, struct link_done *ret);
/*
 * Ask the daemon of the store `id`. What it says is appended to *ret, or its error is returned; -ENOTCONN: no agent is
 * there; -EHOSTUNREACH: there is no such node; -ETIMEDOUT: it has not answered in time; -EBUSY: too much is asked at
 * once, here or there.
 */
int service_ask(struct service *s, const uint8_t *id, const void *question, size_t len, struct buf *ret);
/* Who takes part, for the caller to free; none if no agent is there. `ret_self`: this one. -ENOMEM */
int service_nodes(struct service *s, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
bool service_stopping(struct service *s); /* what takes long is to end */

/* Who takes part, and on which hosts: nodes with the same number are lost together. -ENOTCONN: nobody knows */
struct service_world {
	struct cluster_node *nodes;
	uint32_t *hosts;
	uint32_t nr, self;
};
int service_world(struct service *s, struct service_world *ret);
void service_world_release(struct service_world *w);
bool service_world_find(const struct service_world *w, const uint8_t *id, uint32_t *ret); /* its number */

/*
 * What another node's daemon is to do (PUT, COPY, DROP): several at once, perhaps. The message has the call's number.
 * The agent answers each, with an error if that node does not, so there is no limit of time: the answer is waited for
 * while the agent is there and goes_on() says so, which is asked now and then.
 */
struct service_call;
/* KEPT, COPIED or DROPPED */
int service_call_new(struct service *s, enum link_type answered_by, struct service_call **ret);
uint64_t service_call_number(const struct service_call *c);
int service_call_send(struct service_call *c, struct buf *message); /* takes it; -ENOTCONN */
/* What follows the header of the answer. -ENOTCONN: the agent has gone; -ECANCELED: goes_on() */
int service_call_wait(struct service_call *c, bool (*goes_on)(void *userdata), void *userdata, struct buf *ret);
void service_call_free(struct service_call *c); /* NULL is fine */

/* Since it started. */
struct service_stats {
	bool is_connected; /* an agent is there */
	bool is_silent; /* it has not answered in time */
	uint32_t nr_nodes; /* that take part; 0: it has not said so yet */
	uint64_t nr_rounds; /* that this node took part in to the end */
	uint64_t nr_failed; /* that it went on without */
	uint64_t nr_fetched, fetched_bytes; /* chunks from other nodes */
	uint64_t nr_not_fetched; /* chunks that could not be had */
	uint64_t nr_served, served_bytes; /* chunks for other nodes */
	uint64_t nr_kept, kept_bytes; /* chunks that others have sent to be kept here */
	uint64_t nr_copied; /* directories of others */
};
void service_stats(struct service *s, struct service_stats *ret);
