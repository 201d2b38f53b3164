/*
 * What the parts of the service share: service.c (life and connection), service_round.c, service_fetch.c,
 * service_collect.c, service_query.c, service_keep.c.
 *
 * One lock for all of it, a leaf, held for moments: messages are encoded, decoded, sent and received without it. Who
 * waits for the answer to a request, or for something in a queue, does so on a condition of its own: these come
 * thousands of times in a second. All others do so on one: a few of them, for things that happen a few times in a
 * second.
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "mpi-agent/arena.h"
#include "mpi-agent/link_format.h"
#include "mpi-agent/listen.h"
#include "mpi-agent/service.h"
#include "store/engine/cluster.h"

/*
 *          BEGIN           decide() comes              DECISION              settle() comes            SETTLED
 *   NONE ────────▶ BEGUN ─────────────────▶ OFFERED ──────────────▶ STORING ─────────────────▶ STORED ──────────▶ NONE
 *                    │ nobody comes            │ nobody waits any more                           │ likewise: NONE
 *                    ▼                         ▼
 *                  EMPTY                     LEFT
 *
 * EMPTY: nothing was offered, and what is decided is answered by STORED; LEFT: likewise, with an error. BEGIN comes
 * from everywhere: a round that the agent has given up is over for those in it, too. So do NODES and the agent's end;
 * these lead to NONE. Who waits has what it waits for as soon as it comes, whatever comes next: SETTLED of one round
 * and BEGIN of the next are one behind the other.
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

/* Who waits for DECISION or SETTLED. On its stack. */
struct service_waiter {
	struct buf answer; /* what follows the header */
	bool is_done;
	int r;
};

/* A message on its way out. */
struct service_out {
	struct buf b;
	size_t from; /* where it begins there */
	struct arena *passes; /* with it; NULL: none */
	struct service_out *next;
};

/* A request (FETCH, QUERY; PUT, COPY, DROP) that somebody waits for the answer of. With whoever does. */
struct service_request {
	enum link_type answered_by;
	uint64_t number;
	struct buf answer; /* what follows the header of that */
	/* in place of CHUNKS it was PLACES: these are there, and the agent is to be told when they are taken; NULL: it
	 * was not */
	struct arena *lies_in;
	struct cond done; /* while it is on the list */
	bool is_done;
	int r;
	struct service_request *next;
};

/* An answer that lies in memory which the agent looks at, until it has taken it. */
struct service_given {
	uint64_t number;
	uint8_t *slot;
	size_t len;
	struct service_given *next;
};

/* What another node wants: GET, LEND; QUESTION; PUT, COPY, DROP. */
struct service_get {
	enum link_type type;
	uint64_t number, agent;
	struct buf body;
	struct service_get *next;
};

#define SERVICE_SPARES 8u
#define SERVICE_OUT_MAX ((size_t)2 * LINK_BYTES_MAX) /* on its way out, before chunks are read from the disk for others */

/* As they came. */
struct service_queue {
	struct service_get *first, **end; /* end NULL: empty */
	size_t bytes;
	struct cond changed; /* there is something to do, or nothing any more */
};

struct service {
	/* Constant after service_new(), and the second half after service_start(). */
	struct service_limits limits;
	struct cluster_calls calls;
	struct service_store store;
	struct link_welcome welcome;
	struct listener listener;
	int wake_fd; /* for the thread that has the socket */
	pthread_t io, server, committer, collector, answerer, keeper, rebuilder;
	bool is_started;

	struct mutex lock; /* leaf */
	struct cond changed; /* anything below */
	bool stopping GUARDED_BY(lock);
	uint64_t agent GUARDED_BY(lock); /* counts those that came; 0: none is there */
	uint64_t nr_agents GUARDED_BY(lock);
	bool hang_up GUARDED_BY(lock); /* it does not keep to what was agreed */
	bool is_silent GUARDED_BY(lock); /* has not answered in time: nobody waits for it */
	struct cluster_node *nodes GUARDED_BY(lock); /* NULL: not told */
	uint32_t *hosts GUARDED_BY(lock); /* of them */
	uint32_t nr_nodes GUARDED_BY(lock), self GUARDED_BY(lock);

	struct service_out *out GUARDED_BY(lock), **out_end GUARDED_BY(lock);
	size_t out_bytes GUARDED_BY(lock);
	/* Any thread sends, one at a time: who is at it alone takes from `out`, and changes `sent`; the socket is not
	 * closed meanwhile. */
	int fd GUARDED_BY(lock); /* -1: nobody is there */
	bool is_sending GUARDED_BY(lock);
	struct cond not_sending;
	size_t sent; /* of the first message */
	struct buf taken GUARDED_BY(lock); /* TAKEN, which go with the next request, ... */
	uint64_t taken_ns GUARDED_BY(lock); /* or then, if there is any; 0: nobody looks */
	struct buf spares[SERVICE_SPARES] GUARDED_BY(lock); /* memory of long messages, for the next ones */

	struct arenas shared GUARDED_BY(lock); /* with the agent that is there */
	struct service_given *given GUARDED_BY(lock); /* in shared.own */

	enum service_state state GUARDED_BY(lock);
	uint64_t round GUARDED_BY(lock); /* the agent's number for it, of which a new agent begins anew, ... */
	uint64_t serial GUARDED_BY(lock); /* and ours, which is never used again */
	uint64_t begun_ns GUARDED_BY(lock); /* when BEGUN began */
	/* BEGUN: whether a program still writes what others may have, too; 0: it does not matter */
	uint64_t look_ns GUARDED_BY(lock);
	/* OFFERED, STORED: who waits for the round to go on; NULL: nobody yet */
	struct service_waiter *waiter GUARDED_BY(lock);
	unsigned nr_deciding GUARDED_BY(lock); /* callers in decide() that no round has begun for */
	bool is_wanted GUARDED_BY(lock); /* WANT was sent, and no BEGIN has come since */
	bool commit_wanted GUARDED_BY(lock);
	struct fp *untold GUARDED_BY(lock); /* what was stored without a round, ... */
	uint32_t nr_untold GUARDED_BY(lock);
	uint64_t tell_ns GUARDED_BY(lock); /* and when others are to hear of it; 0: there is nothing */

	uint64_t number GUARDED_BY(lock); /* of the last request */
	struct service_request *requests GUARDED_BY(lock);
	struct service_queue gets GUARDED_BY(lock); /* GET, LEND */
	struct service_queue rebuilds GUARDED_BY(lock); /* GETs of what is not here, or not all of it */
	struct service_queue keeps GUARDED_BY(lock); /* PUT, COPY, DROP */
	struct service_get *questions GUARDED_BY(lock), **questions_end GUARDED_BY(lock);
	unsigned nr_questions GUARDED_BY(lock);

	struct service_step *step GUARDED_BY(lock); /* of a collection of all nodes, to be taken; NULL: none */
	bool is_over GUARDED_BY(lock), free_too GUARDED_BY(lock); /* what the store is to be told of it */
	unsigned nr_collecting GUARDED_BY(lock); /* who wait for one, ... */
	uint64_t nr_collected GUARDED_BY(lock); /* which is one more than there were */
	struct link_done collected GUARDED_BY(lock); /* how the last one has ended */

	struct service_stats stats GUARDED_BY(lock);
};

/* --- service.c --- */

void service_wake(struct service *s); /* the thread that has the socket, for it to look at when what is due */

/* false: `until_ns` (of monotonic_ns()) has passed. */
bool service_wait_until(struct service *s, struct cond *c, uint64_t until_ns) REQUIRES(s->lock);
/* Takes the bytes, for that agent: thrown away if it is gone. -ENOTCONN, -ENOMEM */
int service_send(struct service *s, uint64_t agent, struct buf *message) REQUIRES(s->lock);
/* The same, for whoever calls service_flush() when he has let go of the lock: the message begins at `from`. */
int service_put(struct service *s, uint64_t agent, struct buf *message, size_t from) REQUIRES(s->lock);
void service_flush(struct service *s); /* sends what was put, without a change of threads; holding no lock */
/* As service_send(), from `from` on. */
int service_send_from(struct service *s, uint64_t agent, struct buf *message, size_t from) REQUIRES(s->lock);
int service_send_plain(struct service *s, enum link_type type, uint64_t number) REQUIRES(s->lock);
/*
 * Memory for a long message, empty: of one that has come or gone before, if there is any. Fresh memory, which the
 * kernel has to clear and map, costs six times as much as copying to it.
 */
void service_take_spare(struct service *s, struct buf *ret) REQUIRES(s->lock);
void service_spare(struct service *s, struct buf *b) REQUIRES(s->lock); /* leaves it BUF_EMPTY */
/* That agent has said what cannot be understood. Logged. */
void service_hang_up(struct service *s, uint64_t agent, const char *what);

/* --- service_round.c --- */

bool service_is_there(void *userdata);
int service_decide(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret);
int service_settle(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored);
void service_want(void *userdata);
/* Its round is over, whatever comes. */
void service_end_round(struct service *s, int r) REQUIRES(s->lock);
void service_begin(struct service *s, uint64_t round); /* BEGIN has come */
void service_answer(struct service *s, enum link_type type, uint64_t round, struct buf *body); /* DECISION or SETTLED */
/* Offer nothing where nobody has come. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_begin_alone(struct service *s, uint64_t now_ns) REQUIRES(s->lock);
/* A round waits for those who write. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_await_writers(struct service *s, uint64_t now_ns);
void *service_committer(void *userdata); /* a thread's */

/* --- service_tell.c --- */

void service_stored(void *userdata, const struct fp *fps, size_t nr, bool has_time);
void service_tell(struct service *s) REQUIRES(s->lock); /* now, if anybody is there */
/* If it is time. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_tell_later(struct service *s, uint64_t now_ns) REQUIRES(s->lock);

/* --- service_fetch.c --- */

int service_fetch(void *userdata, struct cluster_want *wants, size_t nr);
/* CHUNKS, PLACES, ANSWER, KEPT, COPIED or DROPPED has come */
void service_answered(struct service *s, enum link_type type, uint64_t number, struct buf *body);
int service_taken(struct service *s, uint64_t number); /* TAKEN has come */
/* What was taken, if it is time. Returns when to call again, UINT64_MAX: no need. */
uint64_t service_tell_taken(struct service *s, uint64_t now_ns) REQUIRES(s->lock);
void service_drop_given(struct service *s) REQUIRES(s->lock); /* nobody will take it */
/* Puts a request on the list: with whoever has sent it, until service_forget(). */
void service_request_add(struct service *s, struct service_request *rq) REQUIRES(s->lock);
/* Sends a message that has the number of `rq`, and awaits what answers it; the request is off the list then. */
int service_request_send(struct service *s, uint64_t agent, struct service_request *rq, struct buf *message);
int service_request_await(struct service *s, struct service_request *rq, uint64_t until_ns);
void service_forget(struct service *s, struct service_request *rq) REQUIRES(s->lock); /* nobody waits for it any more */
void service_get(struct service *s, enum link_type type, uint64_t number, struct buf *body); /* GET or LEND has come */
void service_fail_requests(struct service *s) REQUIRES(s->lock);
/* Takes the body. false: it would be more bytes than `max` in all, and *ret is the caller's; NULL: no memory. */
bool service_queue_add(struct service *s, struct service_queue *q, size_t max, enum link_type type, uint64_t number,
		       struct buf *body, struct service_get **ret);
void service_queue_wake(struct service_queue *q); /* whoever waits for it looks again */
struct service_get *service_queue_take(struct service_queue *q);
void service_queue_clear(struct service_queue *q);
void service_get_free(struct service_get *g); /* NULL is fine */
void *service_server(void *userdata); /* a thread's */
void *service_rebuilder(void *userdata); /* another one's */

/* --- service_keep.c --- */

/* PUT, COPY or DROP has come */
void service_keep(struct service *s, enum link_type type, uint64_t number, struct buf *body);
void *service_keeper(void *userdata); /* a thread's */

/* --- service_collect.c --- */

int service_step(struct service *s, uint64_t number, struct buf *body); /* STEP has come */
int service_collected(struct service *s, const void *body, size_t len); /* COLLECTED has come */
void service_leave_collection(struct service *s) REQUIRES(s->lock);
void *service_collector(void *userdata); /* a thread's */

/* --- service_query.c --- */

int service_question(struct service *s, uint64_t number, struct buf *body); /* QUESTION has come */
void service_drop_questions(struct service *s) REQUIRES(s->lock);
void *service_answerer(void *userdata); /* a thread's */
