/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sending node creates a replica in three steps: it sends the chunks that are not here, then the catalog, also as
 * chunks, and then a message that describes it. Received chunks are pinned, but nothing refers to them until the
 * replica is created. If all nodes collect in between, the chunks are unreferenced and released. So all of them are
 * located again before the replica is created, and once more when it exists and refers to them. If one is missing,
 * there is no replica and the sender starts again.
 */
#include "mpi-agent/daemon/replica/replica_receive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/parity/stripes.h"
#include "mpi-agent/daemon/nodes/node_view.h"
#include "mpi-agent/wire/link_format.h"
#include "store/catalog/catalog_format.h"
#include "store/remote/cluster_calls.h"

#define LOOK_MAX 1024u /* chunks located at once */

/* --- chunks --- */

/* Is it a connected node other than the sender? */
static bool is_third_node(const uint8_t id[CLUSTER_ID_LEN], const uint8_t from[CLUSTER_ID_LEN],
			  const struct cluster_node *nodes, uint32_t nr_nodes)
{
	for (uint32_t i = 0; i < nr_nodes; i++)
		if (memcmp(nodes[i].id, id, CLUSTER_ID_LEN) == 0)
			return memcmp(id, from, CLUSTER_ID_LEN) != 0;
	return false;
}

static bool is_on_peers(const struct cluster_want *w, const uint8_t from[CLUSTER_ID_LEN],
			   const struct cluster_node *nodes, uint32_t nr_nodes)
{
	for (uint32_t i = 0; i < w->nr_owners && cluster_owners_are_confirmed(w); i++)
		if (is_third_node(w->owners[i], from, nodes, nr_nodes))
			return true;
	return false;
}

/* Store the chunks that came with their bytes. */
static int keep_chunks(struct fs *fs, const struct link_put *put, uint8_t *kept)
{
	_cleanup_(freep) struct cluster_chunk *chunks = calloc(MAX(put->nr, 1u), sizeof(*chunks));
	size_t n = 0;
	int r;

	if (!chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < put->nr; i++)
		if (put->chunks[i])
			chunks[n++] = (struct cluster_chunk){ put->wants[i].fp, put->wants[i].len, put->chunks[i] };
	r = n > 0 ? engine_cluster_keep(fs->engine, chunks, n) : 0;
	for (uint32_t i = 0; r == 0 && i < put->nr; i++)
		if (put->chunks[i])
			kept[i] = LINK_IS_HERE;
	return r;
}

/* Are the other chunks here, or on other nodes known to this store? */
static int locate_chunks(struct fs *fs, const struct link_put *put, const struct cluster_node *nodes, uint32_t nr_nodes,
			 uint8_t *kept)
{
	_cleanup_(freep) struct fp *fps = calloc(MAX(put->nr, 1u), sizeof(*fps));
	_cleanup_(freep) bool *pinned = calloc(MAX(put->nr, 1u), sizeof(*pinned));
	size_t n = 0;
	int r;

	if (!fps || !pinned)
		return -ENOMEM;
	for (uint32_t i = 0; i < put->nr; i++)
		if (!put->chunks[i])
			fps[n++] = put->wants[i].fp;
	r = n > 0 ? engine_cluster_pin(fs->engine, fps, n, pinned) : 0;
	n = 0;
	for (uint32_t i = 0; r == 0 && i < put->nr; i++) {
		struct cluster_want w = { .fp = put->wants[i].fp, .len = put->wants[i].len };

		if (put->chunks[i])
			continue;
		if (pinned[n++]) {
			kept[i] = LINK_IS_HERE;
			continue;
		}
		r = engine_cluster_locate(fs->engine, &w, 1);
		if (r == 0 && !w.got && is_on_peers(&w, put->node, nodes, nr_nodes))
			kept[i] = LINK_ON_PEERS;
	}
	return r;
}

int replica_receive_chunks(struct fs *fs, const struct link_put *put, const struct cluster_node *nodes,
			   uint32_t nr_nodes,
		uint8_t *kept)
{
	int r = engine_cluster_register_peers(fs->engine, nodes, nr_nodes);

	if (r == 0)
		r = keep_chunks(fs, put, kept);
	return r < 0 ? r : locate_chunks(fs, put, nodes, nr_nodes, kept);
}

/* --- replicas --- */

/* A catalog stored here as chunks. */
struct stored {
	struct fs *fs;
	const struct link_replica *replica;
	uint32_t next; /* index of the next chunk */
	struct buf bytes; /* bytes of the chunk before it, ... */
	size_t at; /* and the position in them */
};

static ssize_t read_stored(void *userdata, void *to, size_t len)
{
	struct stored *s = userdata;
	int r;

	if (s->at == s->bytes.len && s->next < s->replica->nr_chunks) {
		const struct link_want *w = &s->replica->chunks[s->next++];

		buf_clear(&s->bytes);
		s->at = 0;
		r = buf_reserve(&s->bytes, w->len);
		if (r == 0)
			r = engine_cluster_chunk(s->fs->engine, w->fp, w->len, s->bytes.data);
		if (r <= 0)
			return r < 0 ? r : -ESTALE;
		s->bytes.len = w->len;
	}
	len = MIN(len, s->bytes.len - s->at);
	memcpy(to, s->bytes.data + s->at, len);
	s->at += len;
	return (ssize_t)len;
}

struct locating {
	struct fs *fs;
	const struct link_replica *replica;
	const struct cluster_node *nodes;
	uint32_t nr_nodes;
	struct cluster_want wants[LOOK_MAX];
	size_t nr;
};

static int look_up_batch(struct locating *l)
{
	int r = engine_cluster_locate(l->fs->engine, l->wants, l->nr);

	for (size_t i = 0; r == 0 && i < l->nr; i++)
		if (!l->wants[i].got && !is_on_peers(&l->wants[i], l->replica->node, l->nodes, l->nr_nodes))
			r = -ESTALE;
	l->nr = 0;
	return r;
}

static int locate_pieces(struct locating *l, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;
	int r;

	while ((r = catalog_piece_next(&c, &p)) > 0) {
		if (fp_is_none(p.fp))
			continue;
		l->wants[l->nr++] = (struct cluster_want){ .fp = p.fp, .len = p.chunk_len };
		r = l->nr == LOOK_MAX ? look_up_batch(l) : 0;
		if (r < 0)
			return r;
	}
	return r;
}

/* Are all chunks here or on nodes other than the sender, so that the replica survives the loss of the sender? */
static int locate_all(struct locating *l)
{
	_cleanup_(freep) uint8_t *buf = malloc(CATALOG_RECORD_MAX + 16);
	struct stored s = { .fs = l->fs, .replica = l->replica };
	struct catalog_reader reader = { 0 };
	size_t len = 0, used;
	int r = buf ? 0 : -ENOMEM;

	while (r >= 0 && !reader.at_end) {
		struct catalog_record rec;

		r = catalog_reader_next(&reader, buf, len, &used, &rec);
		if (r > 0) {
			r = rec.type == CATALOG_PIECES ? locate_pieces(l, &rec) : 0;
			memmove(buf, buf + used, len - used);
			len -= used;
		} else if (r == 0 && !reader.at_end) {
			ssize_t n = read_stored(&s, buf + len, CATALOG_RECORD_MAX + 16 - len);

			r = n < 0 ? (int)n : n == 0 ? -EBADMSG : 0;
			len += n > 0 ? (size_t)n : 0;
		}
	}
	buf_release(&s.bytes);
	return r < 0 ? r : look_up_batch(l);
}

static int make_replica(const struct locating *l, const struct nodes_seal *seal, uint64_t *ret_top)
{
	struct stored s = { .fs = l->fs, .replica = l->replica };
	int r = -ENOTCONN; /* the sender has disconnected */

	for (uint32_t i = 0; i < l->nr_nodes && r == -ENOTCONN; i++)
		if (memcmp(l->nodes[i].id, l->replica->node, CLUSTER_ID_LEN) == 0)
			r = nodes_take(l->fs, seal, &(struct nodes_source){ read_stored, &s }, &l->nodes[i], ret_top);
	buf_release(&s.bytes);
	return r;
}

/* Find a kept replica of exactly this seal. 1/0/<0 */
static int find_replica(struct fs *fs, const struct link_replica *replica, uint64_t *ret_top, struct ns_replica *ret)
{
	int r;

	*ret_top = 0;
	while ((r = nodes_next(fs, *ret_top, ret_top, ret)) > 0)
		if (ret->state == NS_REPLICA_KEPT && ret->ino == replica->ino && ret->sealed_ns == replica->sealed_ns &&
		    memcmp(ret->store, replica->origin, sizeof(ret->store)) == 0)
			return 1;
	return r;
}

/*
 * 1: a replica of a later seal is kept, and the sender is not the owner. The sender was not connected when the
 * directory was sealed again, so its replica is obsolete; it is answered as if the replica were here. 1/0/<0
 */
static int is_outdated(struct fs *fs, const struct link_replica *replica)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top = 0;
	int r = c ? 0 : -ENOMEM;

	if (r < 0 || memcmp(replica->node, replica->origin, sizeof(replica->origin)) == 0)
		return r;
	while ((r = nodes_next(fs, top, &top, c)) > 0)
		if (c->state == NS_REPLICA_KEPT && c->ino == replica->ino && c->sealed_ns > replica->sealed_ns &&
		    memcmp(c->store, replica->origin, sizeof(c->store)) == 0)
			return 1;
	return r;
}

static int is_replicated(struct fs *fs, const struct link_replica *replica)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top;
	int r = c ? find_replica(fs, replica, &top, c) : -ENOMEM, k = 0;

	/* all chunks are stored here from now on, so none needs to be covered */
	if (r > 0 && c->nr_slots > 0 && replica->nr_slots == 0)
		k = nodes_set_slots(fs, top, 0, 0, replica->node);
	return k < 0 ? k : r == 0 ? is_outdated(fs, replica) : r;
}

/*
 * The slot is the one the sender specifies. It is recorded only when all nodes have covered theirs: until then the
 * previous one is needed.
 */
int replica_receive_cover(struct fs *fs, const struct link_replica *replica, const struct stripe_io *io,
			  const struct service_world *w)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top;
	int r = c ? find_replica(fs, replica, &top, c) : -ENOMEM;

	if (r == 0 && is_outdated(fs, replica) > 0)
		return 0;
	if (r > 0) {
		c->slot = (uint8_t)replica->slot;
		c->nr_slots = (uint8_t)replica->nr_slots;
		memcpy(c->sender, replica->node, sizeof(c->sender));
		r = stripes_cover(fs->stripes, io, w, top, c);
	} else if (r == 0) {
		r = -ESTALE; /* dropped meanwhile */
	}
	return r < 0 ? log_errno(r, "replica of %s of node %s: not covered here", replica->path, replica->name) : 0;
}

int replica_receive_settle(struct fs *fs, const struct link_replica *replica, const struct service_world *w)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top;
	int r = c ? find_replica(fs, replica, &top, c) : -ENOMEM;

	if (r == 0 && is_outdated(fs, replica) > 0)
		return 0;
	if (r > 0)
		r = nodes_set_slots(fs, top, (uint8_t)replica->slot, (uint8_t)replica->nr_slots, replica->node);
	else if (r == 0)
		r = -ESTALE;
	if (r == 0)
		r = engine_sync(fs->engine);
	if (r == 0) {
		stripes_settled(fs->stripes, top);
		r = stripes_sweep(fs->stripes, w);
	}
	return r < 0 ? log_errno(r, "replica of %s of node %s: cannot remove its stripes", replica->path, replica->name) :
		       0;
}

int replica_receive_uncover(struct fs *fs, const struct service_world *w)
{
	int r = stripes_sweep(fs->stripes, w);

	return r < 0 ? log_errno(r, "cannot remove unreferenced stripes") : 0;
}

int replica_receive_catalog(struct fs *fs, const struct link_replica *replica, const struct cluster_node *nodes,
			    uint32_t nr_nodes)
{
	static struct log_limit said;
	struct locating *l = calloc(1, sizeof(*l));
	struct nodes_seal seal = {
		.ino = replica->ino,
		.sealed_ns = replica->sealed_ns,
		.path = replica->path,
		.slot = (uint8_t)replica->slot,
		.nr_slots = (uint8_t)replica->nr_slots,
		.sender = replica->node,
	};
	uint64_t top;
	int r;

	if (!l)
		return -ENOMEM;
	*l = (struct locating){ .fs = fs, .replica = replica, .nodes = nodes, .nr_nodes = nr_nodes };
	memcpy(seal.from.id, replica->origin, sizeof(seal.from.id));
	memcpy(seal.from.name, replica->name, sizeof(seal.from.name));
	r = view_is_abandoned(fs->view, replica->origin, replica->ino) ? -ESTALE : 0;
	if (r == 0 && replica->nr_slots == 0)
		r = locate_all(l);
	if (r == 0)
		r = is_replicated(fs, replica);
	if (r == 0) {
		r = make_replica(l, &seal, &top);
		if (r == 0 && replica->nr_slots == 0) {
			r = locate_all(l);
			if (r == -ESTALE)
				nodes_drop_replica(fs, top);
		}
	}
	free(l);
	if (r < 0)
		return log_errno(r, "replica of %s of node %s: cannot create", replica->path, replica->name);
	log_limited(&said, LOG_LEVEL_INFO, "replica of %s of node %s: complete", replica->path, replica->name);
	return 0;
}

int replica_receive_drop(struct fs *fs, const struct link_drop *drop)
{
	static struct log_limit said;
	struct nodes_origin from = { 0 };
	int r;

	if (drop->abandons && engine_cluster_is_expected(fs->engine, drop->origin))
		return -EHOSTDOWN;
	memcpy(from.id, drop->origin, sizeof(from.id));
	memcpy(from.name, drop->name, sizeof(from.name));
	if (drop->abandons)
		view_abandon(fs->view, drop->origin, drop->ino, true);
	r = nodes_drop(fs, &from, drop->ino, drop->sealed_ns);
	if (r == 0)
		log_limited(&said, LOG_LEVEL_INFO, "directory %" PRIu64 " of node %s: replica removed",
			    drop->ino, drop->name);
	return r;
}
