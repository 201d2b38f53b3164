/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The daemon's side of the protocol with the agent of its node (link_format.h): implements struct cluster_calls for the
 * engine, and answers requests of other nodes.
 *
 * Threads: the first owns the socket: it listens, accepts one agent at a time, reads and writes, and never blocks
 * otherwise. The second reads chunks for other nodes, so that a slow disk does not delay rounds. The third makes the
 * store commit when a round starts and data is deferred, or at the request of the engine. The fourth executes the steps
 * of a collection by all nodes (service_collect.c), the fifth answers queries of other daemons (service_query.c), the
 * sixth stores replicas (service_keep.c), and the seventh rebuilds lost chunks for other nodes: it waits for these
 * nodes, which must not wait for it in turn. Callers of struct cluster_calls wait for answers, each time no longer than
 * the limits below. They do not wait if no agent is connected, or if it is unresponsive, until it starts a round again.
 *
 * The socket's thread asks the engine only whether something is pending and since when, and reports that other nodes
 * store the same; neither takes a lock that is held across a call that waits for the agent. When a world begins it
 * reports the members, under shares.lock: a holder of that lock may wait for the journal but never for an agent.
 *
 * Rounds are not started here. Deferred data is committed after `commit=` seconds at the latest, offered in a round
 * when there is much of it, and committed when a thread waits for it (engine.h); each of these calls decide(), which
 * requests a round.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "mpi-agent/wire/link_format.h"

struct buf;
struct cluster_calls;
struct cluster_node;
struct cluster_want;
struct link_replica;
struct link_done;
struct link_drop;
struct link_put;
struct link_step;
struct link_welcome;
struct service;

struct service_limits {
	uint64_t round_ns; /* time limit of decide(), and then of settle(); 0: 20 s */
	uint64_t begin_ns; /* time a round waits for this node to call decide(); 0: 2 s */
	uint64_t fetch_ns; /* time fetch() waits for the next chunks; 0: 20 s */
	uint64_t announce_ns; /* delay of the announcement after stored(), unless urgent; 0: 0.25 s */
};

/* Callbacks to the store. Called from the service's threads without a lock. */
struct service_store {
	void *userdata;
	bool (*pending)(void *userdata); /* engine_cluster_pending(); returns soon */
	void (*commit)(void *userdata); /* commit, which calls decide() */
	int (*chunks)(void *userdata, struct cluster_want *wants, size_t nr); /* engine_cluster_chunks() */
	/*
	 * engine_cluster_pin(): pin chunks for these nodes. They are registered first, so that a later collection by
	 * all nodes notices if one is missing.
	 */
	int (*pin)(void *userdata, const struct cluster_node *nodes, uint32_t nr_nodes, const struct fp *fps,
		    size_t nr, bool *pinned);
	/*
	 * A step of a collection by these nodes; `is_ours`: requested by service_collect(). `filter`, for MARK:
	 * step->len zero bytes. NULL: -EOPNOTSUPP
	 */
	int (*step)(void *userdata, const struct link_step *step, const struct cluster_node *nodes, uint32_t nr_nodes,
		    bool is_ours, uint8_t *filter, struct link_done *ret);
	/*
	 * The collection has ended, with or without success; may be called more than once. `free_too`: free the chunks
	 * unpinned here. NULL: ignored
	 */
	void (*collection_ended)(void *userdata, bool free_too);
	/*
	 * Answer a query of another daemon: 0 and the answer appended, up to LINK_ANSWER_MAX bytes; or an error. Must
	 * return soon: the requester does not wait long. NULL: -EOPNOTSUPP
	 */
	int (*answer)(void *userdata, const void *question, size_t len, struct buf *ret);
	/*
	 * Requests of other nodes to store chunks and replicas here; `nodes` are the connected ones. kept[i]: enum
	 * link_kept, zero before. Errors are returned to the requester. NULL: -EOPNOTSUPP
	 */
	int (*keep)(void *userdata, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
		    uint8_t *kept);
	int (*replicate)(void *userdata, const struct link_replica *replica, const struct cluster_node *nodes,
			 uint32_t nr_nodes);
	int (*drop)(void *userdata, const struct link_drop *drop);
	/*
	 * NODES was received, so that waiting work can continue; or the agent has disconnected (service_nodes()).
	 * Returns at once. NULL: ignored
	 */
	void (*peers_changed)(void *userdata);
	/*
	 * Rebuild chunks that no node stores any more from those of several others (`got`: already present). May take
	 * as long as fetch(). NULL: cannot rebuild
	 */
	int (*rebuild)(void *userdata, struct cluster_want *wants, size_t nr);
	/* SHARED was received: engine_cluster_is_shared(). Returns at once. NULL: ignored */
	void (*shared)(void *userdata);
	/* engine_cluster_deferred_ns(); returns soon. NULL: rounds do not wait for writers */
	uint64_t (*deferred_ns)(void *userdata);
};

/*
 * Call before opening the engine, which needs its calls. No agent is connected before service_start() and after
 * service_stop(). After stopping, close the engine, then free the service.
 */
int service_new(const struct service_limits *limits, struct service **ret); /* NULL: the defaults */
const struct cluster_calls *service_calls(struct service *s);
/* Listens at `path` (0600, only for its own user and root); `welcome` is sent to agents. Copies both. */
int service_start(struct service *s, const char *path, const struct link_welcome *welcome,
		  const struct service_store *store);
void service_stop(struct service *s); /* started or not; NULL is fine */
void service_free(struct service *s); /* NULL is fine */

/* As fetch() of its calls, but without rebuilding; used by the rebuild callback. */
int service_fetch_whole(void *service, struct cluster_want *wants, size_t nr);

/*
 * Request a collection by all nodes and wait for its end. -ENOTCONN: no agent is connected, or it has disconnected;
 * -ECANCELED: goes_on(), called from time to time, returned false. The result, also of a failed collection, is in *ret.
 */
int service_collect(struct service *s, bool (*goes_on)(void *userdata), void *userdata, struct link_done *ret);
/*
 * Query the daemon of the store `id`. Its answer is appended to *ret, or its error is returned. -ENOTCONN: no agent is
 * connected; -EHOSTUNREACH: no such node; -ETIMEDOUT: no answer in time; -EBUSY: too many queries at once, here or
 * there.
 */
int service_ask(struct service *s, const uint8_t *id, const void *question, size_t len, struct buf *ret);
/* The connected nodes, which the caller frees; none without an agent. `ret_self`: this one. -ENOMEM */
int service_nodes(struct service *s, struct cluster_node **ret, uint32_t *ret_nr, uint32_t *ret_self);
bool service_stopping(struct service *s); /* long work must end */

/* The connected nodes and their hosts: nodes with the same host number fail together. -ENOTCONN: unknown */
struct service_world {
	struct cluster_node *nodes;
	uint32_t *hosts;
	uint32_t nr, self;
};
int service_world(struct service *s, struct service_world *ret);
void service_world_release(struct service_world *w);
bool service_world_find(const struct service_world *w, const uint8_t *id, uint32_t *ret); /* its index */

/*
 * A request to the daemon of another node (PUT, REPLICATE, DROP); several may be in flight. The message carries the
 * number of the call. The agent answers each, with an error if that node does not, so there is no time limit: waiting
 * ends when the agent disconnects or goes_on(), called from time to time, returns false.
 */
struct service_call;
/* `answered_by`: KEPT, REPLICATED or DROPPED */
int service_call_new(struct service *s, enum link_type answered_by, struct service_call **ret);
uint64_t service_call_number(const struct service_call *c);
int service_call_send(struct service_call *c, struct buf *message); /* takes it; -ENOTCONN */
/* Returns the answer after its header. -ENOTCONN: the agent has disconnected; -ECANCELED: goes_on() */
int service_call_wait(struct service_call *c, bool (*goes_on)(void *userdata), void *userdata, struct buf *ret);
void service_call_free(struct service_call *c); /* NULL is fine */

/* Figures since the start. */
struct service_stats {
	bool is_connected; /* an agent is connected */
	bool is_silent; /* it has not answered in time */
	uint32_t nr_nodes; /* connected nodes; 0: not received yet */
	uint64_t nr_rounds; /* completed by this node */
	uint64_t nr_failed; /* left by this node */
	uint64_t nr_fetched, fetched_bytes; /* chunks from other nodes */
	uint64_t nr_not_fetched; /* chunks that could not be fetched */
	uint64_t nr_served, served_bytes; /* chunks for other nodes */
	uint64_t nr_kept, kept_bytes; /* chunks stored for other nodes */
	uint64_t nr_copied; /* replicas created for other nodes */
};
void service_stats(struct service *s, struct service_stats *ret);
