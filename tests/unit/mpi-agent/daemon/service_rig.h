/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The daemon's half of the link (mpi-agent/daemon/service.h) between two that do what a test wants: a store, which is this rig
 * with answers that follow from the numbers of chunks, and an agent, which is the test itself, at the other end of the
 * socket. What a commit or a reader calls runs in threads of their own. Every function fails the test if it cannot do
 * its work; also those that the service calls in its threads, from where there is no way back into the test, so that
 * tests/meson.build has it end the program then. Waiting has no limit of its own here: a test that hangs has failed.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"
#include "store/remote/cluster_calls.h"

#define LONG_NS (UINT64_C(600) * 1000000000) /* longer than a test may take */
#define SHORT_NS (UINT64_C(20) * 1000000)

extern const struct service_limits rig_patient; /* LONG_NS for everything */
extern const struct link_node rig_nodes[3]; /* the nodes; this one is the second */
extern const struct fp rig_pages[3]; /* what commits decide about */

struct rig {
	char dir[64], path[128];
	struct service *s;
	const struct cluster_calls *calls;
	atomic_bool pending, commit_decides, commit_hangs;
	atomic_uint nr_commits;
	atomic_uint nr_steps, nr_over, nr_freed; /* of collections of all nodes */
	atomic_uint nr_as_is; /* chunks for other nodes, which compare them */
	atomic_bool was_ours;
	atomic_uint nr_keeps, nr_peers_changed, nr_present, nr_shared;
	atomic_bool writes; /* a program, what others may have, too */
	atomic_uint nr_looks; /* whether it does */
	atomic_bool holds_answers; /* until it does not */
	int agent; /* its end of the socket; -1: none */
};

void rig_init(struct rig *rig, const struct service_limits *limits); /* no agent can connect yet */
void rig_start(struct rig *rig);
void rig_with_agent(struct rig *rig, const struct service_limits *limits); /* both, and rig_come() */
void rig_release(struct rig *rig);
bool rig_is_there(struct rig *rig); /* an agent, as the engine sees it */
void rig_await_there(struct rig *rig, bool there);

/* --- the agent --- */

int rig_dial(struct rig *rig); /* the socket of one that has said nothing; caller closes */
void rig_greet(struct rig *rig); /* rig->agent, up to WELCOME */
void rig_come(struct rig *rig); /* and it has named the nodes */
void rig_go(struct rig *rig);

void rig_say(struct rig *rig, struct buf *b); /* releases `b` */
/* RIG_SAY(rig, plain, LINK_BEGIN, 1): what link_encode_plain() makes of the rest. */
#define RIG_SAY(rig, kind, ...)                       \
	do {                                          \
		struct buf _b = BUF_EMPTY;            \
		link_encode_##kind(__VA_ARGS__, &_b); \
		rig_say(rig, &_b);                    \
	} while (0)
void rig_say_nodes(struct rig *rig, uint32_t self);
/* Of three pages: 1 is for node 0 and this one, 2 for node 2. */
void rig_say_decision(struct rig *rig, uint64_t round);

bool rig_receive_bytes(int fd, void *p, size_t len); /* false: the end came first */
struct link_header rig_receive_any(int fd, struct buf *ret); /* the next message; `ret` is used again */
uint64_t rig_receive(int fd, enum link_type type, struct buf *ret); /* it must be of this type; its number */
void rig_receive_plain(struct rig *rig, enum link_type type, uint64_t number);
void rig_receive_offer(struct rig *rig, uint64_t round, uint32_t nr); /* of the first of rig_pages */
void rig_receive_stored(struct rig *rig, uint64_t round, int error);
void rig_receive_end(int fd); /* nothing but the end */

/* --- callers --- */

struct rig_call {
	struct rig *rig;
	pthread_t thread;
	int r;
	size_t nr; /* of rig_pages, or of `wants` */
	struct cluster_decision d;
	bool has_stored[3];
	struct cluster_want *wants;
};

/* What a call does, here or in a thread; the result is `r`. */
void *rig_run_decide(void *call);
void *rig_run_settle(void *call);
void *rig_run_fetch(void *call);
void rig_call_start(struct rig_call *c, void *(*run)(void *));
int rig_call_finish(struct rig_call *c); /* its result */

void rig_decide(struct rig *rig, uint64_t round, struct rig_call *ret); /* a round up to its decision */
void rig_settle(struct rig *rig, uint64_t round, struct rig_call *c); /* and to its end */

/* --- chunks --- */

/* `nr` chunks of `len` bytes with numbers from `first`, which 0 to 2 nodes have. Caller frees. */
struct cluster_want *rig_wants_of(size_t nr, uint32_t len, uint64_t first);
void rig_wants_free(struct cluster_want *w, size_t nr);
/* In a thread; its wants, as above, are the caller's to free. */
void rig_start_fetch(struct rig *rig, size_t nr, uint32_t len, uint64_t first, struct rig_call *ret);

struct rig_fetch {
	uint64_t number;
	struct buf b;
	const uint8_t (*ids)[16];
	struct link_want *wants;
	uint32_t nr_ids, nr;
};

void rig_receive_fetch(struct rig *rig, struct rig_fetch *ret); /* with rig_fetch_release() */
void rig_fetch_release(struct rig_fetch *f);
