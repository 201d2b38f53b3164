/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reading: recipe -> extents -> verified reads from packs. Staged data and jobs that overlap the range first become
 * part of the recipe; the packs are then read without the lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/dedup/write_jobs.h"
#include "store/file/content_state.h"
#include "store/file/pending_changes.h"
#include "store/file/stage.h"

struct pieces {
	struct pack_piece *p;
	size_t nr, size;
	struct pack_piece few[64];
};

static void pieces_release(struct pieces *ps)
{
	if (ps->p != ps->few)
		free(ps->p);
}

static int pieces_add(struct pieces *ps, struct addr a, uint32_t len, void *buf)
{
	if (ps->nr == ps->size) {
		struct pack_piece *p = malloc(2 * ps->size * sizeof(*p));

		if (!p)
			return -ENOMEM;
		memcpy(p, ps->p, ps->nr * sizeof(*p));
		pieces_release(ps);
		ps->p = p;
		ps->size *= 2;
	}
	ps->p[ps->nr++] = (struct pack_piece){ a, len, buf };
	return 0;
}

/* Collect [off, off+len) of one segment: zero the holes, turn the rest into pieces. */
static int collect_segment(struct content *c, uint64_t number, uint32_t off, uint32_t len, uint8_t *to,
			   struct pieces *ps) REQUIRES(c->lock)
{
	uint32_t at = off, end = off + len;
	struct segment *s;
	int r;

	r = content_segment(c, number, false, &s);
	if (r < 0)
		return r;
	for (size_t i = r > 0 ? segment_find(s, off) : 0; r > 0 && i < s->nr && s->x[i].off < end; i++) {
		uint32_t start = MAX(s->x[i].off, at), stop = MIN(s->x[i].off + s->x[i].len, end);
		struct addr a = s->x[i].addr;
		int q;

		memset(to + (at - off), 0, start - at);
		a.off += start - s->x[i].off;
		q = pieces_add(ps, a, stop - start, to + (start - off));
		if (q < 0)
			return q;
		at = stop;
	}
	memset(to + (at - off), 0, end - at);
	return 0;
}

static int collect(struct content *c, uint8_t *to, size_t len, uint64_t off, struct pieces *ps) REQUIRES(c->lock)
{
	while (len > 0) {
		uint32_t at = (uint32_t)(off % SEGMENT_SIZE), n = (uint32_t)MIN(len, (size_t)(SEGMENT_SIZE - at));
		int r = collect_segment(c, off / SEGMENT_SIZE, at, n, to, ps);

		if (r < 0)
			return r;
		to += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* Log and convert the result of reading from `off` on. */
static int read_result(const struct content *c, uint64_t off, int r)
{
	if (r < 0) /* packs has logged pack and offset; this adds the file */
		log_error("inode %" PRIu64 ": bytes from %" PRIu64 " on cannot be read", c->ino, off);
	return r == -EBADMSG || r == -EINVAL ? -EIO : r; /* a recipe with an invalid address is damage, too */
}

int content_read_logged(struct content *c, void *p, size_t len, uint64_t off)
{
	struct pieces ps = { .p = ps.few, .size = ARRAY_SIZE(ps.few) };
	int r;

	assert(mutex_held(&c->lock));
	r = collect(c, p, len, off, &ps);
	if (r == 0)
		r = read_result(c, off, packs_read_pieces(c->e->packs, ps.p, ps.nr));
	pieces_release(&ps);
	return r;
}

int extents_read(struct content *c, const struct extent_list *l, void *p, size_t len, uint64_t off)
{
	struct pieces ps = { .p = ps.few, .size = ARRAY_SIZE(ps.few) };
	uint8_t *to = p;
	size_t at = 0;
	int r = 0;

	for (size_t i = 0; i < l->nr && r == 0; i++) {
		memset(to + at, 0, l->x[i].off - at);
		r = pieces_add(&ps, l->x[i].addr, l->x[i].len, to + l->x[i].off);
		at = l->x[i].off + l->x[i].len;
	}
	memset(to + at, 0, len - at);
	if (r == 0)
		r = read_result(c, off, packs_read_pieces(c->e->packs, ps.p, ps.nr));
	pieces_release(&ps);
	return r;
}

static void settle_range(struct content *c, uint64_t off, uint64_t len) REQUIRES(c->lock)
{
	while (c->stage && c->stage_base + c->stage_start < off + len && off < c->stage_base + c->stage_end)
		stage_flush(c, NULL); /* the data is lost; the next flush reports the error */
	jobs_wait_range(c, off, len);
}

ssize_t content_read(struct content *c, void *p, size_t len, uint64_t off)
{
	struct pieces ps = { .p = ps.few, .size = ARRAY_SIZE(ps.few) };
	unsigned ticket = epoch_enter(&c->e->users);
	bool is_end;
	int r = 0;

	mutex_lock(&c->lock);
	if (off >= c->live.size)
		len = 0;
	else if (len > c->live.size - off)
		len = (size_t)(c->live.size - off);
	is_end = off + len == c->live.size;
	if (len > 0) {
		settle_range(c, off, len);
		r = c->is_away ? -EREMOTE : collect(c, p, len, off, &ps);
	}
	mutex_unlock(&c->lock);
	if (r == 0)
		r = read_result(c, off, packs_read_of_file(c->e->packs, ps.p, ps.nr, is_end));
	epoch_leave(&c->e->users, ticket);
	pieces_release(&ps);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&c->e->count.read, len, memory_order_relaxed);
	return (ssize_t)len;
}

/* 0; -ESTALE: it is not that chunk. */
static int find_chunk(struct content *c, const struct content_chunk *want, struct pack_piece *ret)
{
	const uint32_t here = 0;
	uint32_t len = 0;
	struct addr a;
	struct fp fp;
	int r = content_addresses(c, want->off, &here, 1, &a);

	if (r == 0 && !addr_is_none(a))
		r = packs_chunk_at(c->e->packs, a, &ret->addr, &len, &fp);
	if (r < 0)
		return r;
	if (r == 0 || len != want->len || !fp_equal(fp, want->fp))
		return -ESTALE;
	ret->len = len;
	ret->buf = want->buf;
	return 0;
}

int content_read_chunks(struct content *c, const struct content_chunk *v, size_t nr)
{
	_cleanup_(freep) struct pack_piece *p = calloc(MAX(nr, (size_t)1), sizeof(*p));
	unsigned ticket;
	int r = 0;

	if (!p)
		return -ENOMEM;
	ticket = epoch_enter(&c->e->users);
	for (size_t i = 0; i < nr && r == 0; i++)
		r = find_chunk(c, &v[i], &p[i]);
	if (r == 0 && nr > 0)
		r = packs_read_pieces(c->e->packs, p, nr);
	epoch_leave(&c->e->users, ticket);
	return r == -ESTALE ? r : read_result(c, nr > 0 ? v[0].off : 0, r);
}

void engine_read_ahead(struct engine *e)
{
	unsigned ticket = epoch_enter(&e->users); /* tables read from now on list what has been freed */

	packs_read_ahead(e->packs);
	epoch_leave(&e->users, ticket);
}

void content_stat(struct content *c, struct ns_content *ret)
{
	mutex_lock(&c->lock);
	if (c->pending && c->logged.mapped < c->logged.size)
		(void)content_catch_up(c, SIZE_MAX); /* it may fill holes */
	*ret = c->live;
	ret->mapped = c->logged.mapped;
	for (struct job *j = c->jobs; j; j = j->next_in_file)
		ret->mapped += j->len; /* an upper bound: some may be zeros or overwrite */
	if (c->stage)
		ret->mapped += c->stage_end - c->stage_start;
	mutex_unlock(&c->lock);
}

int content_peek(struct engine *e, uint64_t ino, struct ns_content *ret)
{
	struct ns_content found = { 0 };
	struct content *c;
	int r = content_lookup(e, ino, &c);

	if (r > 0) {
		content_stat(c, &found);
		content_close(c);
	} else {
		r = ns_get_content(e->db, ino, &found);
	}
	if (r < 0)
		return r;
	*ret = found;
	return 0;
}

int content_addresses(struct content *c, uint64_t off, const uint32_t *at, unsigned n, struct addr *ret)
{
	uint64_t loaded = UINT64_MAX;
	struct segment *s = NULL;
	int r = 0;

	mutex_lock(&c->lock);
	for (unsigned i = 0; i < n && r >= 0; i++) {
		uint64_t here = off + at[i];
		uint32_t in = (uint32_t)(here % SEGMENT_SIZE);
		size_t x;

		ret[i] = ADDR_NONE;
		if (here >= c->logged.size)
			continue; /* nothing there */
		if (here / SEGMENT_SIZE != loaded) {
			loaded = here / SEGMENT_SIZE;
			r = content_segment(c, loaded, false, &s);
		}
		if (r <= 0)
			continue;
		x = segment_find(s, in);
		if (x < s->nr && s->x[x].off <= in) {
			ret[i] = s->x[x].addr;
			ret[i].off += in - s->x[x].off;
		}
	}
	mutex_unlock(&c->lock);
	return MIN(r, 0);
}
