/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/lookups.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "mpi-agent/popular/homes.h"
#include "mpi-agent/popular/known.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define PINS_MAX 1024u /* requests of other nodes that the daemon handles at once */

enum state { IDLE, FINDING, PINNING };

/* A page and a node that may have it, according to a home. */
struct hit {
	uint32_t node, page;
};

/* A PIN request to one node. */
struct piece {
	uint64_t number;
	uint32_t node, from, nr;
	bool is_done;
};

/* PIN of another node, passed to the daemon. */
struct pin {
	uint64_t number; /* of the request to the daemon */
	uint32_t from; /* the requesting node */
	uint64_t peer_number; /* its number of the request */
	uint32_t nr;
	uint64_t until_ns; /* when the request times out */
	struct pin *next;
};

struct lookups {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct waits *waits;
	struct lookups_figures figures;
	struct homes *homes; /* the pages that this node is home of */
	uint32_t now; /* the current or last round: the time in `homes` */

	enum state state;
	uint64_t round, until_ns;
	const struct fp *pages;
	struct holders *had;
	uint32_t nr;
	uint32_t *asked; /* indices of pages, by home, ascending for each */
	uint32_t *from; /* start of each home's pages in `asked`; one more than homes */
	bool *is_open; /* by rank: home that has not answered */
	uint32_t nr_open; /* homes, or pieces, without an answer so far */
	struct hit *hits;
	uint32_t nr_hits, size_hits;
	struct piece *pieces;
	uint32_t nr_pieces;

	uint64_t number; /* of the last PIN sent, to the daemon or a node */
	struct pin *pins;
	uint32_t nr_pins;
};

int lookups_new(const struct world *w, struct peers *p, struct link *daemon, const struct waits *waits, size_t remember,
		struct lookups **ret)
{
	struct lookups *ls = calloc(1, sizeof(*ls));

	if (!ls || homes_new(remember, w->nr, &ls->homes) < 0) {
		free(ls);
		return -ENOMEM;
	}
	ls->w = w;
	ls->peers = p;
	ls->daemon = daemon;
	ls->waits = waits;
	*ret = ls;
	return 0;
}

void lookups_free(struct lookups *ls)
{
	if (!ls)
		return;
	lookups_stop(ls);
	for (struct pin *l; (l = ls->pins);) {
		ls->pins = l->next;
		free(l);
	}
	homes_free(ls->homes);
	free(ls);
}

void lookups_forget(struct lookups *ls)
{
	homes_clear(ls->homes);
}

void lookups_stop(struct lookups *ls)
{
	free(TAKE(ls->asked));
	free(TAKE(ls->from));
	free(TAKE(ls->is_open));
	free(TAKE(ls->hits));
	free(TAKE(ls->pieces));
	ls->nr_open = ls->nr_hits = ls->size_hits = ls->nr_pieces = 0;
	ls->state = IDLE;
}

static uint32_t home_of(const struct lookups *ls, struct fp fp)
{
	return (uint32_t)(fp.hi % ls->w->nr);
}

/* Messages between agents have the bodies of those of link_format.h: sends that of `message`. */
static int send_body(struct lookups *ls, uint32_t to, enum peer_type type, uint64_t number, const struct buf *message)
{
	int r = buf_error(message);

	if (r < 0)
		return r;
	return peers_send(ls->peers, to, type, number, message->data + sizeof(struct link_header_wire),
			  message->len - sizeof(struct link_header_wire));
}

static int send_pages(struct lookups *ls, uint32_t to, enum peer_type type, uint64_t number, const struct fp *pages,
		      uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	link_encode_offer(number, pages, nr, &b);
	return send_body(ls, to, type, number, &b);
}

/* --- homes --- */

/* `which` of the pages (NULL: all) by home: ret[from[h]] to ret[from[h + 1]] are those of node h, ascending. */
static void sort_by_home(const struct lookups *ls, const struct fp *pages, const uint32_t *which, uint32_t nr,
			 uint32_t *ret, uint32_t *from)
{
	memset(from, 0, (ls->w->nr + 1) * sizeof(*from));
	for (uint32_t i = 0; i < nr; i++)
		from[home_of(ls, pages[which ? which[i] : i]) + 1]++;
	for (uint32_t h = 0; h < ls->w->nr; h++)
		from[h + 1] += from[h];
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t page = which ? which[i] : i;

		ret[from[home_of(ls, pages[page])]++] = page;
	}
	memmove(from + 1, from, ls->w->nr * sizeof(*from)); /* each has advanced to the start of the next */
	from[0] = 0;
}

static void send_shared(struct lookups *ls, uint64_t nr)
{
	if (ls->daemon->fd >= 0)
		link_encode_plain(LINK_SHARED, nr, &ls->daemon->out);
}

static int send_twice(struct lookups *ls, uint32_t node, uint64_t nr)
{
	if (node != ls->w->rank)
		return peers_send(ls->peers, node, PEER_TWICE, nr, NULL, 0);
	send_shared(ls, nr);
	return 0;
}

/* Only if it is more than a few of the announced pages. */
static int send_twice_if_many(struct lookups *ls, const struct homes_noted *noted, uint32_t n)
{
	uint32_t nr = n == noted->node ? noted->nr_twice : noted->twice[n];

	return nr > 0 && nr >= noted->nr / LOOKUPS_TWICE_PART ? send_twice(ls, n, nr) : 0;
}

/* Notes all queued announcements. */
static int note_all(struct lookups *ls)
{
	struct homes_noted noted;
	int r = 0;

	while (r == 0 && homes_note(ls->homes, ls->now, &noted) > 0)
		for (uint32_t n = 0; n < ls->w->nr && noted.nr_twice > 0 && r == 0; n++)
			r = send_twice_if_many(ls, &noted, n);
	return r;
}

int lookups_note(struct lookups *ls, uint64_t now_ns)
{
	return homes_due(ls->homes, now_ns) ? note_all(ls) : 0;
}

static int announce_to(struct lookups *ls, uint32_t home, uint64_t round, const uint8_t *fps, size_t len)
{
	if (home == ls->w->rank)
		return homes_announce(ls->homes, home, fps, len, monotonic_ns());
	return len > 0 ? peers_send(ls->peers, home, PEER_ANNOUNCE, round, fps, len) : 0;
}

int lookups_announce(struct lookups *ls, uint64_t round, const struct fp *pages, uint32_t nr)
{
	_cleanup_(freep) uint32_t *order = calloc(MAX(nr, 1u), sizeof(*order));
	_cleanup_(freep) uint32_t *from = calloc(ls->w->nr + 1, sizeof(*from));
	_cleanup_(freep) uint8_t(*fps)[FP_LEN] = calloc(MAX(nr, 1u), sizeof(*fps));
	int r = 0;

	if (!order || !from || !fps)
		return -ENOMEM;
	nr = MIN(nr, LOOKUPS_MAX);
	sort_by_home(ls, pages, NULL, nr, order, from);
	for (uint32_t i = 0; i < nr; i++)
		fp_encode(pages[order[i]], fps[i]);
	for (uint32_t h = 0; h < ls->w->nr && r == 0; h++)
		r = announce_to(ls, h, round, fps[from[h]], (from[h + 1] - from[h]) * sizeof(*fps));
	ls->figures.announced += nr;
	return r;
}

/* --- asking --- */

static bool has_host(const struct lookups *ls, const struct holders *h, uint32_t node)
{
	for (uint32_t i = 0; i < h->nr; i++)
		if (ls->w->hosts[h->nodes[i]] == ls->w->hosts[node])
			return true;
	return false;
}

static int add_hit(struct lookups *ls, uint32_t node, uint32_t page)
{
	struct hit *more;

	if (ls->nr_hits == ls->size_hits) {
		more = reallocarray(ls->hits, (size_t)ls->size_hits * 2 + 256, sizeof(*more));
		if (!more)
			return -ENOMEM;
		ls->hits = more;
		ls->size_hits = ls->size_hits * 2 + 256;
	}
	ls->hits[ls->nr_hits++] = (struct hit){ node, page };
	return 0;
}

/* Adds hits for as many nodes as a page needs, on different hosts. This node is skipped: it would not offer a page that
 * it has. */
static int take_holders(struct lookups *ls, uint32_t page, const uint16_t *nodes, uint32_t nr)
{
	struct holders chosen = { 0 };
	int r = 0;

	for (uint32_t i = 0; i < nr && chosen.nr < ls->w->replicas && r == 0; i++)
		if (nodes[i] != ls->w->rank && !has_host(ls, &chosen, nodes[i])) {
			holders_add(&chosen, nodes[i]);
			r = add_hit(ls, nodes[i], page);
		}
	return r;
}

/* Looks up the pages of which this node is the home. */
static int ask_here(struct lookups *ls)
{
	int r = 0;

	for (uint32_t i = ls->from[ls->w->rank]; i < ls->from[ls->w->rank + 1] && r == 0; i++) {
		struct holders h;

		if (homes_find(ls->homes, ls->pages[ls->asked[i]], ls->now, &h))
			r = take_holders(ls, ls->asked[i], h.nodes, h.nr);
	}
	return r;
}

static int ask_home(struct lookups *ls, uint32_t home)
{
	uint32_t first = ls->from[home], nr = ls->from[home + 1] - first;
	_cleanup_(freep) struct fp *pages = calloc(MAX(nr, 1u), sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++)
		pages[i] = ls->pages[ls->asked[first + i]];
	ls->is_open[home] = true;
	ls->nr_open++;
	return send_pages(ls, home, PEER_ASK, ls->round, pages, nr);
}

static int start_finding(struct lookups *ls)
{
	int r = note_all(ls);

	if (r == 0)
		r = ask_here(ls);
	for (uint32_t h = 0; h < ls->w->nr && r == 0; h++)
		if (h != ls->w->rank && ls->from[h + 1] > ls->from[h])
			r = ask_home(ls, h);
	return r;
}

int lookups_begin(struct lookups *ls, uint64_t round, const struct fp *pages, struct holders *had, uint32_t nr)
{
	_cleanup_(freep) uint32_t *which = calloc(MAX(nr, 1u), sizeof(*which));
	uint32_t nr_asked = 0;

	assert(ls->state == IDLE);
	ls->asked = calloc(MAX(nr, 1u), sizeof(*ls->asked));
	ls->from = calloc(ls->w->nr + 1, sizeof(*ls->from));
	ls->is_open = calloc(ls->w->nr, sizeof(*ls->is_open));
	if (!which || !ls->asked || !ls->from || !ls->is_open)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr && nr_asked < LOOKUPS_MAX; i++)
		if (had[i].nr == 0)
			which[nr_asked++] = i;
	sort_by_home(ls, pages, which, nr_asked, ls->asked, ls->from);
	ls->state = FINDING;
	ls->round = round;
	ls->now = (uint32_t)round;
	ls->pages = pages;
	ls->had = had;
	ls->nr = nr;
	ls->until_ns = monotonic_ns() + ls->waits->lookup_ns / 2;
	ls->figures.asked += nr_asked;
	return start_finding(ls);
}

static int handle_found(struct lookups *ls, uint32_t home, uint64_t round, const void *body, size_t len)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	uint32_t nr;
	int r;

	if (ls->state != FINDING || round != ls->round || !ls->is_open[home])
		return 0; /* late */
	ls->is_open[home] = false;
	ls->nr_open--;
	r = link_decode_decision(body, len, ls->from[home + 1] - ls->from[home], ls->w->nr, &owners, &nr);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < nr && r == 0; i++)
		r = take_holders(ls, ls->asked[ls->from[home] + owners[i].index], owners[i].owners, owners[i].nr);
	return r;
}

/* --- pinning --- */

static int by_node(const void *a, const void *b)
{
	const struct hit *x = a, *y = b;

	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	return x->page < y->page ? -1 : x->page > y->page;
}

static int send_piece(struct lookups *ls, struct piece *p)
{
	_cleanup_(freep) struct fp *pages = calloc(p->nr, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->nr; i++)
		pages[i] = ls->pages[ls->hits[p->from + i].page];
	p->number = ++ls->number;
	return send_pages(ls, p->node, PEER_PIN, p->number, pages, p->nr);
}

static int start_pinning(struct lookups *ls)
{
	int r = 0;

	ls->state = PINNING;
	ls->until_ns = monotonic_ns() + ls->waits->lookup_ns / 2;
	ls->nr_open = 0;
	if (ls->nr_hits == 0)
		return 0;
	qsort(ls->hits, ls->nr_hits, sizeof(*ls->hits), by_node);
	ls->pieces = calloc(ls->nr_hits, sizeof(*ls->pieces));
	if (!ls->pieces)
		return -ENOMEM;
	for (uint32_t i = 0; i < ls->nr_hits && r == 0;) {
		struct piece *p = &ls->pieces[ls->nr_pieces++];

		*p = (struct piece){ .node = ls->hits[i].node, .from = i };
		while (i < ls->nr_hits && ls->hits[i].node == p->node && p->nr < LINK_CHUNKS_MAX) {
			i++;
			p->nr++;
		}
		ls->nr_open++;
		r = send_piece(ls, p);
	}
	return r;
}

static int handle_pinned(struct lookups *ls, uint32_t node, uint64_t number, const void *body, size_t len)
{
	const uint8_t *pinned;

	for (struct piece *p = ls->pieces; p < ls->pieces + ls->nr_pieces; p++) {
		if (p->number != number || p->node != node || p->is_done)
			continue;
		if (link_decode_pinned(body, len, p->nr, &pinned) < 0)
			return -EBADMSG;
		p->is_done = true;
		ls->nr_open--;
		for (uint32_t i = 0; i < p->nr; i++) {
			struct holders *h = &ls->had[ls->hits[p->from + i].page];

			if (!pinned[i])
				continue;
			ls->figures.found += h->nr == 0;
			holders_add(h, (uint16_t)node);
		}
		return 0;
	}
	return 0; /* late */
}

int lookups_progress(struct lookups *ls, uint64_t now_ns)
{
	int r = 0;

	if (ls->state == FINDING && (ls->nr_open == 0 || now_ns >= ls->until_ns))
		r = start_pinning(ls);
	if (r < 0 || ls->state == FINDING || (ls->state == PINNING && ls->nr_open > 0 && now_ns < ls->until_ns))
		return r;
	lookups_stop(ls);
	return 1;
}

/* --- for other nodes --- */

static int handle_ask(struct lookups *ls, uint32_t from, uint64_t round, const void *body, size_t len)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *pages = NULL;
	uint32_t nr, nr_found = 0;
	int r = link_decode_offer(body, len, &pages, &nr);

	if (r < 0)
		return r;
	if (nr > LOOKUPS_MAX)
		return -EBADMSG;
	owners = calloc(MAX(nr, 1u), sizeof(*owners));
	if (!owners)
		return -ENOMEM;
	r = note_all(ls);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < nr; i++) {
		struct holders h;

		if (!homes_find(ls->homes, pages[i], ls->now, &h))
			continue;
		owners[nr_found] = (struct link_owners){ .index = i, .nr = h.nr };
		memcpy(owners[nr_found++].owners, h.nodes, sizeof(h.nodes));
	}
	link_encode_decision(round, owners, nr_found, &b);
	return send_body(ls, from, PEER_FOUND, round, &b);
}

static int handle_announce(struct lookups *ls, uint32_t from, const void *body, size_t len)
{
	uint64_t now_ns = monotonic_ns();
	int r = len > (size_t)LOOKUPS_MAX * FP_LEN ? -EBADMSG : homes_announce(ls->homes, from, body, len, now_ns);

	return r < 0 ? r : lookups_note(ls, now_ns); /* notes now if too much is queued */
}

/* Drops requests that the daemon has not answered in time: the requesting node has continued without it. */
static void drop_late(struct lookups *ls)
{
	uint64_t now = monotonic_ns();

	for (struct pin **at = &ls->pins; *at;) {
		struct pin *l = *at;

		if (now < l->until_ns) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		free(l);
		ls->nr_pins--;
	}
}

static int handle_pin(struct lookups *ls, uint32_t from, uint64_t number, const void *body, size_t len)
{
	_cleanup_(freep) struct fp *pages = NULL;
	struct pin *l;
	uint32_t nr;
	int r = link_decode_pin(body, len, &pages, &nr);

	if (r < 0)
		return r;
	drop_late(ls);
	if (ls->daemon->fd < 0 || ls->nr_pins >= PINS_MAX)
		return 0;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	*l = (struct pin){ .number = ++ls->number,
			    .from = from,
			    .peer_number = number,
			    .nr = nr,
			    .until_ns = monotonic_ns() + ls->waits->lookup_ns,
			    .next = ls->pins };
	ls->pins = l;
	ls->nr_pins++;
	link_encode_pin(l->number, pages, nr, &ls->daemon->out);
	return 0;
}

int lookups_pinned(struct lookups *ls, uint64_t number, const void *body, size_t len)
{
	for (struct pin **at = &ls->pins; *at; at = &(*at)->next) {
		struct pin *l = *at;
		const uint8_t *pinned;
		int r;

		if (l->number != number)
			continue;
		r = link_decode_pinned(body, len, l->nr, &pinned);
		if (r < 0)
			return r;
		for (uint32_t i = 0; i < l->nr; i++)
			ls->figures.pinned += pinned[i];
		r = peers_send(ls->peers, l->from, PEER_PINNED, l->peer_number, body, len);
		*at = l->next;
		ls->nr_pins--;
		free(l);
		return r;
	}
	return number > ls->number ? -EBADMSG : 0; /* late */
}

int lookups_receive(struct lookups *ls, const struct peer_header *h, const void *body, size_t len)
{
	switch (h->type) {
	case PEER_ASK:
		return handle_ask(ls, h->from, h->number, body, len);
	case PEER_FOUND:
		return handle_found(ls, h->from, h->number, body, len);
	case PEER_ANNOUNCE:
		return handle_announce(ls, h->from, body, len);
	case PEER_TWICE:
		send_shared(ls, h->number);
		return 0;
	case PEER_PIN:
		return handle_pin(ls, h->from, h->number, body, len);
	case PEER_PINNED:
		return handle_pinned(ls, h->from, h->number, body, len);
	default:
		return -EBADMSG;
	}
}

const struct lookups_figures *lookups_figures(struct lookups *ls)
{
	ls->figures.known = homes_nr(ls->homes);
	return &ls->figures;
}
