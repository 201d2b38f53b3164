/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The stage of a file chunked by content.
 *
 *    0        FRONT                                    ROOM       1 MiB
 *    |  ...prefix| bytes that were written ...          | old bytes behind them |
 *
 * The stage starts at a chunk boundary. If a write changes a chunk from the middle, the bytes before it are read back
 * in front of it; at the end of the file these are the last chunk, which ended only because the file did. When the
 * stage is full, all whole chunks are submitted as a job. The remaining bytes do not determine their boundaries yet and
 * start the next stage, so the boundaries of sequential data depend on the data alone. When the stage is flushed for
 * another reason, it is chunked to its end and, if old bytes follow, beyond it until a boundary coincides with an
 * existing one. A change anywhere thus costs only the chunks near it.
 *
 * Only the stage changes the bytes it was started from: all other changes flush it first.
 */
#include "store/file/recut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/dedup/chunker.h"
#include "store/engine_state.h"
#include "store/dedup/write_jobs.h"
#include "store/file/content_state.h"

#define FRONT RECUT_FRONT
#define BACK ((uint32_t)KiB(192)) /* boundaries from different starting points coincide after 1.1 chunks on average */
#define ROOM ((uint32_t)ENGINE_BUFFER_SIZE - BACK)

/* --- existing chunks of the file --- */

/* The extent that contains a byte, with its start as a file offset. 1/0 a hole/<0. */
static int extent_at(struct content *c, uint64_t at, uint64_t *ret_start, struct addr *ret) REQUIRES(c->lock)
{
	uint32_t in = (uint32_t)(at % SEGMENT_SIZE);
	struct segment *s;
	size_t i;
	int r;

	r = at < c->logged.size ? content_segment(c, at / SEGMENT_SIZE, false, &s) : 0;
	if (r <= 0)
		return r;
	i = segment_find(s, in);
	if (i == s->nr || s->x[i].off > in)
		return 0;
	*ret_start = round_down(at, SEGMENT_SIZE) + s->x[i].off;
	*ret = s->x[i].addr;
	return 1;
}

/* Start of the chunk that contains a byte, or of the part of it in this file; in a hole, or if it cannot be determined,
 * the byte itself. A chunk may span several extents because extents end with their segment. */
static uint64_t chunk_start(struct content *c, uint64_t at) REQUIRES(c->lock)
{
	struct addr a, chunk, before;
	uint64_t start = 0, want;
	uint32_t len;
	struct fp fp;

	if (extent_at(c, at, &start, &a) <= 0)
		return at;
	a.off += (uint32_t)(at - start);
	if (packs_chunk_at(c->e->packs, a, &chunk, &len, &fp) <= 0)
		return at;
	want = at - MIN(at, (uint64_t)(a.off - chunk.off));
	while (start > want) {
		uint64_t next = start - 1;

		if (extent_at(c, next, &start, &before) <= 0)
			return next + 1;
		before.off += (uint32_t)(next - start);
		if (before.pack != a.pack || before.off + (at - next) != a.off)
			return next + 1;
	}
	return want;
}

/* --- the stage --- */

uint32_t recut_takes(const struct content *c, uint64_t off, size_t len)
{
	uint64_t start = c->stage_base + c->stage_start, end = c->stage_base + c->stage_end;

	return off < start || off > end ? 0 : (uint32_t)MIN(len, ROOM - (off - c->stage_base));
}

bool recut_is_full(const struct content *c, uint64_t off)
{
	return c->stage_end == ROOM && off == c->stage_base + c->stage_end;
}

void recut_begin(struct content *c, struct engine_buffer *b, uint64_t off)
{
	uint64_t start = off;

	assert(mutex_held(&c->lock));
	if (off < c->logged.size)
		start = chunk_start(c, off);
	else if (off > 0 && off == c->logged.size)
		start = chunk_start(c, off - 1);
	/* If the prefix cannot be read, or belongs to a page too large for FRONT, it stays as it is. */
	if (off - start > FRONT ||
	    (start < off && content_read_logged(c, b->data + FRONT - (off - start), off - start, start) < 0))
		start = off;
	c->stage_base = off - FRONT; /* may wrap below 0: only sums with an offset in the buffer are meaningful */
	c->stage_start = FRONT - (uint32_t)(off - start);
	c->stage_end = FRONT;
}

/* NULL: no memory, nothing changed. */
static struct job *new_job(struct content *c, const uint32_t *cuts, size_t nr)
{
	_cleanup_(freep) uint32_t *own = malloc(nr * sizeof(*cuts));
	uint32_t start = c->stage_start;
	struct job *j = own ? job_new(c, c->stage, c->stage->data + start, c->stage_base + start, cuts[nr - 1]) : NULL;

	if (!j)
		return NULL;
	memcpy(own, cuts, nr * sizeof(*cuts));
	j->cuts = TAKE(own);
	j->nr_cuts = nr;
	j->time_ns = c->stage_time_ns;
	return j;
}

struct job *recut_advance(struct content *c, struct engine_buffer *b)
{
	uint32_t cuts[CHUNKER_ENDS_MAX], len = c->stage_end - c->stage_start, end;
	size_t nr = chunker_cut(&c->e->cdc, c->stage->data + c->stage_start, len, false, cuts);
	struct job *j;

	assert(mutex_held(&c->lock) && nr > 0); /* the stage is full, and longer than any chunk */
	end = c->stage_start + cuts[nr - 1];
	j = new_job(c, cuts, nr);
	if (!j)
		return NULL;
	memcpy(b->data + FRONT, c->stage->data + end, c->stage_end - end);
	c->stage = b;
	c->stage_base += end - FRONT;
	c->stage_end = FRONT + (c->stage_end - end);
	c->stage_start = FRONT;
	return j;
}

/* Number of old bytes behind the stage that can be chunked again, at most `max`. */
static uint32_t old_behind(const struct content *c, uint32_t max)
{
	uint64_t end = c->stage_base + c->stage_end;

	return c->logged.size > end ? (uint32_t)MIN(c->logged.size - end, (uint64_t)max) : 0;
}

void recut_wait(struct content *c)
{
	uint64_t start = c->stage_base + c->stage_end;

	assert(mutex_held(&c->lock));
	jobs_wait_range(c, start, BACK);
}

/* Number of boundaries up to the first one behind the new bytes that the file already has; 0: none. */
static size_t find_common_cut(struct content *c, const uint32_t *cuts, size_t nr) REQUIRES(c->lock)
{
	uint32_t fresh = c->stage_end - c->stage_start;
	uint64_t start = c->stage_base + c->stage_start;

	for (size_t i = 0; i < nr; i++)
		if (cuts[i] >= fresh && chunk_start(c, start + cuts[i]) == start + cuts[i])
			return i + 1;
	return 0;
}

struct job *recut_finish(struct content *c)
{
	uint32_t cuts[CHUNKER_ENDS_MAX], fresh = c->stage_end - c->stage_start, old = 0;
	const uint8_t *p = c->stage->data + c->stage_start;
	size_t nr, end = 0;

	assert(mutex_held(&c->lock) && fresh > 0);
	for (uint32_t step = KiB(16); end == 0; step *= 2) {
		uint32_t more = old_behind(c, MIN(step, BACK));

		if (more > old && content_read_logged(c, c->stage->data + c->stage_end + old, more - old,
						      c->stage_base + c->stage_end + old) < 0)
			more = old; /* leave the bytes from there on as they are */
		nr = chunker_cut(&c->e->cdc, p, fresh + more, more == old, cuts);
		end = more == old ? nr : find_common_cut(c, cuts, nr);
		old = more;
	}
	return new_job(c, cuts, end);
}
