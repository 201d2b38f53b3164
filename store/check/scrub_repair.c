/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Repairs damage found by a scrub where the content is known from elsewhere: headers, tables, chunks stored twice.
 *
 * Chunks are overwritten inside `users`, and only if they are not gc-pending: freed space is not filled again. A chunk
 * that was compressed together with others is replaced instead (repair.c). Headers and tables are overwritten with the
 * collector locked out.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/check/repair.h"
#include "store/check/scrub_job.h"
#include "store/gc/collector.h"
#include "store/gc/gc_freed.h"
#include "store/pack/repair/pack_repair.h"

/* --- headers and tables --- */

static int repair_header(struct scrub *s, uint32_t pack)
{
	enum pack_stream stream;
	int r = packs_stream_of(s->e->packs, pack, &stream); /* as read when the file was opened */

	for (unsigned i = 0; r <= 0 && i < PACK_NR_STREAMS; i++)
		if (s->marks.stream[i].pack == pack) {
			stream = (enum pack_stream)i;
			r = 1;
		}
	if (r <= 0)
		return 0;
	r = packs_repair_header(s->e->packs, pack, stream);
	return r < 0 ? 0 : packs_scrub_header(s->e->packs, pack) > 0;
}

static int repair_table(struct scrub *s, uint32_t pack, uint32_t frame)
{
	_cleanup_(freep) struct pack_salvage *salvage = malloc(sizeof(*salvage));
	struct packs *p = s->e->packs;
	int r;

	if (!salvage)
		return -ENOMEM;
	r = packs_restore_table(p, pack, frame);
	if (r > 0)
		return 1;
	r = packs_salvage_table(p, pack, frame, salvage);
	if (r == -ENOMEM)
		return r;
	return r > 0 && packs_repair_table(p, salvage) == 0;
}

/* While a collection is running, headers and tables are left to the next scrub. */
int scrub_repair_header(struct scrub *s, uint32_t pack)
{
	int r = 0;

	if (!s->e->read_only && gc_trylock(s->e)) {
		r = repair_header(s, pack);
		gc_unlock(s->e);
	}
	return r;
}

int scrub_repair_table(struct scrub *s, uint32_t pack, uint32_t frame)
{
	int r = 0;

	if (!s->e->read_only && gc_trylock(s->e)) {
		r = repair_table(s, pack, frame);
		gc_unlock(s->e);
	}
	return r;
}

/* --- chunks --- */

struct search {
	struct scrub *s;
	struct bad **by_fp; /* chunks, sorted by fingerprint */
	size_t nr, nr_repaired;
	bool any_noted;
	struct pack_frame_rec rec;
	uint8_t *buf; /* holds a chunk */
};

static int compare_fps(struct fp a, struct fp b)
{
	if (a.hi != b.hi)
		return a.hi < b.hi ? -1 : 1;
	return a.lo < b.lo ? -1 : a.lo > b.lo;
}

static int compare(const void *a, const void *b)
{
	return compare_fps((*(struct bad *const *)a)->fp, (*(struct bad *const *)b)->fp);
}

static size_t first_of(const struct search *q, struct fp fp)
{
	size_t lo = 0, hi = q->nr;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (compare_fps(q->by_fp[mid]->fp, fp) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* `from` should have the same bytes: reading verifies them. */
static void repair_from(struct search *q, struct bad *b, struct addr from)
{
	struct addr to = { .pack = b->pack, .off = b->off };
	struct engine *e = q->s->e;
	int r;

	if (b->repaired || addr_equal(from, to) || packs_is_damaged(e->packs, from) || freed_is_gc_pending(e, to))
		return;
	if (packs_read(e->packs, from, b->len, q->buf) < 0)
		return;
	r = packs_repair_chunk(e->packs, to, q->buf, b->len);
	if (r == -EOPNOTSUPP) {
		repair_note(e, to, b->len, from);
		q->any_noted = true;
	}
	b->repaired = r == 0;
	q->nr_repaired += b->repaired;
}

static int look_at_table(struct search *q, uint32_t pack, uint32_t frame)
{
	struct pack_frame_rec *rec = &q->rec;
	unsigned ticket = epoch_enter(&q->s->e->users);
	int r = packs_frame_rec(q->s->e->packs, pack, frame, rec);

	for (uint32_t i = 0; r > 0 && !rec->damaged && i < rec->nr_chunks; i++)
		for (size_t k = first_of(q, rec->fps[i]); k < q->nr && fp_equal(q->by_fp[k]->fp, rec->fps[i]); k++)
			if (q->by_fp[k]->len == pack_rec_len(rec, i))
				repair_from(q, q->by_fp[k], pack_rec_addr(rec, i));
	epoch_leave(&q->s->e->users, ticket);
	scrub_pace(q->s, PACK_BLOCK);
	return r == -ENOMEM ? r : 0; /* unreadable tables have been reported */
}

static int look_at_tables(struct search *q)
{
	struct scrub *s = q->s;
	uint32_t nr_frames;
	int r = 0;

	for (uint32_t pack = 1; pack < s->marks.next_pack && r == 0 && q->nr_repaired < q->nr &&
	     scrub_goes_on(s); pack++) {
		if (scrub_nr_frames(s, pack, &nr_frames) < 0)
			continue;
		for (uint32_t frame = 0; frame < nr_frames && r == 0 && q->nr_repaired < q->nr &&
		     scrub_goes_on(s); frame++)
			r = look_at_table(q, pack, frame);
	}
	return r;
}

int scrub_repair_chunks(struct scrub *s)
{
	_cleanup_(freep) struct bad **by_fp = calloc(s->nr_bad, sizeof(*by_fp));
	_cleanup_(freep) uint8_t *buf = aligned_alloc(PACK_BLOCK, PACK_FRAME_BYTES);
	_cleanup_(freep) struct search *q = malloc(sizeof(*q));
	int r;

	if (!by_fp || !buf || !q)
		return -ENOMEM;
	q->s = s;
	q->by_fp = by_fp;
	q->buf = buf;
	q->nr = q->nr_repaired = 0;
	q->any_noted = false;
	for (size_t i = 0; i < s->nr_bad; i++)
		if (s->bad[i].kind == BAD_CHUNK)
			by_fp[q->nr++] = &s->bad[i];
	s->report->doing = "looking for second copies";
	qsort(by_fp, q->nr, sizeof(*by_fp), compare);
	r = look_at_tables(q);
	if (r == 0 && q->any_noted)
		repair_now(s->e); /* chunks that it fails to replace stay damaged and are reported */
	return r;
}
