/*
 * Emptying packs of which little is left: what is live is stored once more elsewhere, recipes are pointed there, and the
 * next window finds the old pack dead and removes it. No address is ever given a second meaning.
 *
 *   1. copy the live chunks into new frames, checked on the way; memory knows the new places before the old ones
 *      crash: copies that nobody refers to; collected next time
 *   2. in each recipe that refers to the old places, put the new ones: a record of the log like any other write, but for
 *      the times, which stay. The frames are durable before the record (commit.c)
 * Recipes are found through a pinned state of the view. What comes to refer to an old place after that keeps the pack
 * alive until the next collection: nothing is lost by being late.
 *
 * Changes are locked out while some segments are re-pointed. That is what makes it safe against a file that is deleted at the same
 * time: under the lock it is either there or not.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/engine/gc.h"

#define MOVES_MAX (128u * 1024) /* chunks at a time: 28 bytes each, 512 MiB of pages */
#define SEGMENTS_AT_ONCE 32u /* re-pointed while changes are locked out: well below a millisecond each */

struct move {
	uint32_t pack, off, len; /* a chunk, where it was */
	struct addr to;
};

struct moves {
	struct gc *g;
	struct move *m; /* ordered by pack and offset, as they are read */
	size_t nr;
	/* Those from `first` on have been read and wait for their frame to fill. */
	size_t first;
	uint32_t chunk_len;
	uint8_t *buffer;
	struct fp fps[PACK_FRAME_BLOCKS];
};

/* --- step 1 --- */

static void remember(struct engine *e, struct fp fp, const struct move *m) REQUIRES(e->append_lock)
{
	struct fptable_slot *s = fptable_find(&e->recent, fp);

	if (!s) {
		fptable_insert(&e->recent, fp, m->to); /* without memory RocksDB still knows the old place */
	} else if (s->pack == m->pack && s->off == m->off) {
		s->pack = m->to.pack;
		s->off = m->to.off;
	}
}

/* What has been read becomes a frame. It is open no longer than it takes to write it: commits wait for it. On failure
 * its moves never were. */
static int write_frame(struct moves *ms)
{
	struct engine *e = ms->g->e;
	size_t n = ms->nr - ms->first;
	struct pack_frame *f;
	int r;

	if (n == 0)
		return 0;
	ms->nr = ms->first;
	io_rate_wait(ms->g->rate, PACK_BLOCK + n * ms->chunk_len);
	r = packs_frame_open(e->packs, PACK_BULK, ms->chunk_len, &f);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		ms->m[ms->first + i].to = pack_frame_add(f, ms->fps[i], ms->buffer + i * ms->chunk_len);
	r = packs_frame_write(e->packs, f);
	if (r < 0) {
		packs_frame_abandon(e->packs, f);
		return r;
	}
	mutex_lock(&e->append_lock);
	for (size_t i = 0; i < n; i++)
		remember(e, ms->fps[i], &ms->m[ms->first + i]);
	mutex_unlock(&e->append_lock);
	ms->g->report->moved_bytes += n * ms->chunk_len;
	ms->first = ms->nr = ms->first + n;
	return 0;
}

static int read_chunk(struct moves *ms, const struct pack_frame_rec *rec, uint32_t i)
{
	size_t at = ms->nr - ms->first;
	struct addr from = rec->first;
	int r = 0;

	if (at == PACK_FRAME_BYTES / rec->chunk_len || (at > 0 && ms->chunk_len != rec->chunk_len)) {
		r = write_frame(ms);
		at = 0;
	}
	if (r < 0)
		return r;
	from.off += i * rec->chunk_len;
	io_rate_wait(ms->g->rate, rec->chunk_len);
	r = packs_read(ms->g->e->packs, from, rec->chunk_len, ms->buffer + at * rec->chunk_len);
	if (r == -EBADMSG)
		return 0; /* it stays where it is, damaged; told where it was found */
	if (r < 0)
		return r;
	ms->chunk_len = rec->chunk_len;
	ms->fps[at] = rec->fps[i];
	ms->m[ms->nr++] = (struct move){ .pack = from.pack, .off = from.off, .len = rec->chunk_len };
	return 0;
}

static int copy_pack(struct moves *ms, uint32_t pack, struct pack_frame_rec *rec)
{
	struct pack_iter it = pack_iter(ms->g->e->packs, pack, 0);
	int r;

	it.end_pack = pack + 1;
	while ((r = pack_iter_next(&it, rec)) > 0)
		for (uint32_t i = 0; i < rec->nr_chunks && !rec->damaged; i++) {
			if (fp_is_none(rec->fps[i]))
				continue;
			r = read_chunk(ms, rec, i);
			if (r < 0)
				return r;
		}
	return r;
}

/* --- step 2 --- */

/* The move of the chunk that holds `a`; NULL: it was not moved. */
static const struct move *find_move(const struct moves *ms, struct addr a)
{
	size_t low = 0, high = ms->nr;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct move *m = &ms->m[middle];

		if (m->pack < a.pack || (m->pack == a.pack && m->off + m->len <= a.off))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == ms->nr || ms->m[low].pack != a.pack || ms->m[low].off > a.off || a.node != 0)
		return NULL;
	return &ms->m[low];
}

static bool extent_moved(const struct moves *ms, const struct extent *x)
{
	struct addr a = x->addr;

	if (a.pack < ms->m[0].pack || a.pack > ms->m[ms->nr - 1].pack)
		return false; /* most are elsewhere */
	for (; a.off < x->addr.off + x->len; a.off = (uint32_t)round_down(a.off, PACK_BLOCK) + PACK_BLOCK)
		if (find_move(ms, a))
			return true;
	return false;
}

static bool any_moved(const struct moves *ms, const struct extent *x, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		if (extent_moved(ms, &x[i]))
			return true;
	return false;
}

static int add_moved(const struct moves *ms, const struct extent *x, struct extent_list *ret)
{
	uint32_t done = 0;
	int r = 0;

	while (done < x->len && r == 0) {
		struct addr a = x->addr;
		uint32_t n = x->len - done;
		const struct move *m;

		a.off += done;
		m = find_move(ms, a);
		if (m) {
			n = MIN(n, m->off + m->len - a.off);
			a = (struct addr){ .pack = m->to.pack, .off = m->to.off + (a.off - m->off) };
		} else {
			n = MIN(n, PACK_BLOCK - a.off % PACK_BLOCK);
		}
		r = extent_list_add(ret, x->off + done, n, a);
		done += n;
	}
	return r;
}

static int repoint_segment(const struct moves *ms, struct content *c, uint64_t number) REQUIRES(c->lock)
{
	struct extent_list l = { 0 };
	struct segment *s;
	struct replace rp;
	int r;

	r = content_segment(c, number, false, &s);
	if (r <= 0 || !any_moved(ms, s->x, s->nr))
		return MIN(r, 0);
	for (size_t i = 0; i < s->nr && r >= 0; i++)
		r = add_moved(ms, &s->x[i], &l);
	if (r >= 0) {
		rp = (struct replace){
			.ino = c->ino,
			.size = c->logged.size,
			.mtime_ns = c->logged.mtime_ns,
			.ctime_ns = c->logged.ctime_ns,
			.off = number * SEGMENT_SIZE,
			.len = l.x[l.nr - 1].off + l.x[l.nr - 1].len,
			.x = l.x,
			.nr = l.nr,
		};
		r = content_log(c, &rp);
	}
	extent_list_release(&l);
	return r;
}

/* Is it still there? Changes are locked out. */
static int is_there(struct content *c) REQUIRES(c->lock)
{
	struct ns_content content;

	if (c->dropped)
		return 0;
	return c->dirty ? 1 : ns_get_content(c->e->db, c->ino, &content);
}

struct place {
	struct content *c;
	uint64_t number;
};

static int repoint(const struct moves *ms, const struct place *places, unsigned nr)
{
	struct engine *e = ms->g->e;
	struct segment *s;
	int r = 0;

	for (unsigned i = 0; i < nr; i++) { /* into memory, while nobody has to wait for it */
		mutex_lock(&places[i].c->lock);
		content_segment(places[i].c, places[i].number, false, &s);
		mutex_unlock(&places[i].c->lock);
	}
	rwlock_lock(&e->view_lock);
	for (unsigned i = 0; i < nr && r >= 0; i++) {
		mutex_lock(&places[i].c->lock);
		r = is_there(places[i].c);
		if (r > 0)
			r = repoint_segment(ms, places[i].c, places[i].number);
		mutex_unlock(&places[i].c->lock);
	}
	rwlock_unlock(&e->view_lock);
	log_throttle(e);
	return MIN(r, 0);
}

/* Is any of it in a pack that was moved? */
static int wants_repoint(const struct moves *ms, const void *value, size_t len)
{
	_cleanup_(freep) struct extent *x = NULL;
	size_t nr;
	int r = recipe_decode(value, len, &x, &nr);

	return r < 0 ? r : any_moved(ms, x, nr);
}

static int repoint_some(const struct moves *ms, struct place *places, unsigned *nr)
{
	int r = repoint(ms, places, *nr);

	while (*nr > 0)
		content_close(places[--*nr].c);
	return r;
}

static int repoint_all(const struct moves *ms, struct db_snapshot *state)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct place places[SEGMENTS_AT_ONCE];
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len;
	unsigned nr = 0;
	uint64_t ino;
	int r, last;

	r = db_iter_new(ms->g->e->db, state, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		r = wants_repoint(ms, value, value_len);
		if (r <= 0)
			continue;
		r = recipe_key_decode(key, key_len, &ino, &places[nr].number);
		if (r == 0)
			r = content_open(ms->g->e, ino, &places[nr].c);
		if (r == 0 && ++nr == SEGMENTS_AT_ONCE)
			r = repoint_some(ms, places, &nr);
	}
	last = repoint_some(ms, places, &nr);
	return r < 0 ? r : last;
}

static int point_recipes(const struct moves *ms)
{
	struct engine *e = ms->g->e;
	struct db_snapshot *state;
	int r;

	rwlock_lock(&e->view_lock);
	r = view_write_back(e);
	if (r == 0)
		r = db_snapshot_new(e->db, &state);
	rwlock_unlock(&e->view_lock);
	if (r < 0)
		return r;
	r = repoint_all(ms, state);
	db_snapshot_free(state);
	return r;
}

static int moves_init(struct moves *ms, struct gc *g)
{
	*ms = (struct moves){ .g = g, .m = malloc(MOVES_MAX * sizeof(*ms->m)) };
	ms->buffer = aligned_alloc(PACK_BLOCK, PACK_FRAME_BYTES);
	return ms->m && ms->buffer ? 0 : -ENOMEM;
}

static void moves_release(struct moves *ms)
{
	free(ms->m);
	free(ms->buffer);
}

size_t gc_fitting(const struct sparse *sparse, size_t nr)
{
	size_t n = 0, left = MOVES_MAX;

	while (n < nr && sparse[n].nr_live <= left)
		left -= sparse[n++].nr_live;
	return n;
}

int gc_move(struct gc *g, const uint32_t *packs, size_t nr)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	_cleanup_(moves_release) struct moves ms = { .g = g };
	int r = rec ? moves_init(&ms, g) : -ENOMEM;

	for (size_t i = 0; i < nr && r == 0; i++)
		r = copy_pack(&ms, packs[i], rec);
	if (r == 0)
		r = write_frame(&ms);
	if (r == 0 && ms.nr > 0)
		r = point_recipes(&ms);
	if (r == 0)
		g->report->nr_moved_packs += nr;
	return r;
}
