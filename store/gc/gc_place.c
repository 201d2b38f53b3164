/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Defragments the newest files. Data that changes from step to step is stored with its step, so a file of a long series
 * is read from as many places as it has ancestors, and the newest file, which a restart reads, is the most scattered.
 * Here its scattered chunks are copied in the order of reading, and all files that share them are repointed to the
 * copies: the older files pay.
 *
 * Files are processed from the newest on. Frames that hold a large part of some MiB of the file are taken, and chunks
 * in them stay. If the file is scattered, its chunks in all other frames move, and the frames they move to are taken,
 * too. A file that lies mostly in taken frames is an older version, or a copy, of an earlier one. It stays as it is,
 * and all its frames are taken, so that its own older versions are recognized as well, however little they share with
 * the newest.
 *
 * Copying, repointing and crashes are as in gc_move.c. The collection that follows frees the old places.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "store/gc/gc_copy.h"
#include "store/file/extents/layer_stack.h"
#include "store/remote_hooks.h"

#define PLACES_MAX 4u /* average frames per MiB of a file; beyond this it is scattered */
#define PLACES_LEFT 2u /* a MiB in no more frames than this is not moved */
#define MUCH (SEGMENT_SIZE / 4) /* of a MiB in one frame: stays there */
#define SOME (SEGMENT_SIZE / 16) /* likewise, for a file that is not scattered */
#define MOVES_MAX (1024u * 1024) /* chunks between two passes over all recipes: 24 bytes each, and 8 in `moved` */
#define FILES_MAX (64u * 1024) /* the newest; 32 bytes each */
#define TAKEN_MAX (1024u * 1024) /* frames, 16 bytes each: 1 TiB of the newest */
#define EXTENTS_MAX 1024u /* distinct frames counted per segment: beyond this it is scattered anyway */

struct file {
	int64_t mtime_ns;
	uint64_t ino;
};

struct place {
	struct gc *g;
	struct gc_copy copy;
	uint32_t *moved; /* open addressing: 1 + index of a move since the last repoint */
	size_t nr_noted; /* moves that are in `moved` */
	uint64_t *taken; /* open addressing: frames, 0: free */
	size_t nr_taken, taken_size;
};

#define MOVED_SLOTS (2 * (size_t)MOVES_MAX)

/* --- taken frames and moved chunks --- */

static uint64_t frame_of(struct addr a)
{
	return (uint64_t)a.pack << 32 | (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

static uint64_t mix(uint64_t x)
{
	x *= UINT64_C(0x9e3779b97f4a7c15);
	return x ^ x >> 32;
}

static uint64_t *taken_slot(const struct place *p, uint64_t frame)
{
	size_t i = mix(frame) & (p->taken_size - 1);

	while (p->taken[i] && p->taken[i] != frame)
		i = (i + 1) & (p->taken_size - 1);
	return &p->taken[i];
}

static bool is_taken(const struct place *p, uint64_t frame)
{
	return *taken_slot(p, frame) != 0;
}

static void take_frame(struct place *p, uint64_t frame)
{
	uint64_t *slot = taken_slot(p, frame);

	if (*slot || p->nr_taken == TAKEN_MAX)
		return;
	*slot = frame;
	p->nr_taken++;
}

static size_t moved_slot(const struct place *p, struct addr a)
{
	size_t i = mix((uint64_t)a.pack << 32 | a.off) & (MOVED_SLOTS - 1);

	for (; p->moved[i]; i = (i + 1) & (MOVED_SLOTS - 1)) {
		const struct move *m = &p->copy.m[p->moved[i] - 1];

		if (m->pack == a.pack && m->off == a.off)
			break;
	}
	return i;
}

/* --- frames of a segment --- */

struct part {
	uint64_t frame;
	uint32_t bytes; /* of the segment in this frame */
};

struct parts {
	struct part v[EXTENTS_MAX];
	unsigned nr;
	uint32_t bytes, taken_bytes;
};

static const struct part *part_of(const struct parts *ps, uint64_t frame)
{
	for (unsigned i = ps->nr; i-- > 0;)
		if (ps->v[i].frame == frame)
			return &ps->v[i];
	return NULL;
}

static void collect_parts(const struct place *p, const struct extent *x, size_t nr, struct parts *ret)
{
	ret->nr = 0;
	ret->bytes = ret->taken_bytes = 0;
	for (size_t i = 0; i < nr; i++) {
		uint64_t frame = frame_of(x[i].addr);
		struct part *part = (struct part *)part_of(ret, frame);

		ret->bytes += x[i].len;
		if (is_taken(p, frame) || p->moved[moved_slot(p, x[i].addr)])
			ret->taken_bytes += x[i].len;
		if (part)
			part->bytes += x[i].len;
		else if (ret->nr < EXTENTS_MAX)
			ret->v[ret->nr++] = (struct part){ frame, x[i].len };
	}
}

/* --- moving --- */

/* A file may contain the same chunk more than once. */
static bool has_moved(const struct place *p, struct addr a)
{
	const struct gc_copy *c = &p->copy;

	for (unsigned i = 0; i < c->nr_next; i++)
		if (addr_equal(c->next[i].from, a))
			return true;
	return p->moved[moved_slot(p, a)] != 0;
}

/* Adds the moves of frames written since the last call. */
static void note_moves(struct place *p)
{
	for (; p->nr_noted < p->copy.nr; p->nr_noted++) {
		const struct move *m = &p->copy.m[p->nr_noted];

		p->moved[moved_slot(p, (struct addr){ .pack = m->pack, .off = m->off })] = (uint32_t)p->nr_noted + 1;
		take_frame(p, frame_of(m->to));
	}
}

static int move_chunk(struct place *p, const struct pack_chunk_info *info)
{
	struct gc_chunk chunk = { .from = info->start, .len = info->len, .fp = info->fp, .codec = info->codec };
	/* chunks cut by content are aligned by chance: once in 16 million */
	bool pages = info->start.off % PACK_BLOCK == 0 && info->len % PACK_BLOCK == 0;
	int r;

	if (has_moved(p, info->start) || gc_copy_nr(&p->copy) == p->copy.max)
		return 0;
	r = gc_copy_add(&p->copy, pages ? info->len : PACK_VARIED, &chunk);
	note_moves(p);
	return r;
}

/* Files do not share frames, so each file ends one. */
static int end_frame(struct place *p)
{
	int r = gc_copy_flush(&p->copy);

	note_moves(p);
	return r;
}

/* Moves the chunks of an extent in file order. */
static int move_extent(struct place *p, const struct extent *x)
{
	struct addr a = x->addr;
	uint32_t end = x->addr.off + x->len;
	struct pack_chunk_info c;
	int r = 0;

	if (p->g->e->remote && p->g->e->remote->has_pack(p->g->e, a.pack))
		return 0; /* peers refer to chunks of this pack by their place */
	while (a.off < end && r == 0) {
		r = packs_chunk_info(p->g->e->packs, a, &c);
		if (r <= 0)
			return r == -EBADMSG ? 0 : r; /* damaged, or freed since: it stays */
		/* Coded chunks lie with similar ones and would be larger elsewhere. */
		r = fp_is_none(c.fp) || c.codec == PACK_CODEC_CODED ? 0 : move_chunk(p, &c);
		a.off = c.start.off + c.len;
	}
	return r;
}

struct share {
	uint64_t bytes, taken_bytes, nr_segments, nr_places;
};

static bool is_scattered(const struct share *s)
{
	return s->nr_places > PLACES_MAX * s->nr_segments;
}

/* An older version or a copy of a file processed before, with which it shares most of its data. */
static bool is_older(const struct share *s)
{
	return s->taken_bytes > s->bytes / 2;
}

/* Called for each segment of a file. */
typedef int segment_fn(struct place *p, const struct extent *x, size_t nr, const struct parts *ps, struct share *share);

static int add_share(_unused_ struct place *p, _unused_ const struct extent *x, _unused_ size_t nr,
		     const struct parts *ps, struct share *share)
{
	share->bytes += ps->bytes;
	share->taken_bytes += ps->taken_bytes;
	share->nr_segments++;
	share->nr_places += ps->nr;
	return 0;
}

static int take_frames(struct place *p, _unused_ const struct extent *x, _unused_ size_t nr, const struct parts *ps,
		       struct share *share)
{
	uint32_t least = is_older(share) ? 0 : is_scattered(share) ? MUCH : SOME;

	for (unsigned i = 0; i < ps->nr; i++)
		if (ps->v[i].bytes >= least)
			take_frame(p, ps->v[i].frame);
	return 0;
}

static int move_rest(struct place *p, const struct extent *x, size_t nr, const struct parts *ps,
		     _unused_ struct share *share)
{
	int r = 0;

	for (size_t i = 0; i < nr && r == 0 && ps->nr > PLACES_LEFT; i++)
		if (x[i].addr.node == 0 && !is_taken(p, frame_of(x[i].addr)))
			r = move_extent(p, &x[i]);
	return r;
}

/* --- files --- */

static int repoint_moved(struct place *p)
{
	int r = end_frame(p);

	if (r == 0 && p->copy.moving)
		r = gc_copy_repoint(&p->copy);
	return r == 0 ? gc_write_back(p->g->e) : r;
}

/* Likewise, and more is moved. */
static int repoint_and_continue(struct place *p)
{
	int r = repoint_moved(p);

	memset(p->moved, 0, MOVED_SLOTS * sizeof(*p->moved));
	p->nr_noted = 0;
	return r;
}

/* One pass over a file's recipe. */
static int walk(struct place *p, uint64_t ino, segment_fn *f, struct share *share)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	_cleanup_(freep) struct parts *ps = malloc(sizeof(*ps));
	struct ns_key prefix = recipe_prefix(ino);
	const void *key, *value;
	size_t key_len, value_len;
	int r;

	if (!ps)
		return -ENOMEM;
	r = db_iter_new(p->g->e->db, NULL, prefix.b, prefix.len, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0 && gc_goes_on(p->g)) {
		_cleanup_(freep) struct extent *x = NULL;
		size_t nr;

		r = recipe_read(p->g->e->db, NULL, value, value_len, &x, &nr);
		if (r < 0)
			break;
		collect_parts(p, x, nr, ps);
		r = f(p, x, nr, ps, share);
	}
	return MIN(r, 0);
}

static int place_file(struct place *p, uint64_t ino)
{
	struct share share = { 0 };
	int r;

	r = walk(p, ino, add_share, &share);
	if (r == 0)
		r = walk(p, ino, take_frames, &share);
	if (r < 0 || is_older(&share) || !is_scattered(&share))
		return r;
	do {
		uint64_t before = p->copy.copied;

		r = walk(p, ino, move_rest, NULL);
		if (r == 0 && gc_copy_nr(&p->copy) < p->copy.max)
			break;
		if (r == 0)
			r = repoint_and_continue(p); /* not all chunks fit: repeat for the rest */
		if (p->copy.copied == before)
			break;
	} while (r == 0 && gc_goes_on(p->g));
	if (r == 0)
		r = end_frame(p);
	p->g->report->nr_placed++;
	p->g->report->placed_bytes = p->copy.copied;
	return r;
}

static int newest_first(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	if (x->mtime_ns != y->mtime_ns)
		return x->mtime_ns > y->mtime_ns ? -1 : 1;
	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* Lists the newest files with data: whenever the array of 2 * FILES_MAX is full, its newer half is kept. */
static int newest_files(struct engine *e, struct file *ret, size_t *ret_nr)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_CONTENT;
	const void *key, *value;
	size_t key_len, value_len, nr = 0;
	struct ns_content content;
	int r;

	r = db_iter_new(e->db, NULL, &prefix, 1, NULL, 0, &it);
	while (r >= 0 && (r = db_iter_next(it, &key, &key_len, &value, &value_len)) > 0) {
		uint64_t ino;

		r = ns_content_decode(value, value_len, &content);
		if (r == 0)
			r = ns_content_key_decode(key, key_len, &ino);
		if (r < 0 || content.mapped <= PLACES_MAX * PACK_BLOCK)
			continue;
		ret[nr++] = (struct file){ content.mtime_ns, ino };
		if (nr == 2 * FILES_MAX) {
			qsort(ret, nr, sizeof(*ret), newest_first);
			nr = FILES_MAX;
		}
	}
	if (r < 0)
		return r;
	qsort(ret, nr, sizeof(*ret), newest_first);
	*ret_nr = MIN(nr, (size_t)FILES_MAX);
	return 0;
}

/*
 * Only touched pages of it take memory. calloc(3) writes to all of them when it reuses freed memory, as from the second
 * collection on. NULL: no memory.
 */
static void *table_new(size_t nr, size_t size)
{
	void *p = mmap(NULL, nr * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void table_free(void *p, size_t nr, size_t size)
{
	if (p)
		munmap(p, nr * size);
}

static void place_release(struct place *p)
{
	gc_copy_release(&p->copy);
	table_free(p->moved, MOVED_SLOTS, sizeof(*p->moved));
	table_free(p->taken, p->taken_size, sizeof(*p->taken));
}

int gc_place(struct gc *g)
{
	_cleanup_(place_release) struct place p = { .g = g, .taken_size = 2 * (size_t)TAKEN_MAX };
	_cleanup_(freep) struct file *files = calloc(2 * FILES_MAX, sizeof(*files));
	size_t nr = 0;
	int r;

	p.moved = table_new(MOVED_SLOTS, sizeof(*p.moved));
	p.taken = table_new(p.taken_size, sizeof(*p.taken));
	if (!files || !p.moved || !p.taken)
		return -ENOMEM;
	r = gc_copy_init(&p.copy, g, MOVES_MAX);
	if (r == 0)
		r = gc_write_back(g->e);
	if (r == 0)
		r = newest_files(g->e, files, &nr);
	for (size_t i = 0; i < nr && r == 0 && p.nr_taken < TAKEN_MAX && gc_goes_on(g); i++)
		r = place_file(&p, files[i].ino);
	if (r == 0 || io_is_full(r)) {
		int q = repoint_moved(&p);

		r = r < 0 ? r : q;
	}
	return io_is_full(r) ? 0 : r; /* no space to place more */
}
