/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Internals shared by the parts of the service: service.c (construction, connection), service_round.c, service_fetch.c,
 * service_collect.c, service_query.c, service_keep.c.
 *
 * One lock for all of it, a leaf, held briefly: messages are encoded, decoded, sent and received without it. Answers to
 * requests, and queues, have their own condition variables, because they are signalled thousands of times per second.
 * All other waits share one: few threads, and a few signals per second.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/listen.h"
#include "mpi-agent/daemon/service.h"
#include "store/remote/cluster_calls.h"

/*
 *          BEGIN           decide() comes              DECISION              settle() comes            SETTLED
 *   NONE ────────▶ BEGUN ─────────────────▶ OFFERED ──────────────▶ STORING ─────────────────▶ STORED ──────────▶ NONE
 *                    │ timeout                 │ timeout                                         │ likewise: NONE
 *                    ▼                         ▼
 *                  EMPTY                     LEFT
 *
 * EMPTY: nothing was offered, and the decision is answered by STORED; LEFT: likewise, with an error. BEGIN is possible
 * in every state: a round that the agent has abandoned is over for its waiters, too. So are NODES and the agent's end,
 * which lead to NONE. A waiter gets its answer when it arrives, whatever follows: SETTLED of one round and BEGIN of the
 * next arrive in succession.
 */
enum service_state {
	SERVICE_NONE,
	SERVICE_BEGUN,
	SERVICE_OFFERED,
	SERVICE_STORING,
	SERVICE_STORED,
	SERVICE_LEFT,
	SERVICE_EMPTY,
};

/* A thread that waits for DECISION or SETTLED. On its stack. */
struct service_waiter {
	struct buf answer; /* after the header */
	bool is_done;
	int r;
};

/* An outgoing message. */
struct service_out {
	struct buf b;
	size_t from; /* offset of the message in `b` */
	struct arena *passes; /* descriptor to pass with it; NULL: none */
	struct service_out *next;
};

/* A request (FETCH, QUERY; PUT, REPLICATE, DROP) with a thread waiting for its answer. On the stack of that thread. */
struct service_request {
	enum link_type answered_by;
	uint64_t number;
	struct buf answer; /* after the header */
	/*
	 * the answer was PLACES instead of CHUNKS: the chunks are in this arena, and the agent is notified after they
	 * are copied; NULL: CHUNKS
	 */
	struct arena *lies_in;
	struct cond done; /* valid while on the list */
	bool is_done;
	int r;
	struct service_request *next;
};

/* An answer in memory shared with the agent, until the agent has read it. */
struct service_untaken {
	uint64_t number;
	uint8_t *slot;
	size_t len;
	struct service_untaken *next;
};

/* A request of another node: GET, PIN; QUESTION; PUT, REPLICATE, DROP. */
struct service_get {
	enum link_type type;
	uint64_t number, agent;
	struct buf body;
	struct service_get *next;
};

#define SERVICE_SPARES 8u
#define SERVICE_OUT_MAX ((size_t)2 * LINK_BYTES_MAX) /* queued for sending; above it no chunks are read */

/* In order of arrival. */
struct service_queue {
	struct service_get *first, **end; /* end NULL: empty */
	size_t bytes;
	struct cond changed; /* work was added or room freed, or stopping */
};

struct service {
	/* Constant after service_new(), and the second half after service_start(). */
	struct service_limits limits;
	struct cluster_calls calls;
	struct service_store store;
	struct link_welcome welcome;
	struct listener listener;
	int wake_fd; /* wakes the thread that owns the socket */
	pthread_t io, server, committer, collector, answerer, receiver, rebuilder;
	bool is_started;

	struct mutex lock; /* leaf */
	struct cond changed; /* anything below */
	bool stopping GUARDED_BY(lock);
	uint64_t agent GUARDED_BY(lock); /* number of the connected one, never reused; 0: none */
	uint64_t nr_agents GUARDED_BY(lock);
	bool hang_up GUARDED_BY(lock); /* the agent has violated the protocol */
	bool is_silent GUARDED_BY(lock); /* unresponsive: callers do not wait for it */
	struct cluster_node *nodes GUARDED_BY(lock); /* NULL: not received yet */
	uint32_t *hosts GUARDED_BY(lock); /* indexed as `nodes` */
	uint32_t nr_nodes GUARDED_BY(lock), self GUARDED_BY(lock);

	struct service_out *out GUARDED_BY(lock), **out_end GUARDED_BY(lock);
	size_t out_bytes GUARDED_BY(lock);
	/* Any thread sends, one at a time: only that thread removes from `out` and changes `sent`; the socket is not
	 * closed meanwhile. */
	int fd GUARDED_BY(lock); /* -1: not connected */
	bool is_sending GUARDED_BY(lock);
	struct cond not_sending;
	size_t sent; /* of the first message */
	struct buf taken GUARDED_BY(lock); /* pending TAKEN notices, sent with the next request, ... */
	uint64_t taken_ns GUARDED_BY(lock); /* or at this time, if there is any; 0: no timer */
	struct buf spares[SERVICE_SPARES] GUARDED_BY(lock); /* buffers of long messages for reuse */

	struct arenas shared GUARDED_BY(lock); /* with the connected agent */
	struct service_untaken *untaken GUARDED_BY(lock); /* in shared.own */

	enum service_state state GUARDED_BY(lock);
	uint64_t round GUARDED_BY(lock); /* the agent's number of the round; restarts with a new agent */
	uint64_t serial GUARDED_BY(lock); /* our number of it, never reused */
	uint64_t begun_ns GUARDED_BY(lock); /* when state BEGUN was entered */
	/* BEGUN: next check whether a program is still writing data that others may have too; 0: not needed */
	uint64_t look_ns GUARDED_BY(lock);
	/* OFFERED, STORED: the thread that waits for the round; NULL: none yet */
	struct service_waiter *waiter GUARDED_BY(lock);
	unsigned nr_deciding GUARDED_BY(lock); /* callers in decide() waiting for a round to begin */
	bool is_wanted GUARDED_BY(lock); /* WANT was sent, and no BEGIN was received since */
	bool commit_wanted GUARDED_BY(lock);
	struct fp *unannounced GUARDED_BY(lock); /* stored without a round and not announced yet, ... */
	uint32_t nr_unannounced GUARDED_BY(lock);
	uint64_t announce_ns GUARDED_BY(lock); /* and when to announce it; 0: nothing pending */

	uint64_t number GUARDED_BY(lock); /* of the latest request */
	struct service_request *requests GUARDED_BY(lock);
	struct service_queue gets GUARDED_BY(lock); /* GET, PIN */
	struct service_queue rebuilds GUARDED_BY(lock); /* GETs with chunks missing here */
	struct service_queue keeps GUARDED_BY(lock); /* PUT, REPLICATE, DROP */
	struct service_get *questions GUARDED_BY(lock), **questions_end GUARDED_BY(lock);
	unsigned nr_questions GUARDED_BY(lock);

	struct service_step *step GUARDED_BY(lock); /* next step of a collection by all nodes; NULL: none */
	bool is_over GUARDED_BY(lock), free_too GUARDED_BY(lock); /* end to report to the store */
	unsigned nr_collecting GUARDED_BY(lock); /* threads that wait for a collection, ... */
	uint64_t nr_collections GUARDED_BY(lock); /* until this counter increases */
	struct link_done last_collection GUARDED_BY(lock); /* result of the latest collection */

	struct service_stats stats GUARDED_BY(lock);
};

/* --- service.c --- */

void service_wake(struct service *s); /* wakes the thread that owns the socket, to check its timers */

/* false: `until_ns` (of monotonic_ns()) has passed. */
bool service_wait_until(struct service *s, struct cond *c, uint64_t until_ns) REQUIRES(s->lock);
/* Takes the bytes, for that agent: dropped if it has disconnected. -ENOTCONN, -ENOMEM */
int service_send(struct service *s, uint64_t agent, struct buf *message) REQUIRES(s->lock);
/* The same for callers that call service_flush() after unlocking: the message begins at `from`. */
int service_put(struct service *s, uint64_t agent, struct buf *message, size_t from) REQUIRES(s->lock);
void service_flush(struct service *s); /* sends queued messages in the calling thread; call without a lock */
/* As service_send(), from `from` on. */
int service_send_from(struct service *s, uint64_t agent, struct buf *message, size_t from) REQUIRES(s->lock);
int service_send_plain(struct service *s, enum link_type type, uint64_t number) REQUIRES(s->lock);
/*
 * An empty buffer for a long message, reused from an earlier one if possible. Fresh memory, which the kernel has to
 * clear and map, costs six times as much as copying into it.
 */
void service_take_spare(struct service *s, struct buf *ret) REQUIRES(s->lock);
void service_spare(struct service *s, struct buf *b) REQUIRES(s->lock); /* leaves it BUF_EMPTY */
/* Closes the connection after a malformed message of that agent. Logged. */
void service_hang_up(struct service *s, uint64_t agent, const char *what);

/* --- service_round.c --- */

bool service_is_there(void *userdata);
int service_decide(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret);
int service_settle(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored);
void service_want(void *userdata);
/* End the current round with `r`. */
void service_end_round(struct service *s, int r) REQUIRES(s->lock);
void service_begin(struct service *s, uint64_t round); /* BEGIN was received */
void service_answer(struct service *s, enum link_type type, uint64_t round, struct buf *body); /* DECISION, SETTLED */
/* Offers nothing if no thread has called decide() in time. Returns when to call again, UINT64_MAX: never. */
uint64_t service_begin_without_round(struct service *s, uint64_t now_ns) REQUIRES(s->lock);
/* Delays a round while programs write. Returns when to call again, UINT64_MAX: never. */
uint64_t service_await_writers(struct service *s, uint64_t now_ns);
void *service_committer(void *userdata); /* thread function */

/* --- service_announce.c --- */

void service_stored(void *userdata, const struct fp *fps, size_t nr, bool has_time);
void service_announce(struct service *s) REQUIRES(s->lock); /* announces now, if an agent is connected */
/* Announce if due. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_announce_due(struct service *s, uint64_t now_ns) REQUIRES(s->lock);

/* --- service_fetch.c --- */

int service_fetch(void *userdata, struct cluster_want *wants, size_t nr);
/* CHUNKS, PLACES, ANSWER, KEPT, REPLICATED or DROPPED was received */
void service_answered(struct service *s, enum link_type type, uint64_t number, struct buf *body);
int service_taken(struct service *s, uint64_t number); /* TAKEN was received */
/* Send TAKEN notices if due. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_report_taken(struct service *s, uint64_t now_ns) REQUIRES(s->lock);
void service_drop_untaken(struct service *s) REQUIRES(s->lock); /* the agent has disconnected */
/* Adds a request to the list. Borrows it until service_forget(). */
void service_request_add(struct service *s, struct service_request *rq) REQUIRES(s->lock);
/* Send a message with the number of `rq` and add it to the list; then wait for the answer and remove it. */
int service_request_send(struct service *s, uint64_t agent, struct service_request *rq, struct buf *message);
int service_request_await(struct service *s, struct service_request *rq, uint64_t until_ns);
void service_forget(struct service *s, struct service_request *rq) REQUIRES(s->lock); /* removes it from the list */
void service_get(struct service *s, enum link_type type, uint64_t number, struct buf *body); /* for GET, PIN */
void service_fail_requests(struct service *s) REQUIRES(s->lock);
/* Takes the body. false: the queue would exceed `max` bytes, and the caller owns *ret; NULL: no memory. */
bool service_queue_add(struct service *s, struct service_queue *q, size_t max, enum link_type type, uint64_t number,
		       struct buf *body, struct service_get **ret);
void service_queue_wake(struct service_queue *q); /* wakes the threads that wait for it */
struct service_get *service_queue_take(struct service_queue *q);
void service_queue_clear(struct service_queue *q);
void service_get_free(struct service_get *g); /* NULL is fine */
void *service_server(void *userdata); /* thread function */
void *service_rebuilder(void *userdata); /* thread function */

/* --- service_keep.c --- */

/* PUT, REPLICATE or DROP was received */
void service_keep(struct service *s, enum link_type type, uint64_t number, struct buf *body);
void *service_receiver(void *userdata); /* thread function */

/* --- service_collect.c --- */

int service_step(struct service *s, uint64_t number, struct buf *body); /* STEP was received */
int service_collected(struct service *s, const void *body, size_t len); /* COLLECTED was received */
void service_leave_collection(struct service *s) REQUIRES(s->lock);
void *service_collector(void *userdata); /* thread function */

/* --- service_query.c --- */

int service_question(struct service *s, uint64_t number, struct buf *body); /* QUESTION was received */
void service_drop_questions(struct service *s) REQUIRES(s->lock);
void *service_answerer(void *userdata); /* thread function */
