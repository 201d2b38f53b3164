/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/fetches.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define FETCH_BYTES_MAX ((uint64_t)64 << 20) /* of started fetches; a single one may be larger */
#define FETCHES_MAX 1024u /* including queued ones; excess ones are answered without chunks */
#define ASK_BYTES_MAX (2u << 20) /* small enough to overlap disk reads, network and processing */
#define ASKS_MAX 4u /* per node at once: the timeout counts for these only, not for queued ones */
#define UNSENT_MAX ((size_t)32 << 20) /* bytes that the daemon has not read yet */
#define NO_NODE UINT32_MAX

/* A requested chunk. */
struct item {
	uint32_t candidate; /* next one: owners, then all others; then the unresponsive ones likewise */
	uint32_t rank; /* of the candidate; NO_NODE: no more candidates */
	uint32_t owners[LINK_OWNERS_MAX], nr_owners; /* ranks */
	bool is_asked; /* a request is in progress */
};

struct fetch {
	uint64_t number;
	uint64_t until_ns;
	struct link_want *wants;
	struct item *items;
	const void **chunks; /* point into `messages`; NULL: missing */
	uint32_t nr, nr_open; /* nr_open: missing chunks with candidates left */
	uint64_t bytes;
	bool is_started;
	bool has_unasked; /* some chunks can be requested now */
	bool *late; /* by rank: unresponsive when the fetch started */
	struct message *messages;
	uint32_t nr_messages;
	struct fetch *next;
};

/* A request for some chunks of a fetch to one node. */
struct ask {
	uint64_t number;
	uint32_t rank;
	uint64_t until_ns;
	struct fetch *fetch;
	uint32_t *which, nr; /* indices of items of the fetch */
	struct ask *next;
};

struct fetches {
	const struct world *w;
	struct peers *peers;
	struct link *daemon;
	const struct arena *arena;
	const struct waits *waits;
	struct fetches_figures figures;
	struct fetch *first, **end; /* in order of arrival */
	struct fetch *untaken; /* answers in the arena that the daemon has not taken yet */
	uint32_t nr;
	uint64_t started_bytes;
	struct ask *asks;
	uint8_t *nr_asks; /* by rank: number of `asks` */
	bool *late; /* by rank: the node or its daemon has missed a timeout, and sent no chunks since */
	bool may_ask; /* requests have ended since the last fetches_progress() */
	uint64_t number; /* of the last ask */
};

int fetches_new(const struct world *w, struct peers *p, struct link *daemon, const struct arena *arena,
		const struct waits *waits, struct fetches **ret)
{
	struct fetches *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return -ENOMEM;
	*fs = (struct fetches){ .w = w, .peers = p, .daemon = daemon, .arena = arena, .waits = waits };
	fs->end = &fs->first;
	fs->nr_asks = calloc(w->nr, sizeof(*fs->nr_asks));
	fs->late = calloc(w->nr, sizeof(*fs->late));
	if (!fs->nr_asks || !fs->late) {
		fetches_free(fs);
		return -ENOMEM;
	}
	*ret = fs;
	return 0;
}

static void fetch_free(struct fetch *f)
{
	if (!f)
		return;
	for (uint32_t i = 0; i < f->nr_messages; i++)
		message_release(&f->messages[i]);
	free(f->messages);
	free(f->wants);
	free(f->items);
	free(f->chunks);
	free(f->late);
	free(f);
}

static void fetch_free_all(struct fetch *f)
{
	while (f) {
		struct fetch *next = f->next;

		fetch_free(f);
		f = next;
	}
}

static void fetch_freep(struct fetch **f)
{
	fetch_free(*f);
}

static void ask_free(struct ask *a)
{
	free(a->which);
	free(a);
}

/* Removes the request at *at. */
static struct ask *unlink_ask(struct fetches *fs, struct ask **at)
{
	struct ask *a = *at;

	*at = a->next;
	fs->nr_asks[a->rank]--;
	fs->may_ask = true;
	return a;
}

void fetches_free(struct fetches *fs)
{
	if (!fs)
		return;
	while (fs->asks)
		ask_free(unlink_ask(fs, &fs->asks));
	fetch_free_all(fs->first);
	fetch_free_all(fs->untaken);
	free(fs->nr_asks);
	free(fs->late);
	free(fs);
}

/* --- candidates --- */

static bool is_owner(const struct item *it, uint32_t rank, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (it->owners[i] == rank)
			return true;
	return false;
}

/*
 * Candidates are the owners, and then all other ranks, beginning with the one after this node. Nodes that were
 * unresponsive when the fetch started come last: otherwise each request would wait for them.
 */
static void find_candidate(const struct world *w, const bool *late, struct item *it)
{
	uint32_t nr = it->nr_owners + w->nr;

	for (it->rank = NO_NODE; it->rank == NO_NODE && it->candidate < 2 * nr; it->candidate++) {
		uint32_t at = it->candidate % nr;
		bool among_owners = at < it->nr_owners;
		uint32_t rank = among_owners ? it->owners[at] :
					       (uint32_t)(((uint64_t)w->rank + 1 + at - it->nr_owners) % w->nr);

		if (rank != w->rank && late[rank] == (it->candidate >= nr) &&
		    !is_owner(it, rank, among_owners ? at : it->nr_owners))
			it->rank = rank;
	}
}

/* Moves on to the next candidate, if there is one. */
static void next_candidate(const struct world *w, struct fetch *f, uint32_t i)
{
	struct item *it = &f->items[i];

	it->is_asked = false;
	find_candidate(w, f->late, it);
	if (it->rank == NO_NODE)
		f->nr_open--;
	else
		f->has_unasked = true;
}

static int fetch_new(const struct fetches *fs, uint64_t number, const void *body, size_t len, struct fetch **ret)
{
	_cleanup_(fetch_freep) struct fetch *f = calloc(1, sizeof(*f));
	const uint8_t(*ids)[16];
	uint32_t nr_nodes;
	int r;

	if (!f)
		return -ENOMEM;
	r = link_decode_fetch(body, len, &ids, &nr_nodes, &f->wants, &f->nr);
	if (r < 0)
		return r;
	f->items = calloc(MAX(f->nr, UINT32_C(1)), sizeof(*f->items));
	f->chunks = calloc(MAX(f->nr, UINT32_C(1)), sizeof(*f->chunks));
	f->late = malloc(fs->w->nr * sizeof(*f->late));
	if (!f->items || !f->chunks || !f->late)
		return -ENOMEM;
	f->number = number;
	f->until_ns = monotonic_ns() + fs->waits->fetch_ns;
	f->nr_open = f->nr;
	for (uint32_t i = 0; i < f->nr; i++) {
		struct item *it = &f->items[i];

		f->bytes += f->wants[i].len;
		for (uint32_t k = 0; k < f->wants[i].nr_owners; k++)
			it->nr_owners +=
				(uint32_t)world_find(fs->w, ids[f->wants[i].owners[k]], &it->owners[it->nr_owners]);
	}
	*ret = TAKE(f);
	return 0;
}

/* --- asking --- */

static int send_ask(struct fetches *fs, const struct ask *a)
{
	_cleanup_(freep) struct link_want *wants = calloc(a->nr, sizeof(*wants));
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	if (!wants)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->nr; i++)
		wants[i] = a->fetch->wants[a->which[i]];
	link_encode_get(a->number, wants, a->nr, &b);
	if (buf_error(&b) < 0)
		return -ENOMEM;
	fs->figures.asked++;
	return peers_send(fs->peers, a->rank, PEER_GET, a->number, b.data + sizeof(struct link_header_wire),
			  b.len - sizeof(struct link_header_wire));
}

/* Requests as many chunks of the candidate of `first`, from `first` on, as fit in one message. */
static int ask_node(struct fetches *fs, struct fetch *f, uint32_t first, uint64_t now_ns)
{
	struct ask *a = calloc(1, sizeof(*a));
	uint64_t bytes = 0;
	int r;

	if (!a)
		return -ENOMEM;
	*a = (struct ask){ .number = ++fs->number, .rank = f->items[first].rank, .fetch = f };
	a->until_ns = now_ns + fs->waits->ask_ns;
	a->which = calloc(f->nr - first, sizeof(*a->which));
	if (!a->which) {
		free(a);
		return -ENOMEM;
	}
	for (uint32_t i = first; i < f->nr && bytes < ASK_BYTES_MAX; i++) {
		if (f->items[i].rank != a->rank || f->items[i].is_asked || f->chunks[i])
			continue;
		f->items[i].is_asked = true;
		a->which[a->nr++] = i;
		bytes += f->wants[i].len;
	}
	r = send_ask(fs, a);
	if (r < 0) {
		ask_free(a);
		return r;
	}
	a->next = fs->asks;
	fs->asks = a;
	fs->nr_asks[a->rank]++;
	return 0;
}

/* Sends as many requests as ASKS_MAX permits. */
static int ask_all(struct fetches *fs, struct fetch *f, uint64_t now_ns)
{
	bool has_unasked = false;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < f->nr; i++) {
		const struct item *it = &f->items[i];

		if (f->chunks[i] || it->is_asked || it->rank == NO_NODE)
			continue;
		if (fs->nr_asks[it->rank] < ASKS_MAX)
			r = ask_node(fs, f, i, now_ns);
		else
			has_unasked = true;
	}
	f->has_unasked = has_unasked;
	return r;
}

/* --- answers --- */

static struct ask *take_ask(struct fetches *fs, uint64_t number, uint32_t rank)
{
	for (struct ask **at = &fs->asks; *at; at = &(*at)->next)
		if ((*at)->number == number && (*at)->rank == rank)
			return unlink_ask(fs, at);
	return NULL;
}

/* Keeps the message: its chunks are not copied. */
static int keep_message(struct fetch *f, struct message *message)
{
	struct message *more = realloc(f->messages, (f->nr_messages + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	f->messages = more;
	message_move(&f->messages[f->nr_messages++], message);
	return 0;
}

static int take_chunks(struct fetches *fs, const struct ask *a, struct message *message)
{
	const uint8_t *body = message->data + sizeof(struct peer_header_wire);
	_cleanup_(freep) struct link_want *wants = calloc(a->nr, sizeof(*wants));
	_cleanup_(freep) const void **chunks = calloc(a->nr, sizeof(*chunks));
	struct fetch *f = a->fetch;
	int r;

	if (!wants || !chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->nr; i++)
		wants[i] = f->wants[a->which[i]];
	r = link_decode_chunks(body, message->len - sizeof(struct peer_header_wire), wants, a->nr, chunks);
	if (r == 0)
		r = keep_message(f, message);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < a->nr; i++) {
		f->chunks[a->which[i]] = chunks[i];
		f->nr_open -= chunks[i] != NULL;
		fs->figures.chunks += chunks[i] != NULL;
		fs->figures.bytes += chunks[i] ? wants[i].len : 0;
	}
	return 0;
}

/* Missing chunks are requested from the next candidate. */
static void finish_ask(struct fetches *fs, struct ask *a)
{
	for (uint32_t i = 0; i < a->nr; i++)
		if (!a->fetch->chunks[a->which[i]])
			next_candidate(fs->w, a->fetch, a->which[i]);
	ask_free(a);
}

/* An agent with an unresponsive daemon answers without chunks, shortly before the timeout (serve.c). */
static bool is_for_silent_daemon(const struct fetches *fs, const struct ask *a, uint64_t now_ns)
{
	for (uint32_t i = 0; i < a->nr; i++)
		if (a->fetch->chunks[a->which[i]])
			return false;
	return now_ns + fs->waits->ask_ns / 2 >= a->until_ns;
}

int fetches_chunks(struct fetches *fs, uint32_t from, uint64_t number, uint64_t now_ns, struct message *message)
{
	struct ask *a = take_ask(fs, number, from);
	int r;

	fs->late[from] = false;
	if (!a)
		return 0; /* late */
	r = take_chunks(fs, a, message);
	fs->late[from] = r == 0 && is_for_silent_daemon(fs, a, now_ns);
	finish_ask(fs, a);
	return r;
}

/* --- to and from the daemon --- */

int fetches_fetch(struct fetches *fs, uint64_t number, const void *body, size_t len)
{
	struct fetch *f;
	int r = fetch_new(fs, number, body, len, &f);

	if (r < 0)
		return r;
	if (fs->nr >= FETCHES_MAX) {
		log_warning("%u requests for chunks are queued: refused another one", FETCHES_MAX);
		f->nr_open = 0;
	}
	*fs->end = f;
	fs->end = &f->next;
	fs->nr++;
	return 0;
}

static void drop_asks_of(struct fetches *fs, const struct fetch *f)
{
	struct ask **at = &fs->asks;

	while (*at)
		if ((*at)->fetch == f)
			ask_free(unlink_ask(fs, at));
		else
			at = &(*at)->next;
}

static bool lies_in_arena(const struct fetch *f)
{
	for (uint32_t i = 0; i < f->nr_messages; i++)
		if (!f->messages[i].arena)
			return false;
	return f->nr_messages > 0;
}

/* Frees it after its bytes were sent; keeps it if only its places were sent. */
static void finish_fetch(struct fetches *fs, struct fetch *f)
{
	if (lies_in_arena(f)) {
		link_encode_places(f->number, arena_data(fs->arena), f->chunks, f->nr, &fs->daemon->out);
		f->next = fs->untaken;
		fs->untaken = f;
	} else {
		link_encode_chunks(f->number, f->wants, f->chunks, f->nr, &fs->daemon->out);
		fs->started_bytes -= f->is_started ? f->bytes : 0;
		fetch_free(f);
	}
}

int fetches_taken(struct fetches *fs, uint64_t number)
{
	for (struct fetch **at = &fs->untaken; *at; at = &(*at)->next) {
		struct fetch *f = *at;

		if (f->number != number)
			continue;
		*at = f->next;
		fs->started_bytes -= f->is_started ? f->bytes : 0;
		fetch_free(f);
		return 0;
	}
	return -EBADMSG;
}

/* Ends the fetch at *at, complete or not. */
static void answer_fetch(struct fetches *fs, struct fetch **at)
{
	struct fetch *f = *at;

	for (uint32_t i = 0; i < f->nr; i++)
		fs->figures.missing += f->chunks[i] == NULL;
	drop_asks_of(fs, f);
	*at = f->next;
	if (fs->end == &f->next)
		fs->end = at;
	fs->nr--;
	finish_fetch(fs, f);
}

static bool may_start(const struct fetches *fs, const struct fetch *f)
{
	return (fs->started_bytes == 0 || fs->started_bytes + f->bytes <= FETCH_BYTES_MAX) &&
	       link_unsent(fs->daemon) < UNSENT_MAX;
}

/* Ends requests that have timed out. */
static bool expire_asks(struct fetches *fs, uint64_t now_ns)
{
	struct ask **at = &fs->asks;
	bool any = false;

	while (*at) {
		if (now_ns < (*at)->until_ns) {
			at = &(*at)->next;
			continue;
		}
		log_debug("node %s: no answer to a request for %" PRIu32 " chunks", fs->w->nodes[(*at)->rank].name,
			  (*at)->nr);
		fs->late[(*at)->rank] = true;
		finish_ask(fs, unlink_ask(fs, at));
		any = true;
	}
	return any;
}

static void start_fetch(struct fetches *fs, struct fetch *f)
{
	f->is_started = true;
	fs->started_bytes += f->bytes;
	memcpy(f->late, fs->late, fs->w->nr * sizeof(*f->late));
	for (uint32_t i = 0; i < f->nr && f->nr_open > 0; i++)
		next_candidate(fs->w, f, i);
}

int fetches_progress(struct fetches *fs, uint64_t now_ns)
{
	struct fetch **at = &fs->first;
	int done = expire_asks(fs, now_ns), r = 0;
	bool may_ask = fs->may_ask;

	fs->may_ask = false; /* requests that end from here on count for the next call */
	while (*at && r == 0) {
		struct fetch *f = *at;

		if (!f->is_started && !may_start(fs, f) && now_ns < f->until_ns)
			break; /* first come, first served */
		if (!f->is_started) {
			start_fetch(fs, f);
			may_ask = true;
		}
		if (f->nr_open == 0 || now_ns >= f->until_ns) {
			answer_fetch(fs, at);
			done = 1;
			continue;
		}
		if (f->has_unasked && may_ask)
			r = ask_all(fs, f, now_ns);
		at = &f->next;
	}
	return r < 0 ? r : done;
}

bool fetches_waiting(const struct fetches *fs)
{
	return fs->asks != NULL;
}

const struct fetches_figures *fetches_figures(const struct fetches *fs)
{
	return &fs->figures;
}
