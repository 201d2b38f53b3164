/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/agent_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/agent/collects.h"
#include "mpi-agent/agent/fetches.h"
#include "mpi-agent/agent/lookups.h"
#include "mpi-agent/agent/mpi_errno.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/relays.h"
#include "mpi-agent/agent/rounds.h"
#include "mpi-agent/agent/serve.h"
#include "mpi-agent/agent/status.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define EAGER_TURNS 4u /* idle turns before the first nap while a file is being read; ... */
#define EAGER_MOVING 8u /* the same while messages are in transit, since they arrive in pieces */
#define DEAF_TURNS 3u /* turns without polling the daemon's socket while messages are in transit */
#define NAP_MIN_NS 100000u
#define NAP_MIN_MOVING_NS 20000u /* while file data is in transit */
#define NAP_MIN_BACKED_OFF_NS 1000000u /* no wait is likely */
#define NAP_PART 8u /* of the idle time so far: bounds how much a nap prolongs a wait, ... */
#define NAP_PART_UNAWAITED 1u /* the same where no wait is likely */
#define NAP_FETCHING_NS 100000u /* while a file is being read */
#define READING_NS UINT64_C(50000000) /* after a request for chunks of another node: more are likely */
#define RELAYING_NS UINT64_C(1000000000) /* after a request between daemons: more are likely */
#define NAP_HINTING_NS 100000u /* while a hint is in transit, in several steps: queries miss it until it arrives */
#define MESSAGES_MAX 64u /* from one source before others are handled */
#define PAUSED_NS UINT64_C(1000000000) /* a turn takes less, unless the process was stopped */
#define LAST_ROUND_NS UINT64_C(1000000000) /* for messages in transit when the agents end */
#define NODES_SHOWN 1000u

enum state { RUNNING, WINDING_UP, LEAVING, OVER };

struct loop {
	const struct world *w;
	const struct waits *waits;
	struct link *daemon;
	int status_fd;
	struct peers *peers;
	struct rounds *rounds;
	struct collects *collects;
	struct fetches *fetches;
	struct serve *serve;
	struct relays *relays;

	enum state state;
	int error; /* local error that ends the loop, or 0 */
	uint64_t until_ns; /* deadline of the states after RUNNING */
	uint64_t end_ns; /* when to end after END was received, if no round ends before; 0: no END received */
	MPI_Request leaving;

	uint64_t turn_ns; /* when this turn began */
	uint64_t received_ns; /* last message from the previous rank */
	uint64_t sent_ns; /* last ALIVE to the next rank */
	unsigned idle_turns, deaf_turns;
	uint64_t busy_ns; /* last event that peers may answer */
	uint64_t asked_ns; /* last GET of another node */
	uint64_t relayed_ns; /* last request between daemons, or for a collection */
	bool daemon_has_said; /* the socket is readable or closed */
	uint64_t started_ns;
};

static volatile sig_atomic_t interrupted;

void loop_interrupt(int signal)
{
	interrupted = signal;
}

/* --- ending --- */

static void disconnect_daemon(struct loop *l)
{
	l->until_ns = l->turn_ns + l->waits->end_ns;
	l->state = WINDING_UP;
	rounds_end(l->rounds);
	collects_end(l->collects);
	link_release(l->daemon);
}

/* The caller has logged the reason. `error`: negative if it is an error, else 0. */
static int end_world(struct loop *l, int error)
{
	int r = 0;

	if (l->state != RUNNING)
		return 0;
	l->error = error;
	disconnect_daemon(l);
	for (uint32_t to = 0; r == 0 && to < l->w->nr; to++)
		if (to != l->w->rank)
			r = peers_send(l->peers, to, PEER_END, 0, NULL, 0);
	return r;
}

static void handle_end(struct loop *l, uint32_t from)
{
	if (l->state != RUNNING)
		return;
	log_notice("node %s (rank %" PRIu32 "): ends all agents", l->w->nodes[from].name, from);
	l->end_ns = l->end_ns ?: l->turn_ns + LAST_ROUND_NS;
}

/* If a round is ending, its end is awaited first: the node that sent END may already have received it. */
static void follow_end(struct loop *l)
{
	if (l->state == RUNNING && l->end_ns > 0 && (!rounds_gathering(l->rounds) || l->turn_ns >= l->end_ns))
		disconnect_daemon(l);
}

static int finish_ending(struct loop *l)
{
	int is_done = 0, r = 0;

	if (l->state == WINDING_UP && rounds_idle(l->rounds) && peers_unsent(l->peers) == 0) {
		r = mpi_errno(MPI_Ibarrier(l->w->messages, &l->leaving), "leaving");
		l->state = LEAVING;
	}
	if (r == 0 && l->state == LEAVING) {
		r = mpi_errno(MPI_Test(&l->leaving, &is_done, MPI_STATUS_IGNORE), "leaving");
		if (is_done)
			l->state = OVER;
	}
	if (r == 0 && l->state != OVER && l->state != RUNNING && l->turn_ns >= l->until_ns)
		r = log_errno(-ETIMEDOUT, "not all nodes have ended in time");
	return r;
}

/* --- the daemon --- */

static int handle_daemon_message(struct loop *l, const struct link_header *h, const void *body)
{
	switch (h->type) {
	case LINK_WANT:
		return rounds_want(l->rounds);
	case LINK_OFFER:
		return rounds_offer(l->rounds, h->number, body, h->len);
	case LINK_STORED:
		return rounds_stored(l->rounds, h->number, body, h->len);
	case LINK_ANNOUNCE:
		return rounds_announce(l->rounds, body, h->len);
	case LINK_FETCH:
		return fetches_fetch(l->fetches, h->number, body, h->len);
	case LINK_PINNED:
		return rounds_pinned(l->rounds, h->number, body, h->len);
	case LINK_WANT_COLLECT:
		l->relayed_ns = l->turn_ns;
		return collects_want(l->collects);
	case LINK_DONE:
		return collects_done(l->collects, h->number, body, h->len);
	case LINK_CHUNKS:
		return serve_chunks(l->serve, h->number, body, h->len);
	case LINK_THERE:
		return serve_there(l->serve, h->number, body, h->len);
	case LINK_TAKEN:
		return fetches_taken(l->fetches, h->number);
	case LINK_PUT:
	case LINK_REPLICATE:
	case LINK_DROP:
	case LINK_QUERY:
		l->relayed_ns = l->turn_ns;
		return relays_request(l->relays, h, body);
	case LINK_KEPT:
	case LINK_REPLICATED:
	case LINK_DROPPED:
	case LINK_ANSWER:
		return relays_answer(l->relays, h, body);
	default:
		return -EBADMSG;
	}
}

/* An error of the daemon ends all agents, but is not an error of this one. */
static int end_without_daemon(struct loop *l, int r, const struct link_header *h)
{
	if (r == -EBADMSG)
		log_error("daemon: malformed message (type %d, %" PRIu32 " bytes)", (int)h->type, h->len);
	else if (r == -ECONNRESET || r == -EPIPE)
		log_notice("daemon: has ended (unmounted?): ending all agents");
	else
		log_errno(r, "daemon");
	return end_world(l, r == -ECONNRESET || r == -EPIPE ? 0 : r);
}

/* 1: received a message */
static int attend_daemon(struct loop *l)
{
	struct link_header h = { 0 };
	const void *body;
	int r, any = 0;

	r = l->daemon_has_said ? link_read(l->daemon) : 0;
	while (r >= 0 && (r = link_next(l->daemon, &h, &body)) > 0) {
		any = 1;
		r = handle_daemon_message(l, &h, body);
		if (r == -EIO || r == -ENOMEM)
			return r; /* an error of the agent, not of the daemon */
	}
	if (r >= 0)
		r = link_write(l->daemon);
	return r < 0 ? end_without_daemon(l, r, &h) : any;
}

/* --- the other agents --- */

static int handle_peer_message(struct loop *l, const struct peer_header *h, struct message *message)
{
	const uint8_t *body = message->data + sizeof(struct peer_header_wire);
	size_t len = message->len - sizeof(struct peer_header_wire);

	switch (h->type) {
	case PEER_WANT:
		return rounds_peer_want(l->rounds, h->number);
	case PEER_BEGIN:
		return rounds_peer_begin(l->rounds, h->number);
	case PEER_GET:
		l->asked_ns = l->turn_ns;
		return l->daemon->fd < 0 ? 0 : serve_get(l->serve, h->from, h->number, body, len);
	case PEER_CHUNKS:
		return fetches_chunks(l->fetches, h->from, h->number, l->turn_ns, message);
	case PEER_ASK:
	case PEER_FOUND:
	case PEER_ANNOUNCE:
	case PEER_TWICE:
	case PEER_PIN:
	case PEER_PINNED:
		return rounds_peer_page(l->rounds, h, body, len);
	case PEER_ALIVE:
		return 0;
	case PEER_END:
		handle_end(l, h->from);
		return 0;
	case PEER_COLLECT:
		l->relayed_ns = l->turn_ns;
		return collects_peer_want(l->collects);
	case PEER_STEP:
		l->relayed_ns = l->turn_ns;
		return l->state == RUNNING ? collects_peer_step(l->collects, h->from, h->number, body, len) : 0;
	case PEER_DONE:
		return l->state == RUNNING ? collects_peer_done(l->collects, h->from, h->number, body, len) : 0;
	case PEER_COLLECTED:
		return l->state == RUNNING ? collects_peer_collected(l->collects, h->from, h->number, body, len) : 0;
	case PEER_PUT:
	case PEER_REPLICATE:
	case PEER_DROP:
	case PEER_QUESTION:
		l->relayed_ns = l->turn_ns;
		return l->daemon->fd < 0 ? 0 : relays_peer_request(l->relays, h, body, len);
	case PEER_KEPT:
	case PEER_REPLICATED:
	case PEER_DROPPED:
	case PEER_ANSWER:
		return l->daemon->fd < 0 ? 0 : relays_peer_answer(l->relays, h, body, len);
	}
	return -EBADMSG;
}

/* Lanes with too many requests in progress. None without a daemon: requests are dropped then, and pausing them would
 * keep their senders from ending. */
static unsigned paused_lanes(const struct loop *l)
{
	if (l->daemon->fd < 0)
		return 0;
	return (serve_has_room(l->serve) ? 0 : 1u << PEER_LANE_GETS) |
	       (relays_has_room(l->relays) ? 0 : 1u << PEER_LANE_KEEPS);
}

static uint32_t rank_before(const struct world *w)
{
	return (w->rank + w->nr - 1) % w->nr;
}

/* 1: received a message */
static int attend_peers(struct loop *l)
{
	int r = peers_progress(l->peers), any = 0;

	for (unsigned i = 0; r == 0 && i < MESSAGES_MAX; i++) {
		_cleanup_(message_release) struct message message = MESSAGE_NONE;
		struct peer_header h;

		r = peers_next(l->peers, paused_lanes(l), &h, &message);
		if (r <= 0)
			break;
		any = 1;
		if (h.from == rank_before(l->w))
			l->received_ns = l->turn_ns;
		r = handle_peer_message(l, &h, &message);
		if (r == -EBADMSG) {
			log_warning("node %s (rank %" PRIu32
				    "): ignored a malformed message (type %d)",
				    l->w->nodes[h.from].name, h.from, (int)h.type);
			r = 0;
		}
	}
	return r < 0 ? r : any;
}

/* A node that sends nothing for long is dead or unreachable. Each node watches its predecessor in a ring. */
static int keep_alive(struct loop *l)
{
	uint32_t next = (l->w->rank + 1) % l->w->nr;
	int r = 0;

	if (l->w->nr == 1 || l->state != RUNNING)
		return 0;
	if (l->turn_ns - l->sent_ns >= l->waits->stall_ns / 4) {
		l->sent_ns = l->turn_ns;
		r = peers_send(l->peers, next, PEER_ALIVE, 0, NULL, 0);
	}
	if (r == 0 && l->turn_ns - l->received_ns >= l->waits->stall_ns) {
		log_error("node %s (rank %" PRIu32 "): no message for %" PRIu64 " s: ending all agents",
			  l->w->nodes[rank_before(l->w)].name, rank_before(l->w), l->waits->stall_ns / 1000000000);
		r = end_world(l, -ETIMEDOUT);
	}
	return r;
}

/* --- status --- */

static void print_status(const struct loop *l, FILE *to)
{
	const struct rounds_figures *rounds = rounds_figures(l->rounds);
	const struct lookups_figures *lookups = rounds_lookups(l->rounds);
	const struct fetches_figures *fetched = fetches_figures(l->fetches);
	const struct serve_figures *served = serve_figures(l->serve);
	const struct relays_figures *kept = relays_figures(l->relays);

	fprintf(to, "Node:     %s, number %" PRIu32 " of %" PRIu32 ", for %" PRIu64 " s\n",
		l->w->nodes[l->w->rank].name, l->w->rank, l->w->nr, (l->turn_ns - l->started_ns) / 1000000000);
	fprintf(to, "Rounds:   %" PRIu64 ", %" PRIu64 " without an answer from the daemon, %" PRIu64 " failed\n",
		rounds->nr, rounds->unanswered, rounds->failed);
	fprintf(to, "Time:     %.3f s for offers, %.3f s reducing, %.3f s storing, %.3f s waiting for peers\n",
		(double)rounds->offering_ns / 1e9, (double)rounds->reducing_ns / 1e9, (double)rounds->storing_ns / 1e9,
		(double)rounds->gathering_ns / 1e9);
	fprintf(to, "Popular:  %s, %" PRIu64 " in the last round; %" PRIu64 " of %" PRIu64 " offered here\n",
		human_nr(rounds->popular, "page").s, rounds->popular_last, rounds->shared, rounds->offered);
	fprintf(to, "Known:    %s; %" PRIu64 " offered here needed no round\n", human_nr(rounds->known, "page").s,
		rounds->remembered);
	fprintf(to,
		"Looked up: %s, %" PRIu64 " found; %" PRIu64 " pinned for peers; %" PRIu64 " announced, %" PRIu64
		" known\n",
		human_nr(lookups->asked, "page").s, lookups->found, lookups->pinned, lookups->announced, lookups->known);
	fprintf(to, "Collected: %s jointly\n", human_nr(collects_nr(l->collects), "time").s);
	fprintf(to, "Fetched:  %s in %s, %" PRIu64 " not found\n", human_size(fetched->bytes).s,
		human_nr(fetched->chunks, "chunk").s, fetched->missing);
	fprintf(to, "Served:   %s in %s, %" PRIu64 " missing\n", human_size(served->bytes).s,
		human_nr(served->chunks, "chunk").s, served->missing);
	fprintf(to, "Replicas: %s in %s,", human_size(kept->kept_bytes).s, human_nr(kept->kept_chunks, "chunk").s);
	fprintf(to, " and %s, received from peers\n", human_nr(kept->replicas, "directory").s);
	for (uint32_t i = 0; i < MIN(l->w->nr, NODES_SHOWN); i++)
		fprintf(to, "  %" PRIu32 " %s, host %" PRIu32 "\n", i, l->w->nodes[i].name, l->w->hosts[i]);
	if (l->w->nr > NODES_SHOWN)
		fprintf(to, "  and %" PRIu32 " more\n", l->w->nr - NODES_SHOWN);
}

static void send_status(const struct loop *l)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	if (!to)
		return;
	print_status(l, to);
	if (fclose(to) == 0)
		status_answer(l->status_fd, text, len);
	free(text);
}

/* --- a turn --- */

/* MPI must be polled; the daemon's socket wakes the agent. */
static bool is_waiting_for_peers(const struct loop *l)
{
	return peers_streaming(l->peers) || fetches_waiting(l->fetches) || rounds_are_urgent(l->rounds);
}

/* File data is in transit, or likely to be soon. */
static bool chunks_move(const struct loop *l)
{
	return peers_streaming(l->peers) || fetches_waiting(l->fetches) || l->turn_ns - l->asked_ns < READING_NS;
}

/* Round back-off, and no recent request between daemons: no wait is likely. */
static bool is_backed_off(const struct loop *l)
{
	return rounds_are_backed_off(l->rounds) && l->turn_ns - l->relayed_ns >= RELAYING_NS;
}

static uint64_t nap_ns(const struct loop *l)
{
	bool moves = chunks_move(l), backed_off = is_backed_off(l);
	uint64_t quiet_ns = l->turn_ns - l->busy_ns, nap;
	uint64_t min = moves ? NAP_MIN_MOVING_NS : backed_off ? NAP_MIN_BACKED_OFF_NS : NAP_MIN_NS;
	uint64_t max = peers_streaming(l->peers) || fetches_waiting(l->fetches) ?
			       NAP_FETCHING_NS :
			       rounds_nap_ns(l->rounds, quiet_ns, backed_off);

	if (peers_hinting(l->peers))
		max = MIN(max, min > NAP_HINTING_NS ? min : NAP_HINTING_NS);
	if (l->idle_turns < (!moves ? 1 : peers_moving(l->peers) ? EAGER_MOVING : EAGER_TURNS))
		return 0;
	nap = MAX(quiet_ns / (moves || is_waiting_for_peers(l) ? NAP_PART : NAP_PART_UNAWAITED), min);
	return MIN(nap, max);
}

static void nap(struct loop *l)
{
	struct pollfd fds[] = {
		{ .fd = l->daemon->fd,
		  .events = (short)(POLLIN | (l->daemon->fd >= 0 && link_unsent(l->daemon) > 0 ? POLLOUT : 0)) },
		{ .fd = l->state == RUNNING ? l->status_fd : -1, .events = POLLIN },
	};
	struct timespec ts = { .tv_nsec = (long)nap_ns(l) };

	l->daemon_has_said = false;
	if (ts.tv_nsec == 0 && peers_moving(l->peers) && l->deaf_turns < DEAF_TURNS) {
		l->deaf_turns++;
		return;
	}
	l->deaf_turns = 0;
	if (ppoll(fds, ARRAY_SIZE(fds), &ts, NULL) <= 0)
		fds[0].revents = fds[1].revents = 0;
	l->daemon_has_said = fds[0].revents & (POLLIN | POLLHUP | POLLERR);
	if (fds[1].revents)
		send_status(l);
}

/* 1: made progress */
static int make_progress(struct loop *l)
{
	int any, r;

	r = any = rounds_progress(l->rounds, l->turn_ns);
	if (r >= 0) {
		r = collects_progress(l->collects, l->turn_ns);
		any |= r > 0;
	}
	if (r >= 0 && l->daemon->fd >= 0) {
		r = fetches_progress(l->fetches, l->turn_ns);
		any |= r > 0;
	}
	if (r >= 0 && l->daemon->fd >= 0) {
		r = serve_progress(l->serve, l->turn_ns);
		any |= r > 0;
	}
	if (r >= 0 && l->daemon->fd >= 0) {
		r = relays_progress(l->relays, l->turn_ns);
		any |= r > 0;
	}
	return r < 0 ? r : any;
}

static int turn(struct loop *l)
{
	uint64_t now = monotonic_ns();
	int r = 0, any = 0, any_of_peers = 0;

	if (now - l->turn_ns > PAUSED_NS)
		l->received_ns = now; /* this process was stopped, not its predecessor */
	l->turn_ns = now;
	if (interrupted && l->state == RUNNING) {
		log_notice("signal %d: ending all agents", (int)interrupted);
		r = end_world(l, 0);
	}
	if (r >= 0 && l->daemon->fd >= 0) {
		r = attend_daemon(l);
		any |= r > 0;
	}
	if (r >= 0) {
		r = any_of_peers = attend_peers(l);
		any |= r > 0;
	}
	if (r >= 0) {
		r = make_progress(l);
		any |= r > 0;
	}
	if (r >= 0 && l->daemon->fd >= 0 && link_unsent(l->daemon) > 0) {
		r = link_write(l->daemon);
		if (r < 0)
			r = end_without_daemon(l, r, &(struct link_header){ 0 });
	}
	if (r >= 0)
		r = keep_alive(l);
	follow_end(l);
	if (r >= 0)
		r = finish_ending(l);
	l->idle_turns = any ? 0 : l->idle_turns + 1;
	if (any_of_peers > 0 || (any && is_waiting_for_peers(l)))
		l->busy_ns = l->turn_ns;
	return r < 0 ? r : 0;
}

static int run(struct loop *l)
{
	int r = 0;

	link_encode_nodes(l->w->nodes, l->w->nr, l->w->rank, &l->daemon->out);
	while (l->state != OVER && r == 0) {
		nap(l);
		r = turn(l);
	}
	link_release(l->daemon);
	return r < 0 ? r : l->error < 0 ? -ECANCELED : 0;
}

int loop_run(const struct world *w, struct link *daemon, const struct arenas *shared, const struct waits *waits,
	     const struct rounds_conf *conf, int status_fd)
{
	struct loop l = { .w = w, .waits = waits, .daemon = daemon, .status_fd = status_fd, .leaving = MPI_REQUEST_NULL };
	int r;

	l.started_ns = l.turn_ns = l.received_ns = l.sent_ns = l.busy_ns = monotonic_ns();
	r = peers_new(w, shared->own, &l.peers);
	if (r == 0)
		r = rounds_new(w, l.peers, daemon, waits, conf, &l.rounds);
	if (r == 0)
		r = collects_new(w, l.peers, daemon, waits, l.rounds, &l.collects);
	if (r == 0)
		r = fetches_new(w, l.peers, daemon, shared->own, waits, &l.fetches);
	if (r == 0)
		r = serve_new(l.peers, daemon, shared->theirs, waits, &l.serve);
	if (r == 0)
		r = relays_new(w, l.peers, daemon, waits, &l.relays);
	if (r == 0)
		r = run(&l);
	relays_free(l.relays);
	serve_free(l.serve);
	fetches_free(l.fetches);
	collects_free(l.collects);
	rounds_free(l.rounds);
	peers_free(l.peers);
	return r;
}
