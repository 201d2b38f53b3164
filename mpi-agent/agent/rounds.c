/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/rounds.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/popular/known.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/lookups.h"
#include "mpi-agent/agent/mpi_errno.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/popular/reduce.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define SAMPLE_MAX 1024u /* if one page in 200 is popular, one sample in 150 contains none */

#define NAP_NS UINT64_C(1000000) /* a daemon waits for this round */
#define NAP_IDLE_NS UINT64_C(2000000)
#define NAP_IDLE_BACKED_OFF_NS UINT64_C(16000000) /* back-off: the next round will not start soon */
#define NAP_LONG_NS UINT64_C(20000000)
#define NAP_LONG_PART 200u /* of the idle time: the next request waits for half a nap per node that it passes */
#define NAP_BACKED_OFF_NS UINT64_C(4000000) /* no daemon waits for this round, or its end */
#define EMPTY_ROUNDS 2u /* without common pages: the next ones are likely to find none either; ... */
#define EMPTY_APART_NS UINT64_C(500000000) /* rounds of one checkpoint count once */
/* The agent waits for its daemon, which wakes it; peers send nothing of this round before they have stored. */
#define NAP_STORING_NS UINT64_C(20000000)

enum state { IDLE, OFFERING, ASKING, REDUCING, STORING, GATHERING, PAUSED };

/* The message of each node at the end of a round. */
struct end_wire {
	struct le64 round;
	struct le32 rank;
	uint8_t has_stored;
	uint8_t mac[MAC_LEN]; /* of the bytes before it */
};

struct rounds {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct waits *waits;
	struct rounds_figures figures;

	enum state state;
	uint64_t number; /* of the current or last round */
	uint64_t next; /* already started by rank 0 while this one is in progress; 0: none */
	bool is_wanted; /* rank 0: another round is requested */
	bool is_ending;
	uint64_t until_ns; /* timeout: of the daemon in OFFERING and STORING, else of the other nodes */
	uint64_t since_ns; /* when this state was entered */

	bool has_offered, has_stored; /* the daemon has, in time */
	bool is_awaited; /* daemons wait for its end: nodes have pages in common */
	unsigned nr_empty; /* successive rounds with pages, but none in common */
	uint64_t empty_ns; /* time of the last one */
	/* there is no decision for the daemon, but other nodes may expect this node to store pages */
	bool has_failed;
	struct fp *pages; /* of the offer */
	uint32_t nr_pages;
	struct known *remembered;
	struct lookups *lookups;
	bool lookup; /* use lookups */
	struct fp *unannounced; /* pages that the daemon has stored without a round, in any order */
	uint32_t nr_unannounced;
	struct holders *had; /* of each page: nodes that are known to have it, durable and pinned */
	struct fp *entered; /* pages that enter the reduction */
	uint32_t *entered_index, nr_entered; /* their indices in `pages` */
	struct merge_conf conf;
	struct popular_set own, result;
	struct reduction *reduction;
	bool is_sample;

	MPI_Request request; /* in GATHERING */
	struct end_wire end, *ends;
	uint8_t *stored; /* by rank, for the last completed round: 1: it has stored its part */
};

int rounds_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits,
	       const struct rounds_conf *conf, struct rounds **ret)
{
	struct rounds *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return -ENOMEM;
	*rs = (struct rounds){ .w = w, .peers = p, .daemon = daemon, .waits = waits, .request = MPI_REQUEST_NULL };
	rs->conf = (struct merge_conf){ .nr_owners = w->replicas, .nr_nodes = w->nr, .hosts = w->hosts };
	rs->ends = calloc(w->nr, sizeof(*rs->ends));
	rs->stored = calloc(w->nr, sizeof(*rs->stored));
	rs->lookup = conf->lookup;
	if (!rs->ends || !rs->stored || known_new(conf->remember / 2, &rs->remembered) < 0 ||
	    lookups_new(w, p, daemon, waits, conf->remember / 2, &rs->lookups) < 0) {
		rounds_free(rs);
		return -ENOMEM;
	}
	*ret = rs;
	return 0;
}

/* Frees the state of this round. */
static void drop_round(struct rounds *rs)
{
	if (rs->lookups)
		lookups_stop(rs->lookups);
	reduction_free(rs->reduction);
	rs->reduction = NULL;
	popular_set_release(&rs->own);
	popular_set_release(&rs->result);
	free(TAKE(rs->pages));
	free(TAKE(rs->had));
	free(TAKE(rs->entered));
	free(TAKE(rs->entered_index));
	rs->nr_pages = rs->nr_entered = 0;
}

void rounds_free(struct rounds *rs)
{
	if (!rs)
		return;
	drop_round(rs);
	free(rs->unannounced);
	known_free(rs->remembered);
	lookups_free(rs->lookups);
	free(rs->ends);
	free(rs->stored);
	free(rs);
}

static bool has_daemon(const struct rounds *rs)
{
	return rs->daemon->fd >= 0;
}

/* --- beginning --- */

/* Sends BEGIN to the children in the tree: rank + 2^k for all 2^k > rank. */
static int pass_on(struct rounds *rs)
{
	int r = 0;

	for (uint64_t bit = 1; r == 0 && rs->w->rank + bit < rs->w->nr; bit <<= 1)
		if (bit > rs->w->rank)
			r = peers_send(rs->peers, (uint32_t)(rs->w->rank + bit), PEER_BEGIN, rs->number, NULL, 0);
	return r;
}

/* Adds the duration of the previous state to the figures. */
static uint64_t enter_state(struct rounds *rs, enum state state)
{
	uint64_t now_ns = monotonic_ns(), *of[] = {
		[OFFERING] = &rs->figures.offering_ns,
		[ASKING] = &rs->figures.asking_ns,
		[REDUCING] = &rs->figures.reducing_ns,
		[STORING] = &rs->figures.storing_ns,
		[GATHERING] = &rs->figures.gathering_ns,
	};

	if (rs->state != IDLE)
		*of[rs->state] += now_ns - rs->since_ns;
	rs->state = state;
	rs->since_ns = now_ns;
	return now_ns;
}

static int announce_unannounced(struct rounds *rs);

static int start_offering(struct rounds *rs, uint64_t number)
{
	int r = announce_unannounced(rs);

	if (r < 0)
		return r;
	rs->number = number;
	rs->has_offered = rs->has_stored = rs->has_failed = false;
	rs->until_ns = enter_state(rs, OFFERING) + rs->waits->offer_ns;
	if (has_daemon(rs))
		link_encode_plain(LINK_BEGIN, number, &rs->daemon->out);
	return pass_on(rs);
}

/* In OFFERING the daemon had not received BEGIN yet when it sent WANT: this round will do. */
int rounds_want(struct rounds *rs)
{
	if (rs->state == OFFERING)
		return 0;
	if (rs->w->rank != 0)
		return peers_send(rs->peers, 0, PEER_WANT, rs->number, NULL, 0);
	rs->is_wanted = true;
	return 0;
}

/* A request sent before the last round began is covered by that round. */
int rounds_peer_want(struct rounds *rs, uint64_t number)
{
	if (rs->w->rank != 0 || number > rs->number)
		return -EBADMSG;
	rs->is_wanted |= number == rs->number;
	return 0;
}

int rounds_peer_begin(struct rounds *rs, uint64_t number)
{
	if (rs->w->rank == 0 || number != rs->number + 1 || rs->next != 0)
		return -EBADMSG;
	if (rs->state == IDLE)
		return start_offering(rs, number);
	rs->next = number; /* rank 0 has completed the current round, and so will this node */
	return 0;
}

void rounds_end(struct rounds *rs)
{
	rs->is_ending = true;
}

/* --- cached results --- */

void rounds_forget(struct rounds *rs)
{
	known_clear(rs->remembered);
	lookups_forget(rs->lookups);
}

static void cache_holders(struct rounds *rs, struct fp fp, const struct holders *h)
{
	known_set(rs->remembered, fp, h, (uint32_t)rs->number);
}

/* The page as this node's entry for the reduction, with the nodes that have it. */
static struct popular popular_of(const struct rounds *rs, uint32_t i)
{
	const struct holders *h = &rs->had[i];
	struct popular p = { .fp = rs->pages[i], .count = 1, .nr_owners = 1, .owners = { rs->w->rank } };

	if (h->nr > 0)
		popular_is_had(&rs->conf, h->nodes, h->nr, &p);
	return p;
}

/* As many nodes have it as it needs. */
static bool is_had(const struct popular *p, uint32_t nr_owners)
{
	return p->nr_owners == nr_owners && p->has == (1u << nr_owners) - 1;
}

/* Pages that enough nodes are known to have do not enter the reduction. */
static int enter_pages(struct rounds *rs)
{
	rs->entered = calloc(MAX(rs->nr_pages, UINT32_C(1)), sizeof(*rs->entered));
	rs->entered_index = calloc(MAX(rs->nr_pages, UINT32_C(1)), sizeof(*rs->entered_index));
	if (!rs->entered || !rs->entered_index)
		return -ENOMEM;
	for (uint32_t i = 0; i < rs->nr_pages; i++) {
		struct popular p = popular_of(rs, i);

		if (is_had(&p, rs->conf.nr_owners)) {
			rs->figures.remembered++;
			continue;
		}
		rs->entered[rs->nr_entered] = rs->pages[i];
		rs->entered_index[rs->nr_entered++] = i;
	}
	return 0;
}

static int start_asking(struct rounds *rs)
{
	enter_state(rs, ASKING);
	rs->had = calloc(MAX(rs->nr_pages, UINT32_C(1)), sizeof(*rs->had));
	if (!rs->had)
		return -ENOMEM;
	for (uint32_t i = 0; i < rs->nr_pages; i++)
		known_find(rs->remembered, rs->pages[i], (uint32_t)rs->number, &rs->had[i]);
	return lookups_begin(rs->lookups, rs->number, rs->pages, rs->had, rs->lookup ? rs->nr_pages : 0);
}

/* Caches the results of lookups, on this node only, so that it need not look up these pages again. */
static void remember_found(struct rounds *rs)
{
	for (uint32_t i = 0; i < rs->nr_pages; i++)
		if (rs->had[i].nr > 0)
			cache_holders(rs, rs->pages[i], &rs->had[i]);
}

/* Announces the pages that no other node has, by the result of the round. */
static int announce_unshared(struct rounds *rs)
{
	_cleanup_(freep) struct fp *unshared = calloc(MAX(rs->nr_entered, UINT32_C(1)), sizeof(*unshared));
	const struct popular_set *s = &rs->result;
	uint32_t nr = 0;
	size_t k = 0;

	if (!unshared)
		return -ENOMEM;
	for (uint32_t i = 0; i < rs->nr_entered; i++) {
		while (k < s->nr && fp_compare(s->v[k].fp, rs->entered[i]) < 0)
			k++;
		if (k == s->nr || !fp_equal(s->v[k].fp, rs->entered[i]) || s->v[k].count < 2)
			unshared[nr++] = rs->entered[i];
	}
	return lookups_announce(rs->lookups, rs->number, unshared, nr);
}

/* Another node has it, according to an earlier round. */
static bool is_settled(struct rounds *rs, struct fp fp)
{
	struct holders h;
	bool is_of_peer = false;

	if (known_find(rs->remembered, fp, (uint32_t)rs->number, &h))
		for (uint32_t k = 0; k < h.nr; k++)
			is_of_peer |= h.nodes[k] != rs->w->rank;
	return is_of_peer;
}

/* Sends SHARED for stored pages that peers have. Homes do not detect these: they do not cache results of rounds. */
static void warn_daemon(struct rounds *rs, const struct fp *pages, uint32_t nr)
{
	uint32_t nr_settled = 0;

	for (uint32_t i = 0; i < nr; i++)
		nr_settled += is_settled(rs, pages[i]);
	if (nr_settled > 0 && nr_settled >= nr / LOOKUPS_TWICE_PART && has_daemon(rs))
		link_encode_plain(LINK_SHARED, nr_settled, &rs->daemon->out);
}

/* Announces pages that were stored without a round. */
static int announce_unannounced(struct rounds *rs)
{
	_cleanup_(freep) struct fp *pages = TAKE(rs->unannounced);
	uint32_t nr = rs->nr_unannounced;

	rs->nr_unannounced = 0;
	if (known_nr(rs->remembered) > 0)
		warn_daemon(rs, pages, nr);
	return nr > 0 ? lookups_announce(rs->lookups, rs->number, pages, nr) : 0;
}

static int add_unannounced(struct rounds *rs, const struct fp *pages, uint32_t nr)
{
	struct fp *all;

	nr = MIN(nr, LOOKUPS_MAX - rs->nr_unannounced);
	all = reallocarray(rs->unannounced, MAX(rs->nr_unannounced + nr, UINT32_C(1)), sizeof(*all));
	if (!all)
		return -ENOMEM;
	rs->unannounced = all;
	memcpy(all + rs->nr_unannounced, pages, nr * sizeof(*pages));
	rs->nr_unannounced += nr;
	return 0;
}

/* --- reducing --- */

static int reduce(struct rounds *rs, size_t max, bool is_sample)
{
	int r;

	rs->conf.max = max;
	rs->is_sample = is_sample;
	popular_set_release(&rs->own);
	r = popular_of_node(&rs->conf, rs->w->rank, rs->entered, rs->nr_entered, &rs->own);
	if (r < 0)
		return r;
	for (size_t i = 0; i < rs->own.nr; i++) /* same order as rs->entered */
		rs->own.v[i] = popular_of(rs, rs->entered_index[i]);
	return reduction_begin(rs->w->rounds, &rs->conf, &rs->w->set_key, &rs->own, &rs->reduction);
}

static int start_reducing(struct rounds *rs)
{
	int r;

	lookups_stop(rs->lookups); /* some nodes may not have answered */
	remember_found(rs);
	r = enter_pages(rs);
	if (r < 0)
		return r;
	rs->until_ns = enter_state(rs, REDUCING) + rs->waits->offer_ns + rs->waits->stall_ns;
	rs->figures.offered += rs->nr_pages;
	return reduce(rs, MIN((uint64_t)SAMPLE_MAX, rs->w->popular_max), true);
}

static uint64_t nr_popular(const struct popular_set *s)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < s->nr; i++)
		nr += s->v[i].count >= 2;
	return nr;
}

static struct link_owners owners_of(uint32_t index, const struct popular *p)
{
	struct link_owners o = { .index = index, .nr = p->nr_owners, .has = p->has };

	for (uint32_t n = 0; n < o.nr; n++)
		o.owners[n] = (uint16_t)p->owners[n];
	return o;
}

/* Lists the pages of the offer that other nodes offer or have. For pages that entered the reduction only its result
 * counts, because it is the same on all nodes. */
static uint32_t list_owners(const struct rounds *rs, struct link_owners *ret)
{
	const struct popular_set *s = &rs->result;
	uint32_t nr = 0, entered = 0;
	size_t k = 0;

	for (uint32_t i = 0; i < rs->nr_pages; i++) {
		struct popular p;

		if (entered == rs->nr_entered || rs->entered_index[entered] != i) {
			p = popular_of(rs, i);
			ret[nr++] = owners_of(i, &p);
			continue;
		}
		entered++;
		while (k < s->nr && fp_compare(s->v[k].fp, rs->pages[i]) < 0)
			k++;
		if (k < s->nr && fp_equal(s->v[k].fp, rs->pages[i]) && s->v[k].count >= 2)
			ret[nr++] = owners_of(i, &s->v[k]);
	}
	return nr;
}

static int start_storing(struct rounds *rs)
{
	_cleanup_(freep) struct link_owners *owners = calloc(MAX(rs->nr_pages, UINT32_C(1)), sizeof(*owners));
	uint32_t nr;

	if (!owners)
		return -ENOMEM;
	nr = list_owners(rs, owners);
	rs->figures.shared += nr;
	rs->figures.popular_last = nr_popular(&rs->result);
	rs->figures.popular += rs->figures.popular_last;
	rs->is_awaited = nr > 0 || rs->figures.popular_last > 0;
	rs->nr_empty = rs->is_awaited ? 0 : rs->nr_empty;
	if (has_daemon(rs) && rs->has_offered)
		link_encode_decision(rs->number, owners, nr, &rs->daemon->out);
	rs->until_ns = enter_state(rs, STORING) + rs->waits->stored_ns;
	return 0;
}

static void note_empty(struct rounds *rs, bool is_empty)
{
	uint64_t now_ns = monotonic_ns();

	if (!is_empty)
		rs->nr_empty = 0;
	else if (rs->nr_empty < EMPTY_ROUNDS && now_ns - rs->empty_ns >= EMPTY_APART_NS)
		rs->nr_empty++;
	rs->empty_ns = now_ns;
}

/* Errors other than -EIO of MPI occur on all nodes alike: the round has no decision then. */
static int finish_reducing(struct rounds *rs)
{
	struct reduce_cost cost;
	int r = reduction_test(rs->reduction);

	if (r == REDUCTION_WAITS || r == REDUCTION_GOES_ON)
		return r == REDUCTION_GOES_ON;
	if (r == REDUCTION_DONE)
		r = reduction_result(rs->reduction, &rs->result, &cost);
	if (r == -EIO)
		return r;
	reduction_free(TAKE(rs->reduction));
	if (r < 0) {
		log_errno(r, "round %" PRIu64 ": no decision", rs->number);
		rs->figures.failed++;
		rs->has_failed = true;
	} else {
		rs->figures.message_bytes = cost.message_bytes;
		if (cost.pages > 0)
			note_empty(rs, nr_popular(&rs->result) == 0);
		if (rs->is_sample && cost.pages > rs->conf.max && rs->w->popular_max > rs->conf.max &&
		    nr_popular(&rs->result) > 0) {
			popular_set_release(&rs->result);
			r = reduce(rs, (size_t)rs->w->popular_max, false);
			return r < 0 ? r : 1;
		}
	}
	r = start_storing(rs);
	return r < 0 ? r : 1;
}

/* --- gathering --- */

static void mac_end(const struct rounds *rs, struct end_wire *e)
{
	mac_compute(&rs->w->stored_key, e, offsetof(struct end_wire, mac), e->mac);
}

static int start_gathering(struct rounds *rs)
{
	rs->end = (struct end_wire){ .round = le64_put(rs->number),
				     .rank = le32_put(rs->w->rank),
				     .has_stored = rs->has_stored && !rs->has_failed };
	mac_end(rs, &rs->end);
	rs->figures.unanswered += !rs->has_offered || !rs->has_stored;
	rs->until_ns = enter_state(rs, GATHERING) + rs->waits->stored_ns + rs->waits->stall_ns;
	if (rs->has_stored && rs->lookup) { /* before the round ends, since the next one may look them up */
		int r = announce_unshared(rs);

		if (r < 0)
			return r;
	}
	return mpi_errno(MPI_Iallgather(&rs->end, sizeof(rs->end), MPI_BYTE, rs->ends, sizeof(rs->end), MPI_BYTE,
					rs->w->rounds, &rs->request),
			 "gathering of STORED");
}

static bool says_stored(const struct rounds *rs, uint32_t rank)
{
	const struct end_wire *e = &rs->ends[rank];

	return le64_get(e->round) == rs->number && le32_get(e->rank) == rank && e->has_stored == 1 &&
	       mac_is_valid(&rs->w->stored_key, e, offsetof(struct end_wire, mac), e->mac);
}

/* SETTLED for a round that has ended without this node. */
static int send_unsettled(struct rounds *rs, uint64_t number)
{
	_cleanup_(freep) uint8_t *none_stored = calloc(rs->w->nr, 1);

	if (!none_stored)
		return -ENOMEM;
	link_encode_settled(number, none_stored, rs->w->nr, &rs->daemon->out);
	return 0;
}

/* The result is the same on all nodes. */
static void remember_settled(struct rounds *rs)
{
	for (size_t i = 0; i < rs->result.nr; i++) {
		const struct popular *p = &rs->result.v[i];
		struct holders h = { 0 };

		if (p->count < 2)
			continue;
		for (uint32_t k = 0; k < p->nr_owners; k++)
			if ((p->has >> k & 1) || rs->stored[p->owners[k]])
				holders_add(&h, (uint16_t)p->owners[k]);
		if (h.nr > 0)
			cache_holders(rs, p->fp, &h);
	}
}

static int finish_gathering(struct rounds *rs)
{
	int is_done, r = mpi_errno(MPI_Test(&rs->request, &is_done, MPI_STATUS_IGNORE), "gathering of STORED");

	if (r < 0 || !is_done)
		return r;
	for (uint32_t i = 0; i < rs->w->nr; i++)
		rs->stored[i] = says_stored(rs, i);
	if (has_daemon(rs) && rs->has_offered)
		link_encode_settled(rs->number, rs->stored, rs->w->nr, &rs->daemon->out);
	remember_settled(rs);
	drop_round(rs);
	rs->figures.nr++;
	enter_state(rs, IDLE);
	return r < 0 ? r : 1;
}

/* --- the daemon --- */

int rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len)
{
	int r;

	if (number == 0 || number > rs->number)
		return -EBADMSG;
	if (rs->state != OFFERING || number != rs->number) { /* late: answer that no other node has any of the pages */
		link_encode_decision(number, NULL, 0, &rs->daemon->out);
		return 0;
	}
	r = link_decode_offer(body, len, &rs->pages, &rs->nr_pages);
	if (r < 0)
		return r;
	rs->has_offered = true;
	return start_asking(rs);
}

int rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len)
{
	int error, r = link_decode_stored(body, len, &error);

	if (r < 0 || number == 0 || number > rs->number)
		return -EBADMSG;
	if (rs->state == STORING && number == rs->number && rs->has_offered) {
		rs->has_stored = error == 0;
		return start_gathering(rs);
	}
	if (rs->state == IDLE || rs->state == PAUSED || number != rs->number || !rs->has_offered)
		return send_unsettled(rs, number);
	return rs->state == GATHERING ?
		       0 :
		       -EBADMSG; /* late in GATHERING: SETTLED follows; before the decision it is malformed */
}

/* Without lookups there are no announcements that would detect nodes storing the same pages: SHARED is sent at once. */
int rounds_announce(struct rounds *rs, const void *body, size_t len)
{
	_cleanup_(freep) struct fp *pages = NULL;
	uint32_t nr;
	int r = link_decode_announce(body, len, &pages, &nr);

	if (r < 0)
		return r;
	if (!rs->lookup) {
		link_encode_plain(LINK_SHARED, nr, &rs->daemon->out);
		return 0;
	}
	r = add_unannounced(rs, pages, nr);
	return r == 0 && rs->state == OFFERING ? announce_unannounced(rs) : r; /* lookups of this round may need them */
}

int rounds_pinned(struct rounds *rs, uint64_t number, const void *body, size_t len)
{
	return lookups_pinned(rs->lookups, number, body, len);
}

int rounds_peer_page(struct rounds *rs, const struct peer_header *h, const void *body, size_t len)
{
	return lookups_receive(rs->lookups, h, body, len);
}

/* --- progress --- */

static int start_next(struct rounds *rs)
{
	uint64_t next = rs->next;

	if (next != 0) {
		rs->next = 0;
		return start_offering(rs, next);
	}
	if (!rs->is_wanted || rs->is_ending)
		return 0;
	rs->is_wanted = false;
	return start_offering(rs, rs->number + 1);
}

static int round_timed_out(const struct rounds *rs)
{
	return log_errno(-ETIMEDOUT, "round %" PRIu64 ": not all nodes respond", rs->number);
}

int rounds_progress(struct rounds *rs, uint64_t now_ns)
{
	enum state before = rs->state;
	bool is_late = now_ns >= rs->until_ns;
	int r = 0;

	switch (rs->state) {
	case IDLE:
		r = announce_unannounced(rs);
		if (r == 0)
			r = lookups_note(rs->lookups, now_ns);
		if (r == 0)
			r = start_next(rs);
		break;
	case OFFERING:
		if (is_late || !has_daemon(rs))
			r = start_asking(rs);
		break;
	case ASKING:
		r = has_daemon(rs) ? lookups_progress(rs->lookups, now_ns) : 1;
		if (r > 0)
			r = start_reducing(rs);
		break;
	case REDUCING:
		r = finish_reducing(rs);
		if (r == 0 && is_late)
			return round_timed_out(rs);
		break;
	case STORING:
		if (is_late || !has_daemon(rs) || !rs->has_offered)
			r = start_gathering(rs);
		break;
	case GATHERING:
		r = finish_gathering(rs);
		if (r == 0 && is_late)
			return round_timed_out(rs);
		break;
	case PAUSED:
		break;
	}
	return r < 0 ? r : r > 0 || rs->state != before;
}

bool rounds_gathering(const struct rounds *rs)
{
	return rs->state == GATHERING;
}

bool rounds_idle(const struct rounds *rs)
{
	return (rs->state == IDLE && rs->next == 0) || rs->state == PAUSED;
}

void rounds_hold(struct rounds *rs, bool hold)
{
	assert(!hold || rounds_idle(rs));
	if (hold)
		rs->state = PAUSED;
	else if (rs->state == PAUSED)
		rs->state = IDLE;
}

bool rounds_wanted(const struct rounds *rs)
{
	return rs->is_wanted && !rs->is_ending;
}

/* The round probably finds nothing, and a large offer is only a part of a checkpoint in progress (round_backoff.h). */
static bool is_probe(const struct rounds *rs)
{
	return rs->nr_empty == EMPTY_ROUNDS && rs->nr_pages >= SAMPLE_MAX;
}

bool rounds_are_urgent(const struct rounds *rs)
{
	return rs->state == ASKING || rs->state == REDUCING ? !is_probe(rs) : rs->state == GATHERING && rs->is_awaited;
}

bool rounds_are_backed_off(const struct rounds *rs)
{
	return rs->nr_empty == EMPTY_ROUNDS && !rounds_are_urgent(rs);
}

uint64_t rounds_nap_ns(const struct rounds *rs, uint64_t quiet_ns, bool is_backed_off)
{
	if (rs->state == STORING)
		return NAP_STORING_NS;
	if (rs->state == IDLE) {
		quiet_ns = MAX(quiet_ns / NAP_LONG_PART, is_backed_off ? NAP_IDLE_BACKED_OFF_NS : NAP_IDLE_NS);
		return MIN(quiet_ns, NAP_LONG_NS);
	}
	if (rs->state == OFFERING || rs->state == PAUSED)
		return NAP_IDLE_NS;
	return rounds_are_urgent(rs) ? NAP_NS : NAP_BACKED_OFF_NS;
}

const struct rounds_figures *rounds_figures(struct rounds *rs)
{
	rs->figures.known = known_nr(rs->remembered);
	return &rs->figures;
}

const struct lookups_figures *rounds_lookups(struct rounds *rs)
{
	return lookups_figures(rs->lookups);
}
