/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/replica/replica_send.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/seal/seal_catalog.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/gather.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"
#include "store/catalog/catalog_format.h"

#define BATCH 2048u /* chunks queried at once */
#define IN_FLIGHT 4u /* messages with chunks */
#define CATALOG_CHUNK ((size_t)64 << 10)
#define NO_HOST UINT32_MAX

static_assert(BATCH <= LINK_CHUNKS_MAX && CATALOG_CHUNK * BATCH > LINK_PUT_BYTES_MAX, "as messages are");

/*
 * Uses of a catalog: send it and the chunks it lists; the same, but the receiver replaces this node; send the catalog
 * only; send nothing, and pin the chunks.
 */
enum purpose { CHUNKS_TOO, TO_GATHERER, CATALOG_ONLY, PIN_ONLY };

struct sending {
	const struct replica_target *target;
	enum purpose purpose;
	struct replica_sent *figures;
	struct link_replica *replica;

	/* Parser of the catalog. */
	struct catalog_reader reader;
	struct buf unread; /* less than a record */
	struct cluster_want wants[BATCH]; /* chunks not queried yet */
	size_t nr;
	uint32_t room; /* size of copy->chunks */

	struct buf catalog; /* less than a chunk of it */

	/* Messages with chunks in flight, oldest first. */
	struct service_call *calls[IN_FLIGHT];
	uint32_t call_chunks[IN_FLIGHT];
	unsigned first_call, nr_calls;
};

/* --- messages --- */

static const uint8_t *receiver(const struct sending *g)
{
	return g->target->world->nodes[g->target->to].id;
}

static int call(const struct replica_target *target, struct service_call *c, struct buf *message, struct buf *ret)
{
	int r = service_call_send(c, message);

	return r < 0 ? r : service_call_wait(c, target->goes_on, target->userdata, ret);
}

/* Wait until all `nr` chunks of a message are stored. */
static int await_kept(struct sending *g, struct service_call *c, uint32_t nr)
{
	_cleanup_(buf_release) struct buf answer = BUF_EMPTY;
	const uint8_t *kept;
	int error, r = service_call_wait(c, g->target->goes_on, g->target->userdata, &answer);

	if (r == 0)
		r = link_decode_kept(answer.data, answer.len, nr, &error, &kept);
	if (r < 0 || error < 0)
		return r < 0 ? r : error;
	for (uint32_t i = 0; i < nr; i++)
		if (kept[i] != LINK_IS_HERE)
			return -EPROTO;
	return 0;
}

static int await_oldest(struct sending *g)
{
	struct service_call *c = g->calls[g->first_call];
	int r = await_kept(g, c, g->call_chunks[g->first_call]);

	service_call_free(c);
	g->first_call = (g->first_call + 1) % IN_FLIGHT;
	g->nr_calls--;
	return r;
}

/* Send chunks with their bytes. */
static int put_chunks(struct sending *g, const struct link_want *wants, const void *const *chunks, uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	unsigned last;
	int r = g->nr_calls == IN_FLIGHT ? await_oldest(g) : 0;

	if (r < 0)
		return r;
	last = (g->first_call + g->nr_calls) % IN_FLIGHT;
	r = service_call_new(g->target->service, LINK_KEPT, &g->calls[last]);
	if (r < 0)
		return r;
	g->call_chunks[last] = nr;
	link_encode_put(service_call_number(g->calls[last]), receiver(g), wants, chunks, nr, &b);
	r = service_call_send(g->calls[last], &b);
	if (r < 0) {
		service_call_free(g->calls[last]);
		return r;
	}
	g->nr_calls++;
	for (uint32_t i = 0; i < nr; i++)
		g->figures->bytes += wants[i].len;
	g->figures->chunks += nr;
	return 0;
}

/* --- chunks of files --- */

/* Is it a connected node other than this one and, unless the purpose is PIN_ONLY, the receiver? */
static bool is_live(const struct sending *g, const uint8_t id[CLUSTER_ID_LEN], uint32_t *ret)
{
	return service_world_find(g->target->world, id, ret) && *ret != g->target->world->self &&
	       (g->purpose == PIN_ONLY || *ret != g->target->to);
}

/* Number of hosts that store it, except `but`: nodes of one host are lost together. */
static unsigned nr_live_hosts(const struct sending *g, const struct cluster_want *w, uint32_t but)
{
	uint32_t hosts[CLUSTER_OWNERS_MAX], node;
	unsigned nr = 0, k;

	for (uint32_t i = 0; i < w->nr_owners; i++) {
		if (!is_live(g, w->owners[i], &node) || g->target->world->hosts[node] == but)
			continue;
		for (k = 0; k < nr && hosts[k] != g->target->world->hosts[node]; k++)
			;
		if (k == nr)
			hosts[nr++] = g->target->world->hosts[node];
	}
	return nr;
}

static bool is_to_be_sent(const struct sending *g, const struct cluster_want *w, uint8_t kept)
{
	if (kept == LINK_IS_HERE)
		return false;
	return w->got || kept == LINK_NOT_KEPT || nr_live_hosts(g, w, NO_HOST) < 2;
}

/*
 * Must a remote chunk be stored here too? Yes if it is only known to be on the receiver's host. For PIN_ONLY: yes if
 * the loss of one host would lose it, since no parity covers it. For TO_GATHERER: no.
 */
static bool is_to_be_kept(const struct sending *g, const struct cluster_want *w)
{
	if (w->got || g->purpose == TO_GATHERER)
		return false;
	if (g->purpose == PIN_ONLY)
		return nr_live_hosts(g, w, NO_HOST) < 2;
	return nr_live_hosts(g, w, g->target->world->hosts[g->target->to]) == 0;
}

/* Read their bytes into wants[].buf. */
static int read_chunks(struct sending *g, struct cluster_want *wants, size_t nr)
{
	const struct cluster_calls *calls = service_calls(g->target->service);
	int r = gather_chunks(g->target->fs, calls->fetch, calls->userdata, wants, nr);

	for (size_t i = 0; r == 0 && i < nr; i++)
		if (!wants[i].got)
			r = log_errno(-EIO, "%s: cannot read a chunk to replicate", g->replica->path);
	return r;
}

/* Send as many of `wants` as fit into one message. */
static int send_some(struct sending *g, struct cluster_want *wants, size_t nr, size_t *ret)
{
	_cleanup_(freep) struct link_want *v = calloc(nr, sizeof(*v));
	_cleanup_(freep) const void **chunks = calloc(nr, sizeof(*chunks));
	_cleanup_(freep) uint8_t *bytes = malloc(LINK_PUT_BYTES_MAX);
	size_t n = 0, len = 0;
	int r;

	if (!v || !chunks || !bytes)
		return -ENOMEM;
	for (; n < nr && len + wants[n].len <= LINK_PUT_BYTES_MAX; n++) {
		v[n] = (struct link_want){ .fp = wants[n].fp, .len = wants[n].len };
		chunks[n] = wants[n].buf = bytes + len;
		len += wants[n].len;
	}
	r = read_chunks(g, wants, n);
	if (r == 0)
		r = put_chunks(g, v, chunks, (uint32_t)n);
	*ret = n;
	return r;
}

/* Store them here too. */
static int keep_here(struct sending *g, struct cluster_want *wants, size_t nr, size_t *ret)
{
	_cleanup_(freep) struct cluster_chunk *chunks = calloc(nr, sizeof(*chunks));
	_cleanup_(freep) uint8_t *bytes = malloc(LINK_PUT_BYTES_MAX);
	size_t n = 0, len = 0;
	int r;

	if (!chunks || !bytes)
		return -ENOMEM;
	for (; n < nr && len + wants[n].len <= LINK_PUT_BYTES_MAX; n++) {
		wants[n].buf = bytes + len;
		chunks[n] = (struct cluster_chunk){ wants[n].fp, wants[n].len, wants[n].buf };
		len += wants[n].len;
	}
	r = read_chunks(g, wants, n);
	if (r == 0)
		r = engine_cluster_keep(g->target->fs->engine, chunks, n);
	*ret = n;
	return r;
}

static int keep_what_is_missing(struct sending *g)
{
	_cleanup_(freep) struct cluster_want *mine = calloc(g->nr, sizeof(*mine));
	size_t n = 0, done;
	int r = 0;

	if (!mine)
		return -ENOMEM;
	for (size_t i = 0; i < g->nr; i++)
		if (is_to_be_kept(g, &g->wants[i]))
			mine[n++] = g->wants[i];
	for (size_t i = 0; r == 0 && i < n; i += done)
		r = keep_here(g, mine + i, n - i, &done);
	return r;
}

int replica_query_chunks(const struct replica_target *target, const uint8_t *node, const struct cluster_want *wants,
			 size_t nr, uint8_t *ret_kept)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, answer = BUF_EMPTY;
	_cleanup_(freep) struct link_want *v = calloc(nr, sizeof(*v));
	_cleanup_(freep) const void **none = calloc(nr, sizeof(*none));
	struct service_call *c = NULL;
	const uint8_t *kept;
	int error, r = v && none ? service_call_new(target->service, LINK_KEPT, &c) : -ENOMEM;

	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++)
		v[i] = (struct link_want){ .fp = wants[i].fp, .len = wants[i].len };
	link_encode_put(service_call_number(c), node, v, none, (uint32_t)nr, &b);
	r = call(target, c, &b, &answer);
	service_call_free(c);
	if (r == 0)
		r = link_decode_kept(answer.data, answer.len, (uint32_t)nr, &error, &kept);
	if (r < 0 || error < 0)
		return r < 0 ? r : error;
	memcpy(ret_kept, kept, nr);
	return 0;
}

/* Does only an unverified location, besides the receiver, have it? */
static bool is_unconfirmed(const struct sending *g, const struct cluster_want *w)
{
	return !w->got && !cluster_owners_are_confirmed(w) && nr_live_hosts(g, w, NO_HOST) > 0;
}

/*
 * Query a node about all chunks it is recorded to have. If it does not confirm a chunk, it is no longer considered an
 * owner.
 */
static int ask_owner(struct sending *g, const uint8_t *owner, bool *is_asked)
{
	_cleanup_(freep) struct cluster_want *v = calloc(g->nr, sizeof(*v));
	_cleanup_(freep) size_t *which = calloc(g->nr, sizeof(*which));
	_cleanup_(freep) uint8_t *kept = calloc(g->nr, 1);
	size_t n = 0;
	int r;

	if (!v || !which || !kept)
		return -ENOMEM;
	for (size_t i = 0; i < g->nr; i++)
		if (is_unconfirmed(g, &g->wants[i]) && memcmp(g->wants[i].owners[0], owner, CLUSTER_ID_LEN) == 0) {
			v[n] = g->wants[i];
			which[n++] = i;
			is_asked[i] = true;
		}
	r = replica_query_chunks(g->target, owner, v, n, kept);
	for (size_t i = 0; i < n; i++)
		if (kept[i] != LINK_IS_HERE)
			g->wants[which[i]].nr_owners = 0;
	return r == -ENOTCONN || r == -ECANCELED ? r : 0;
}

static int ask_owners(struct sending *g)
{
	_cleanup_(freep) bool *is_asked = calloc(g->nr, sizeof(*is_asked));
	int r = is_asked ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < g->nr; i++)
		if (!is_asked[i] && is_unconfirmed(g, &g->wants[i])) {
			uint8_t owner[CLUSTER_ID_LEN];

			memcpy(owner, g->wants[i].owners[0], sizeof(owner));
			r = ask_owner(g, owner, is_asked);
		}
	return r;
}

static int by_fp(const void *a, const void *b)
{
	return fp_compare(((const struct cluster_want *)a)->fp, ((const struct cluster_want *)b)->fp);
}

static void drop_duplicates(struct sending *g)
{
	size_t n = 0;

	qsort(g->wants, g->nr, sizeof(*g->wants), by_fp);
	for (size_t i = 0; i < g->nr; i++)
		if (n == 0 || by_fp(&g->wants[n - 1], &g->wants[i]) != 0)
			g->wants[n++] = g->wants[i];
	g->nr = n;
}

/* Pin the chunks that are here; store remote ones here too unless two hosts have them. */
static int pin_chunks(struct sending *g)
{
	_cleanup_(freep) struct fp *fps = calloc(MAX(g->nr, (size_t)1), sizeof(*fps));
	int r = fps ? engine_cluster_locate(g->target->fs->engine, g->wants, g->nr) : -ENOMEM;
	size_t n = 0;

	if (r == 0)
		r = keep_what_is_missing(g);
	for (size_t i = 0; r == 0 && i < g->nr; i++)
		if (g->wants[i].got)
			fps[n++] = g->wants[i].fp;
	if (r == 0)
		r = engine_cluster_pin_all(g->target->fs->engine, fps, n);
	g->nr = 0;
	return r;
}

/* Handle the current batch of chunks. */
static int process_batch(struct sending *g)
{
	_cleanup_(freep) uint8_t *kept = NULL;
	size_t n = 0, sent;
	int r;

	drop_duplicates(g);
	if (g->nr == 0)
		return 0;
	if (g->purpose == PIN_ONLY)
		return pin_chunks(g);
	kept = calloc(g->nr, 1);
	r = kept ? replica_query_chunks(g->target, receiver(g), g->wants, g->nr, kept) : -ENOMEM;
	if (r == 0)
		r = engine_cluster_locate(g->target->fs->engine, g->wants, g->nr);
	g->figures->asked += g->nr;
	if (r == 0)
		r = ask_owners(g);
	if (r == 0)
		r = keep_what_is_missing(g);
	for (size_t i = 0; r == 0 && i < g->nr; i++)
		if (is_to_be_sent(g, &g->wants[i], kept[i]))
			g->wants[n++] = g->wants[i];
	for (size_t i = 0; r == 0 && i < n; i += sent)
		r = send_some(g, g->wants + i, n - i, &sent);
	g->nr = 0;
	return r;
}

static int gather_pieces(struct sending *g, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece piece;
	int r;

	while ((r = catalog_piece_next(&c, &piece)) > 0) {
		if (fp_is_none(piece.fp) || (g->nr > 0 && fp_equal(g->wants[g->nr - 1].fp, piece.fp)))
			continue;
		if (g->nr == BATCH)
			r = process_batch(g);
		if (r < 0)
			return r;
		g->wants[g->nr++] = (struct cluster_want){ .fp = piece.fp, .len = piece.chunk_len };
	}
	return r;
}

/* --- the catalog --- */

/* Send the first `len` buffered bytes of the catalog as its next chunk. */
static int put_catalog(struct sending *g, size_t len)
{
	struct link_replica *c = g->replica;
	const void *data = g->catalog.data;
	struct link_want *w;
	int r;

	if (c->nr_chunks == LINK_REPLICA_CHUNKS_MAX)
		return -E2BIG;
	if (c->nr_chunks == g->room) {
		uint32_t room = MAX(2 * g->room, 64u);
		struct link_want *more = reallocarray(c->chunks, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->chunks = more;
		g->room = room;
	}
	w = &c->chunks[c->nr_chunks++];
	*w = (struct link_want){ .fp = fp_of(g->target->fs->key, data, len), .len = (uint32_t)len };
	r = put_chunks(g, w, &data, 1);
	memmove(g->catalog.data, g->catalog.data + len, g->catalog.len - len);
	g->catalog.len -= len;
	return r;
}

/* Sink of catalog_write(): sends the bytes and extracts the chunks. */
static int send_catalog_part(void *userdata, const void *p, size_t len)
{
	struct sending *g = userdata;
	size_t at = 0, used;
	int r = 0;

	if (g->purpose != PIN_ONLY)
		buf_add(&g->catalog, p, len);
	if (g->purpose != CATALOG_ONLY)
		buf_add(&g->unread, p, len);
	if (buf_error(&g->catalog) < 0 || buf_error(&g->unread) < 0)
		return -ENOMEM;
	while (r >= 0 && g->catalog.len >= CATALOG_CHUNK)
		r = put_catalog(g, CATALOG_CHUNK);
	while (r >= 0 && g->purpose != CATALOG_ONLY) {
		struct catalog_record rec;

		r = catalog_reader_next(&g->reader, g->unread.data + at, g->unread.len - at, &used, &rec);
		if (r <= 0)
			break;
		at += used;
		r = rec.type == CATALOG_PIECES ? gather_pieces(g, &rec) : 0;
	}
	if (at > 0)
		memmove(g->unread.data, g->unread.data + at, g->unread.len - at);
	g->unread.len -= at;
	return MIN(r, 0);
}

static int send_step_message(const struct replica_target *target, struct link_replica *replica)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, answer = BUF_EMPTY;
	struct service_call *c;
	int error, r = service_call_new(target->service, LINK_REPLICATED, &c);

	if (r < 0)
		return r;
	memcpy(replica->node, target->world->nodes[target->to].id, sizeof(replica->node));
	link_encode_replica(service_call_number(c), replica, &b);
	r = call(target, c, &b, &answer);
	service_call_free(c);
	if (r == 0)
		r = link_decode_error(answer.data, answer.len, &error);
	return r < 0 ? r : error;
}

static int send_all(struct sending *g, uint64_t dir)
{
	int r = catalog_write(g->target->fs, dir, &(struct catalog_sink){ send_catalog_part, g });

	if (r == 0)
		r = process_batch(g);
	if (r == 0 && g->catalog.len > 0)
		r = put_catalog(g, g->catalog.len);
	while (r == 0 && g->nr_calls > 0)
		r = await_oldest(g);
	return r < 0 || g->purpose == PIN_ONLY ? r : send_step_message(g->target, g->replica);
}

static void sending_free(struct sending *g)
{
	while (g->nr_calls > 0) {
		service_call_free(g->calls[g->first_call]);
		g->first_call = (g->first_call + 1) % IN_FLIGHT;
		g->nr_calls--;
	}
	free(TAKE(g->replica->chunks));
	buf_release(&g->unread);
	buf_release(&g->catalog);
	free(g);
}

static int send_replica(const struct replica_target *target, uint64_t dir, enum purpose purpose,
			struct link_replica *replica, struct replica_sent *figures)
{
	struct sending *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->target = target;
	g->purpose = purpose;
	g->figures = figures;
	g->replica = replica;
	replica->chunks = NULL;
	replica->nr_chunks = 0;
	r = send_all(g, dir);
	sending_free(g);
	return r;
}

int replica_send_directory(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			   struct replica_sent *figures)
{
	replica->slot = replica->nr_slots = 0;
	return send_replica(target, dir, CHUNKS_TOO, replica, figures);
}

int replica_send_to_gatherer(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			     struct replica_sent *figures)
{
	replica->slot = replica->nr_slots = 0;
	return send_replica(target, dir, TO_GATHERER, replica, figures);
}

int replica_send_catalog(const struct replica_target *target, uint64_t dir, struct link_replica *replica,
			 struct replica_sent *figures)
{
	return send_replica(target, dir, CATALOG_ONLY, replica, figures);
}

static int send_step(const struct replica_target *target, struct link_replica *replica, enum link_replica_step step)
{
	int r;

	replica->nr_chunks = 0;
	replica->step = step;
	r = send_step_message(target, replica);
	replica->step = LINK_REPLICA_CREATE;
	return r;
}

int replica_send_cover(const struct replica_target *target, struct link_replica *replica)
{
	return send_step(target, replica, LINK_REPLICA_COVER);
}

int replica_send_settle(const struct replica_target *target, struct link_replica *replica)
{
	return send_step(target, replica, LINK_REPLICA_SETTLE);
}

int replica_pin_sources(const struct replica_target *target, uint64_t dir, struct link_replica *replica)
{
	struct replica_sent none = { 0 };
	/* they refer to chunks here */
	int r = engine_cluster_register_peers(target->fs->engine, target->world->nodes, target->world->nr);

	return r < 0 ? r : send_replica(target, dir, PIN_ONLY, replica, &none);
}

int replica_send_drop(const struct replica_target *target, const uint8_t origin[CLUSTER_ID_LEN], const char *name,
		      uint64_t ino, int64_t sealed_ns, bool abandons)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, answer = BUF_EMPTY;
	struct link_drop d = { .ino = ino, .sealed_ns = sealed_ns, .abandons = abandons };
	struct service_call *c;
	int error, r = service_call_new(target->service, LINK_DROPPED, &c);

	if (r < 0)
		return r;
	memcpy(d.node, target->world->nodes[target->to].id, sizeof(d.node));
	memcpy(d.origin, origin, sizeof(d.origin));
	memcpy(d.name, name, strnlen(name, sizeof(d.name) - 1));
	link_encode_drop(service_call_number(c), &d, &b);
	r = call(target, c, &b, &answer);
	service_call_free(c);
	if (r == 0)
		r = link_decode_error(answer.data, answer.len, &error);
	return r < 0 ? r : error;
}
