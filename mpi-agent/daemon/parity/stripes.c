/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/parity/stripes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/seal/seal_catalog.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica.h"
#include "mpi-agent/daemon/service.h"
#include "store/catalog/catalog_format.h"

#define LOOK_MAX 1024u /* chunks located at once */

/* A chunk of a strip and its position. */
struct cover {
	struct fp fp;
	uint64_t off;
	uint32_t len, stripe;
	uint8_t member, nr_lost; /* nr_lost: members of the stripe that are not connected */
};

/* Stripes and their chunks, sorted by fingerprint. */
struct covers {
	struct stripe *stripes;
	size_t nr_stripes;
	struct cover *v;
	size_t nr, room;
	uint32_t stripe, member, nr_lost; /* position while loading */
};

/*
 * A replica with a covered slot, before that slot is recorded in its ns_replica. It is recorded once all other nodes
 * have covered theirs. Until then replicas of other directories may come and go, and trigger sweeps.
 */
struct unrecorded {
	uint64_t top;
	uint8_t slot, nr_slots, sender[CLUSTER_ID_LEN];
};

struct stripes {
	struct fs *fs;
	struct unrecorded *unrecorded; /* used by the thread that covers and sweeps, one at a time */
	size_t nr_unrecorded;
	/* Outermost. Shared: stripes are read, and chunks fetched from other nodes, for a bounded time; exclusive: one is
	 * dropped, with a commit. */
	struct rwlock lock;
	struct mutex lost_lock; /* inside `lock`; held while tables are read, which all callers wait for */
	uint64_t nr_changes GUARDED_BY(lock);
	/*
	 * Chunks of members that are not connected, for rebuilding; valid for this number of changes and these nodes.
	 */
	struct covers lost GUARDED_BY(lost_lock);
	uint64_t lost_changes GUARDED_BY(lost_lock); /* UINT64_MAX: none */
	struct cluster_node *lost_world GUARDED_BY(lost_lock);
	uint32_t lost_world_nr GUARDED_BY(lost_lock);
};

int stripes_new(struct fs *fs, struct stripes **ret)
{
	struct stripes *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->fs = fs;
	s->lost_changes = UINT64_MAX;
	rwlock_init(&s->lock);
	mutex_init(&s->lost_lock);
	*ret = s;
	return 0;
}

static void covers_release(struct covers *c)
{
	free(c->stripes);
	free(c->v);
	*c = (struct covers){ 0 };
}

void stripes_free(struct stripes *s)
{
	if (!s)
		return;
	covers_release(&s->lost);
	free(s->lost_world);
	free(s->unrecorded);
	mutex_release(&s->lost_lock);
	rwlock_release(&s->lock);
	free(s);
}

/* --- connected nodes --- */

/* All members are connected, and no two of them, nor this node, share a host. */
static bool is_whole(const struct service_world *w, const struct stripe *s)
{
	uint32_t at[STRIPE_MEMBERS_MAX];

	for (uint32_t i = 0; i < s->nr; i++) {
		if (!service_world_find(w, s->members[i].node, &at[i]) || w->hosts[at[i]] == w->hosts[w->self])
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (w->hosts[at[k]] == w->hosts[at[i]])
				return false;
	}
	return true;
}

/* Is a verified copy on a node that would not be lost together with the sender? */
static bool is_on_peers(const struct service_world *w, const struct cluster_want *chunk, const uint8_t *sender)
{
	uint32_t at = w->nr, node;
	bool is_there = service_world_find(w, sender, &at);

	for (uint32_t i = 0; i < chunk->nr_owners && cluster_owners_are_confirmed(chunk); i++)
		if (service_world_find(w, chunk->owners[i], &node) && !(is_there && w->hosts[node] == w->hosts[at]))
			return true;
	return false;
}

/* --- covered chunks --- */

static int covers_add(void *userdata, const struct strip_chunk *chunk, uint64_t off)
{
	struct covers *c = userdata;

	if (c->nr == c->room) {
		size_t room = MAX(2 * c->room, (size_t)1024);
		struct cover *v = reallocarray(c->v, room, sizeof(*v));

		if (!v)
			return -ENOMEM;
		c->v = v;
		c->room = room;
	}
	c->v[c->nr++] = (struct cover){ chunk->fp, off, chunk->len, c->stripe, (uint8_t)c->member, (uint8_t)c->nr_lost };
	return 0;
}

/* Among equal fingerprints, the most useful first: those in stripes with the fewest members lost. */
static int by_fp(const void *a, const void *b)
{
	const struct cover *x = a, *y = b;
	int c = fp_compare(x->fp, y->fp);

	return c != 0 ? c : x->nr_lost - y->nr_lost;
}

static void covers_sort(struct covers *c)
{
	if (c->nr > 0)
		qsort(c->v, c->nr, sizeof(*c->v), by_fp);
}

enum which { ALL, OF_WHOLE_ONES, OF_LOST_NODES };

static int covers_load(struct fs *fs, const struct service_world *w, enum which which, struct covers *ret)
{
	struct covers c = { 0 };
	uint32_t node;
	int r = stripe_load_all(fs, &c.stripes, &c.nr_stripes);

	for (c.stripe = 0; r == 0 && c.stripe < c.nr_stripes; c.stripe++) {
		const struct stripe *s = &c.stripes[c.stripe];

		if (which == OF_WHOLE_ONES && !is_whole(w, s))
			continue;
		c.nr_lost = 0;
		for (uint32_t m = 0; m < s->nr; m++)
			c.nr_lost += !service_world_find(w, s->members[m].node, &node);
		for (c.member = 0; r == 0 && c.member < s->nr; c.member++)
			if (which != OF_LOST_NODES || !service_world_find(w, s->members[c.member].node, &node))
				r = strip_each(fs, s->members[c.member].ino, covers_add, &c);
	}
	if (r < 0) {
		covers_release(&c);
		return r;
	}
	covers_sort(&c);
	*ret = c;
	return 0;
}

/* Index of the first with that fingerprint, or where it would be. */
static size_t covers_find(const struct covers *c, struct fp fp)
{
	size_t from = 0, to = c->nr;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (fp_compare(c->v[mid].fp, fp) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static bool covers_has(const struct covers *c, struct fp fp)
{
	size_t at = covers_find(c, fp);

	return at < c->nr && fp_equal(c->v[at].fp, fp);
}

/* --- chunks of a replica --- */

struct walk {
	const struct ns_replica *replica;
	int (*each)(void *userdata, const struct strip_chunk *c);
	void *userdata;
	struct catalog_reader reader;
	struct buf unread;
};

static int walk_pieces(struct walk *k, const struct catalog_record *rec)
{
	struct cursor c = cursor_of(rec->data, rec->len);
	struct content_piece p;
	int r;

	while ((r = catalog_piece_next(&c, &p)) > 0) {
		if (fp_is_none(p.fp) || p.fp.lo % k->replica->nr_slots != k->replica->slot)
			continue;
		r = k->each(k->userdata, &(struct strip_chunk){ p.fp, p.chunk_len });
		if (r < 0)
			return r;
	}
	return r;
}

static int walk_some(void *userdata, const void *p, size_t len)
{
	struct walk *k = userdata;
	struct catalog_record rec;
	size_t at = 0, used;
	int r;

	buf_add(&k->unread, p, len);
	r = buf_error(&k->unread);
	while (r >= 0 && (r = catalog_reader_next(&k->reader, k->unread.data + at, k->unread.len - at, &used, &rec)) > 0) {
		at += used;
		r = rec.type == CATALOG_PIECES ? walk_pieces(k, &rec) : 0;
	}
	if (r < 0)
		return r;
	memmove(k->unread.data, k->unread.data + at, k->unread.len - at);
	k->unread.len -= at;
	return 0;
}

/* Iterate over the chunks of its slot; a chunk may occur several times. */
static int walk_replica(struct fs *fs, uint64_t top, const struct ns_replica *replica,
			int (*each)(void *userdata, const struct strip_chunk *c), void *userdata)
{
	struct walk k = { .replica = replica, .each = each, .userdata = userdata };
	int r = catalog_write(fs, top, &(struct catalog_sink){ walk_some, &k });

	buf_release(&k.unread);
	return r;
}

/* --- cover --- */

struct wanted {
	struct strip_chunk chunk;
	uint32_t number; /* order of arrival; neighbours are likely to be stored together */
};

struct covering {
	struct stripes *s;
	const struct stripe_io *io;
	const struct service_world *w;
	const struct ns_replica *replica;
	uint32_t sender; /* index in the world */
	struct covers covers; /* by complete stripes */
	struct cluster_want looked[LOOK_MAX];
	size_t nr_looked;
	struct wanted wanted[STRIP_CHUNKS_MAX];
	uint32_t nr_wanted;
	uint64_t wanted_bytes;
};

/*
 * Among the complete stripes with room for a strip of the sender, the one closest to it in length: parity of bytes
 * beyond the other strips is not shared with any of them.
 */
static const struct stripe *choose_stripe(const struct covering *g, const struct stripe *v, size_t nr, uint64_t len)
{
	const struct stripe *best = NULL;
	uint64_t best_waste = 0;

	for (size_t i = 0; i < nr; i++) {
		uint64_t waste = v[i].len > len ? v[i].len - len : len - v[i].len;
		bool fits = v[i].nr < STRIPE_MEMBERS_MAX && is_whole(g->w, &v[i]);
		uint32_t node;

		for (uint32_t m = 0; fits && m < v[i].nr; m++)
			fits = service_world_find(g->w, v[i].members[m].node, &node) &&
			       g->w->hosts[node] != g->w->hosts[g->sender];
		if (fits && (!best || waste < best_waste)) {
			best = &v[i];
			best_waste = waste;
		}
	}
	return best;
}

static int drop_stripe(struct stripes *s, const struct stripe *old)
{
	int r;

	rwlock_lock(&s->lock);
	r = stripe_drop(s->fs, old);
	s->nr_changes++;
	rwlock_unlock(&s->lock);
	return r;
}

static void note_change(struct stripes *s)
{
	rwlock_lock(&s->lock);
	s->nr_changes++;
	rwlock_unlock(&s->lock);
}

static int add_strip(struct covering *g, const struct strip_chunk *chunks, size_t nr, uint64_t len)
{
	static struct log_limit said;
	_cleanup_(freep) struct stripe *v = NULL;
	const struct stripe *old;
	size_t nr_stripes;
	int r = stripe_load_all(g->s->fs, &v, &nr_stripes);

	if (r < 0)
		return r;
	old = choose_stripe(g, v, nr_stripes, len);
	r = stripe_add(g->io, old, &g->w->nodes[g->sender], chunks, nr);
	if (r < 0)
		return r;
	note_change(g->s);
	log_limited(&said, LOG_LEVEL_INFO,
		    "node %s: %zu chunks, %" PRIu64 " bytes, covered here, in a stripe with %u others",
		    g->w->nodes[g->sender].name, nr, len, old ? old->nr : 0u);
	return old ? drop_stripe(g->s, old) : 0;
}

static int by_chunk(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;
	int c = fp_compare(x->chunk.fp, y->chunk.fp);

	return c != 0 ? c : x->number < y->number ? -1 : x->number > y->number;
}

static int by_number(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* Remove duplicates. */
static void drop_duplicates(struct covering *g)
{
	uint32_t n = 0;

	qsort(g->wanted, g->nr_wanted, sizeof(*g->wanted), by_chunk);
	for (uint32_t i = 0; i < g->nr_wanted; i++)
		if (n == 0 || !fp_equal(g->wanted[n - 1].chunk.fp, g->wanted[i].chunk.fp))
			g->wanted[n++] = g->wanted[i];
	qsort(g->wanted, n, sizeof(*g->wanted), by_number);
	g->nr_wanted = n;
}

/* Make a strip of all chunks that need to be covered. */
static int cover_wanted(struct covering *g)
{
	_cleanup_(freep) struct strip_chunk *chunks = calloc(MAX(g->nr_wanted, 1u), sizeof(*chunks));
	uint64_t len = 0;
	int r = chunks ? 0 : -ENOMEM;

	if (r < 0 || g->nr_wanted == 0)
		return r;
	drop_duplicates(g);
	for (uint32_t i = 0; r == 0 && i < g->nr_wanted; i++) {
		chunks[i] = g->wanted[i].chunk;
		r = covers_add(&g->covers, &chunks[i], len); /* the offset is not used here */
		len += chunks[i].len;
	}
	if (r == 0)
		r = add_strip(g, chunks, g->nr_wanted, len);
	covers_sort(&g->covers);
	g->nr_wanted = 0;
	g->wanted_bytes = 0;
	return r;
}

/*
 * Pin the chunks that are here: the replica may refer to another node for them, and then nothing else would keep them.
 */
static int pin_looked(struct covering *g, bool pinned[LOOK_MAX])
{
	struct fp fps[LOOK_MAX];
	bool is_pinned[LOOK_MAX] = { 0 };
	size_t n = 0;
	int r;

	for (size_t i = 0; i < g->nr_looked; i++)
		if (g->looked[i].got)
			fps[n++] = g->looked[i].fp;
	r = n > 0 ? engine_cluster_pin(g->s->fs->engine, fps, n, is_pinned) : 0;
	n = 0;
	for (size_t i = 0; r == 0 && i < g->nr_looked; i++)
		pinned[i] = g->looked[i].got && is_pinned[n++];
	return r;
}

static int look_up_batch(struct covering *g)
{
	bool pinned[LOOK_MAX];
	int r = engine_cluster_locate(g->s->fs->engine, g->looked, g->nr_looked);

	if (r == 0)
		r = pin_looked(g, pinned);
	for (size_t i = 0; r == 0 && i < g->nr_looked; i++) {
		const struct cluster_want *w = &g->looked[i];

		if (pinned[i] || is_on_peers(g->w, w, g->replica->sender) || covers_has(&g->covers, w->fp))
			continue;
		g->wanted[g->nr_wanted] = (struct wanted){ { w->fp, w->len }, g->nr_wanted };
		g->nr_wanted++;
		g->wanted_bytes += w->len;
		if (g->nr_wanted == STRIP_CHUNKS_MAX || g->wanted_bytes + MiB(1) > STRIP_BYTES_MAX)
			r = cover_wanted(g);
	}
	g->nr_looked = 0;
	return r;
}

static int look_up_later(void *userdata, const struct strip_chunk *c)
{
	struct covering *g = userdata;

	if (g->nr_looked > 0 && fp_equal(g->looked[g->nr_looked - 1].fp, c->fp))
		return 0;
	g->looked[g->nr_looked++] = (struct cluster_want){ .fp = c->fp, .len = c->len };
	return g->nr_looked == LOOK_MAX ? look_up_batch(g) : 0;
}

static struct unrecorded *unrecorded_of(struct stripes *s, uint64_t top)
{
	for (size_t i = 0; i < s->nr_unrecorded; i++)
		if (s->unrecorded[i].top == top)
			return &s->unrecorded[i];
	return NULL;
}

static int add_unrecorded(struct stripes *s, uint64_t top, const struct ns_replica *c)
{
	struct unrecorded *p = unrecorded_of(s, top);

	if (!p) {
		struct unrecorded *more = reallocarray(s->unrecorded, s->nr_unrecorded + 1, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->unrecorded = more;
		p = &s->unrecorded[s->nr_unrecorded++];
	}
	*p = (struct unrecorded){ .top = top, .slot = c->slot, .nr_slots = c->nr_slots };
	memcpy(p->sender, c->sender, sizeof(p->sender));
	return 0;
}

void stripes_settled(struct stripes *s, uint64_t top)
{
	struct unrecorded *p = unrecorded_of(s, top);

	if (p)
		*p = s->unrecorded[--s->nr_unrecorded];
}

int stripes_cover(struct stripes *s, const struct stripe_io *io, const struct service_world *w, uint64_t top,
		  const struct ns_replica *c)
{
	struct covering *g = calloc(1, sizeof(*g));
	int r = g ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	*g = (struct covering){ .s = s, .io = io, .w = w, .replica = c };
	r = !service_world_find(w, c->sender, &g->sender) || g->sender == w->self ?
		    -EHOSTUNREACH :
		    covers_load(s->fs, w, OF_WHOLE_ONES, &g->covers);
	if (r == 0)
		r = walk_replica(s->fs, top, c, look_up_later, g);
	if (r == 0)
		r = look_up_batch(g);
	if (r == 0)
		r = cover_wanted(g);
	covers_release(&g->covers);
	free(g);
	return r < 0 ? r : add_unrecorded(s, top, c);
}

/* --- sweep --- */

struct sweeping {
	struct stripes *s;
	struct fs *fs;
	const struct service_world *w;
	const struct ns_replica *replica; /* being visited */
	struct covers covers; /* by all stripes */
	bool *whole, *used; /* indexed by stripe */
};

/* Is it stored here, or on a node besides the sender? Then an incomplete stripe is not needed for it. 1/0/<0 */
static int is_safe(const struct sweeping *g, const struct strip_chunk *c)
{
	struct cluster_want v = { .fp = c->fp, .len = c->len };
	bool is_pinned = false;
	int r = engine_cluster_locate(g->fs->engine, &v, 1);

	if (r == 0 && v.got)
		r = engine_cluster_pin(g->fs->engine, &v.fp, 1, &is_pinned);
	return r < 0 ? r : is_pinned || is_on_peers(g->w, &v, g->replica->sender);
}

/*
 * If several stripes cover a chunk, use a complete one; among these the one with the most members, which has
 * replaced the others.
 */
static int mark_used(void *userdata, const struct strip_chunk *c)
{
	struct sweeping *g = userdata;
	int r = 0;
	size_t best = g->covers.nr;

	for (size_t i = covers_find(&g->covers, c->fp); i < g->covers.nr && fp_equal(g->covers.v[i].fp, c->fp); i++) {
		uint32_t a = g->covers.v[i].stripe, b = best < g->covers.nr ? g->covers.v[best].stripe : a;

		if (best == g->covers.nr || g->whole[a] > g->whole[b] ||
		    (g->whole[a] == g->whole[b] && g->covers.stripes[a].nr > g->covers.stripes[b].nr))
			best = i;
	}
	if (best == g->covers.nr || g->used[g->covers.v[best].stripe])
		return 0;
	if (!g->whole[g->covers.v[best].stripe])
		r = is_safe(g, c);
	if (r == 0)
		g->used[g->covers.v[best].stripe] = true;
	return MIN(r, 0);
}

/* Mark the stripes needed for the recorded slot and for the promised one. */
static int mark_replica(struct sweeping *g, uint64_t top, struct ns_replica *c)
{
	const struct unrecorded *p = unrecorded_of(g->s, top);
	int r = c->nr_slots > 0 ? walk_replica(g->fs, top, c, mark_used, g) : 0;

	if (r < 0 || !p)
		return r;
	c->slot = p->slot;
	c->nr_slots = p->nr_slots;
	memcpy(c->sender, p->sender, sizeof(c->sender));
	return walk_replica(g->fs, top, c, mark_used, g);
}

static int mark_all(struct sweeping *g)
{
	_cleanup_(freep) struct ns_replica *c = malloc(sizeof(*c));
	uint64_t top = 0;
	int r = c ? 0 : -ENOMEM;

	g->replica = c;
	while (r == 0 && (r = nodes_next(g->fs, top, &top, c)) > 0)
		r = c->state == NS_REPLICA_KEPT ? mark_replica(g, top, c) : 0;
	return r;
}

int stripes_sweep(struct stripes *s, const struct service_world *w)
{
	static struct log_limit said;
	struct sweeping g = { .s = s, .fs = s->fs, .w = w };
	size_t nr;
	int r = covers_load(s->fs, w, ALL, &g.covers);

	if (r < 0)
		return r;
	nr = g.covers.nr_stripes;
	g.whole = calloc(nr + 1, sizeof(*g.whole));
	g.used = calloc(nr + 1, sizeof(*g.used));
	r = g.whole && g.used ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < nr; i++)
		g.whole[i] = is_whole(w, &g.covers.stripes[i]);
	if (r == 0 && nr > 0)
		r = mark_all(&g);
	for (size_t i = 0; r == 0 && i < nr; i++)
		if (!g.used[i]) {
			r = drop_stripe(s, &g.covers.stripes[i]);
			log_limited(&said, LOG_LEVEL_INFO, "stripe %" PRIu64 ": not needed any more, removed",
				    g.covers.stripes[i].number);
		}
	free(g.whole);
	free(g.used);
	covers_release(&g.covers);
	return r;
}

int stripes_figures(struct stripes *s, struct stripes_figures *ret)
{
	_cleanup_(freep) struct stripe *v = NULL;
	struct stripes_figures f = { 0 };
	int r;

	rwlock_lock_shared(&s->lock);
	r = stripe_load_all(s->fs, &v, &f.nr);
	rwlock_unlock_shared(&s->lock);
	if (r < 0)
		return r;
	for (size_t i = 0; i < f.nr; i++) {
		f.parity_bytes += v[i].len;
		for (uint32_t m = 0; m < v[i].nr; m++)
			f.covered_bytes += v[i].members[m].len;
	}
	*ret = f;
	return 0;
}

/* --- rebuild --- */

static bool is_lost_world(const struct stripes *s, const struct service_world *w)
{
	return s->lost_changes == s->nr_changes && s->lost_world_nr == w->nr &&
	       memcmp(s->lost_world, w->nodes, w->nr * sizeof(*w->nodes)) == 0;
}

/* Load what can be rebuilt, unless it is current. */
static int load_lost(struct stripes *s, const struct service_world *w) REQUIRES(s->lost_lock)
{
	struct cluster_node *world;
	int r;

	if (is_lost_world(s, w))
		return 0;
	s->lost_changes = UINT64_MAX;
	covers_release(&s->lost);
	world = reallocarray(s->lost_world, w->nr, sizeof(*world));
	if (!world)
		return -ENOMEM;
	s->lost_world = world;
	s->lost_world_nr = w->nr;
	memcpy(world, w->nodes, w->nr * sizeof(*world));
	r = covers_load(s->fs, w, OF_LOST_NODES, &s->lost);
	if (r == 0)
		s->lost_changes = s->nr_changes;
	return r;
}

/*
 * Find the `nth` position of each wanted chunk. The stripes are copied, since another thread may reload the table.
 * ret_which[i]: index of the want.
 */
static int find_ranges(struct stripes *s, const struct service_world *w, const struct cluster_want *wants, size_t nr,
		       size_t nth, struct stripe_range *ret, size_t *ret_which, struct stripe *stripes, size_t *ret_nr)
{
	size_t n = 0;
	int r;

	mutex_lock(&s->lost_lock);
	r = load_lost(s, w);
	for (size_t i = 0; r == 0 && i < nr; i++) {
		size_t at = wants[i].got ? s->lost.nr : covers_find(&s->lost, wants[i].fp) + nth;
		const struct cover *c = at < s->lost.nr ? &s->lost.v[at] : NULL;

		if (!c || !fp_equal(c->fp, wants[i].fp) || c->len != wants[i].len)
			continue;
		stripes[n] = s->lost.stripes[c->stripe];
		ret[n] = (struct stripe_range){ &stripes[n], c->member, c->off, c->len, wants[i].buf, false };
		ret_which[n++] = i;
	}
	mutex_unlock(&s->lost_lock);
	*ret_nr = n;
	return r;
}

static int rebuild_locked(struct stripes *s, const struct stripe_io *io, const struct service_world *w,
			  struct cluster_want *wants, size_t nr)
{
	_cleanup_(freep) struct stripe_range *ranges = calloc(nr + 1, sizeof(*ranges));
	_cleanup_(freep) struct stripe *stripes = calloc(nr + 1, sizeof(*stripes));
	_cleanup_(freep) size_t *which = calloc(nr + 1, sizeof(*which));
	size_t n = 1;
	int r = ranges && stripes && which ? 0 : -ENOMEM;

	for (size_t nth = 0; r == 0 && n > 0; nth++) {
		r = find_ranges(s, w, wants, nr, nth, ranges, which, stripes, &n);
		if (r == 0 && n > 0)
			r = stripe_rebuild(io, ranges, n);
		for (size_t i = 0; r == 0 && i < n; i++) {
			struct cluster_want *v = &wants[which[i]];

			v->got = !ranges[i].failed && fp_is_of(s->fs->key, v->fp, v->buf, v->len);
		}
	}
	return r;
}

int stripes_rebuild(struct stripes *s, const struct stripe_io *io, const struct service_world *w,
		    struct cluster_want *wants, size_t nr)
{
	int r;

	rwlock_lock_shared(&s->lock);
	r = rebuild_locked(s, io, w, wants, nr);
	rwlock_unlock_shared(&s->lock);
	return r;
}
