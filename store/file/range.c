/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Changes of ranges without new bytes (size, holes, times), and queries about ranges. Clones: clone.c. Each change
 * waits until the file has no staged data or jobs, then writes one log record.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/le.h"
#include "base/util.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/file/pending_changes.h"
#include "store/file/reservation.h"
#include "store/log/txlog.h"
#include "store/log/view.h"

void content_note_times(struct content *c)
{
	assert(mutex_held(&c->lock));
	if (c->times_changed)
		return;
	c->set_mtime_ns = c->live.mtime_ns;
	c->set_ctime_ns = c->live.ctime_ns;
	c->times_changed = true;
}

/* A record that changes only ctime, for the caller to fill in. */
static struct replace replace_nothing(struct content *c) REQUIRES(c->lock)
{
	content_note_times(c);
	return (struct replace){
		.ino = c->ino,
		.size = c->logged.size,
		.mtime_ns = c->logged.mtime_ns,
		.ctime_ns = (int64_t)now_ns(),
	};
}

static int log_and_show(struct content *c, const struct replace *rp) REQUIRES(c->lock)
{
	int r = c->e->read_only ? -EROFS : content_log(c, rp, 1);

	if (r == 0)
		c->live = c->logged;
	return r;
}

/* Of a change of bytes or size. */
static int log_change(struct content *c, const struct replace *rp) REQUIRES(c->lock)
{
	return c->is_away ? -EREMOTE : log_and_show(c, rp);
}

/*
 * Removing data takes time proportional to its segments, so it is done in parts, with the locks released in between. Each
 * part is a change by itself. A file shrinks from its end: readers, and the next mount after a crash, find a file that
 * was truncated to some size, never one with zeros instead of data.
 */
#define PART_SEGMENTS 256u

/* The end of the first part of [off, end). */
static int part_end(struct content *c, uint64_t off, uint64_t end, uint64_t *ret) REQUIRES(c->lock)
{
	uint64_t n = off / SEGMENT_SIZE;
	int r = 1;

	for (unsigned i = 0; i < PART_SEGMENTS && end - off > PART_SEGMENTS * (uint64_t)SEGMENT_SIZE && r > 0; i++) {
		r = content_next_segment(c, n, &n);
		if (r > 0 && n++ >= end / SEGMENT_SIZE)
			r = 0;
	}
	*ret = r > 0 && n * SEGMENT_SIZE > off ? MIN(n * SEGMENT_SIZE, end) : end;
	return MIN(r, 0);
}

struct parts {
	uint64_t *end; /* ends of all parts but the last */
	size_t nr, room;
};

static void parts_release(struct parts *p)
{
	free(p->end);
}

static int parts_add(struct parts *p, uint64_t end)
{
	if (p->nr == p->room) {
		size_t room = MAX(2 * p->room, (size_t)16);
		uint64_t *more = reallocarray(p->end, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->end = more;
		p->room = room;
	}
	p->end[p->nr++] = end;
	return 0;
}

/* Divide what lies behind `size`. Changes that another thread makes meanwhile affect only the size of the parts. */
static int find_parts(struct content *c, uint64_t size, struct parts *ret)
{
	uint64_t end = 0;
	bool is_last;
	int r;

	do {
		content_lock_quiet(c);
		is_last = size >= c->logged.size;
		r = is_last ? 0 : part_end(c, size, c->logged.size, &end);
		is_last = is_last || r < 0 || end == c->logged.size;
		content_unlock_quiet(c);
		if (!is_last) {
			r = parts_add(ret, end);
			size = end;
		}
		if (r == 0 && !is_last)
			r = cancel_check();
	} while (r == 0 && !is_last);
	return r;
}

static int set_size(struct content *c, uint64_t size)
{
	struct replace rp;
	int r;

	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = rp.ctime_ns;
	rp.size = size;
	if (size < c->logged.size) {
		rp.off = size;
		rp.len = c->logged.size - size;
		content_release_space(c);
	}
	r = log_change(c, &rp);
	content_unlock_quiet(c);
	return r;
}

int content_truncate(struct content *c, uint64_t size)
{
	_cleanup_(parts_release) struct parts parts = { 0 };
	uint64_t old;
	int r = 0;

	if (size > CONTENT_MAX_SIZE)
		return -EFBIG;
	mutex_lock(&c->lock);
	old = c->live.size;
	mutex_unlock(&c->lock);
	if (size > old)
		r = log_admit_growth(c->e, RECORD_BYTES); /* shrinking frees space */
	else if (old - size > PART_SEGMENTS * (uint64_t)SEGMENT_SIZE)
		r = find_parts(c, size, &parts);
	while (r == 0 && parts.nr > 0) {
		r = set_size(c, parts.end[--parts.nr]);
		if (r == 0)
			r = cancel_check();
	}
	return r < 0 ? r : set_size(c, size);
}

/* `keeps_times`: the file does not change, since its bytes are kept in another place. */
int content_erase_range(struct content *c, uint64_t off, uint64_t len, bool keeps_times)
{
	uint64_t end = off + len, to = off;
	int r;

	do {
		content_lock_quiet(c);
		end = MIN(end, c->logged.size);
		off = MIN(to, end);
		r = part_end(c, off, end, &to);
		if (r == 0 && (to > off || !keeps_times)) { /* of an inode that was removed meanwhile there is nothing to log */
			struct replace rp = replace_nothing(c);

			rp.mtime_ns = keeps_times ? c->logged.mtime_ns : rp.ctime_ns;
			rp.ctime_ns = keeps_times ? c->logged.ctime_ns : rp.ctime_ns;
			rp.off = off;
			rp.len = to - off;
			r = keeps_times ? log_and_show(c, &rp) : log_change(c, &rp);
		}
		content_unlock_quiet(c);
		if (r == 0 && to < end)
			r = cancel_check();
	} while (r == 0 && to < end);
	return r;
}

int content_punch(struct content *c, uint64_t off, uint64_t len)
{
	return content_erase_range(c, off, len, false);
}

int content_allocate(struct content *c, uint64_t off, uint64_t len, bool extend)
{
	struct replace rp;
	int r;

	if (off > CONTENT_MAX_SIZE || len > CONTENT_MAX_SIZE - off)
		return -EFBIG;
	if (c->e->read_only || c->is_away)
		return c->e->read_only ? -EROFS : -EREMOTE;
	r = len > 0 ? content_reserve(c, off, off + len) : 0;
	if (r < 0)
		return r;
	content_lock_quiet(c);
	rp = replace_nothing(c);
	if (extend && off + len > c->logged.size) {
		rp.size = off + len;
		rp.mtime_ns = rp.ctime_ns;
	}
	r = log_change(c, &rp);
	content_unlock_quiet(c);
	return r;
}

void content_allocate_end(struct content *c)
{
	mutex_lock(&c->lock);
	content_release_space(c);
	mutex_unlock(&c->lock);
}

int content_set_times(struct content *c, int64_t mtime_ns, int64_t ctime_ns)
{
	struct replace rp;
	int r = log_admit_growth(c->e, RECORD_BYTES);

	if (r < 0)
		return r;
	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = mtime_ns;
	rp.ctime_ns = ctime_ns;
	r = log_and_show(c, &rp);
	if (r == 0)
		c->times_changed = false;
	content_unlock_quiet(c);
	return r;
}

int content_restore_times(struct content *c, int64_t mtime_ns, int64_t ctime_ns)
{
	struct replace rp;
	bool changed;
	int r = 0;

	mutex_lock(&c->lock);
	changed = c->times_changed;
	mutex_unlock(&c->lock);
	if (!changed)
		return 0;
	content_lock_quiet(c);
	if (c->times_changed && !c->dropped) {
		rp = replace_nothing(c);
		rp.mtime_ns = c->set_mtime_ns != 0 ? c->set_mtime_ns : mtime_ns;
		rp.ctime_ns = c->set_mtime_ns != 0 ? c->set_ctime_ns : ctime_ns;
		r = log_and_show(c, &rp);
	}
	if (r == 0)
		c->times_changed = false;
	content_unlock_quiet(c);
	return r;
}

void content_keep_times(struct content *c)
{
	mutex_lock(&c->lock);
	c->times_changed = false;
	mutex_unlock(&c->lock);
}

/* Append the extents of [from, to) of a segment. */
static int add_extents(const struct segment *s, uint32_t from, uint32_t to, int64_t shift, struct extent_list *ret)
{
	size_t first = segment_find(s, from), after = segment_find(s, to);
	struct extent edge;
	int r = 0;

	if (first < s->nr && s->x[first].off < from) { /* its end, or a middle part */
		edge = s->x[first++];
		edge.addr.off += from - edge.off;
		edge.len = MIN(edge.off + edge.len, to) - from;
		r = extent_list_add(ret, (uint32_t)(from + shift), edge.len, edge.addr);
	}
	if (r == 0 && first < after)
		r = extent_list_append(ret, s->x + first, after - first, shift);
	if (r == 0 && after >= first && after < s->nr && s->x[after].off < to) {
		edge = s->x[after];
		r = extent_list_add(ret, (uint32_t)(edge.off + shift), to - edge.off, edge.addr);
	}
	return r;
}

int content_extents(struct content *c, uint64_t off, uint64_t len, struct extent_list *ret)
{
	uint64_t end = off + len;
	struct segment *s;
	int r;

	assert(mutex_held(&c->lock));
	if (c->is_away)
		return -EREMOTE;
	for (uint64_t n = off / SEGMENT_SIZE; n * SEGMENT_SIZE < end; n++) {
		uint64_t base = n * SEGMENT_SIZE;

		r = content_segment(c, n, false, &s);
		if (r < 0)
			return r;
		if (r > 0)
			r = add_extents(s, (uint32_t)(MAX(base, off) - base),
					(uint32_t)(MIN(base + SEGMENT_SIZE, end) - base), (int64_t)(base - off), ret);
		if (r < 0)
			return r;
	}
	return 0;
}

uint64_t content_logged_size(struct content *c)
{
	uint64_t size;

	mutex_lock(&c->lock);
	size = c->logged.size;
	mutex_unlock(&c->lock);
	return size;
}

int content_logged_extents(struct content *c, uint64_t start, uint64_t *end, struct extent_list *ret)
{
	int r;

	mutex_lock(&c->lock);
	*end = MIN(*end, c->logged.size);
	r = start < *end && !c->is_away ? content_extents(c, start, *end - start, ret) : 0;
	mutex_unlock(&c->lock);
	return r;
}

int content_hole_end(struct content *c, uint64_t off, uint64_t end, uint64_t *ret)
{
	uint64_t n;
	int r;

	assert(mutex_held(&c->lock));
	if (c->is_away)
		return -EREMOTE;
	r = off < end ? content_next_segment(c, off / SEGMENT_SIZE, &n) : 0;
	if (r < 0)
		return r;
	if (r > 0 && n <= end / SEGMENT_SIZE)
		end = MIN(n * SEGMENT_SIZE, end);
	*ret = MAX(off, end);
	return 0;
}

int content_list_extents(struct content *c, uint64_t off, struct extent_list *ret, uint64_t *ret_end)
{
	uint64_t size, end = off;
	int r = 0;

	content_lock_quiet(c);
	size = c->logged.size;
	if (off < size) {
		end = MIN(size, off + SEGMENT_SIZE);
		r = content_extents(c, off, end - off, ret);
		if (r == 0 && ret->nr == 0)
			r = content_hole_end(c, end, size, &end);
	}
	content_unlock_quiet(c);
	if (r < 0)
		return r;
	*ret_end = end;
	return end > off;
}

int content_set_extents(struct content *c, uint64_t off, uint64_t len, const struct extent_list *l)
{
	struct replace rp;
	int r;

	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = rp.ctime_ns;
	rp.size = MAX(c->logged.size, off + len);
	rp.off = off;
	rp.len = len;
	rp.x = l->x;
	rp.nr = l->nr;
	r = log_change(c, &rp);
	content_unlock_quiet(c);
	return r;
}

/* Start and end of the extent that covers `at`, or of the next one. 1/0/<0. */
static int next_data(struct content *c, uint64_t at, uint64_t *ret_start, uint64_t *ret_end) REQUIRES(c->lock)
{
	uint64_t n = at / SEGMENT_SIZE;
	struct segment *s;
	int r;

	while ((r = content_next_segment(c, n, &n)) > 0) {
		size_t i;

		r = content_segment(c, n, false, &s);
		if (r < 0)
			return r;
		i = r == 0 ? 0 : segment_find(s, n == at / SEGMENT_SIZE ? (uint32_t)(at % SEGMENT_SIZE) : 0);
		if (r > 0 && i < s->nr) {
			*ret_start = n * SEGMENT_SIZE + s->x[i].off;
			*ret_end = *ret_start + s->x[i].len;
			return 1;
		}
		n++;
	}
	return r;
}

#define SEGMENTS_AT_ONCE 64u /* per hold of the file's lock */
#define HOLDS_MAX 256u /* per SEEK_HOLE: 16 GiB */

/* Advance *off to the end of the data that contains it. 1: stopped early, more may follow; 0; <0. */
static int skip_data(struct content *c, uint64_t *off) REQUIRES(c->lock)
{
	uint64_t start, end, limit = *off + SEGMENTS_AT_ONCE * (uint64_t)SEGMENT_SIZE;
	int r;

	while ((r = next_data(c, *off, &start, &end)) > 0 && start <= *off) {
		*off = end;
		if (end >= limit)
			return 1;
	}
	return MIN(r, 0);
}

/*
 * The kernel locks the file's inode for the duration of the request: its writers wait, and so do all users of a directory
 * from which the file is being removed. So the work is limited. Where more than 16 GiB without a hole follow, the result
 * is the end of the file, as in filesystems that do not report holes. The range is remembered: many readers that ask
 * again cost one search per change of the file, and each continues the search of the last one.
 */
static int seek_hole(struct content *c, uint64_t off, uint64_t *ret) REQUIRES(c->lock) REQUIRES_SHARED(view_lock)
{
	uint64_t start = off, as_of = c->log_end;
	bool is_whole = false;
	int r = content_catch_up(c, SIZE_MAX); /* the number of mapped bytes is exact then */

	if (r < 0)
		return r;
	if (c->logged.mapped == c->logged.size) { /* no holes */
		*ret = c->logged.size;
		return 0;
	}
	if (c->data_run.as_of == as_of && c->data_run.start <= off && off < c->data_run.end) {
		start = c->data_run.start;
		off = c->data_run.end;
		is_whole = c->data_run.is_whole;
	}
	for (unsigned nr = 1; !is_whole && (r = skip_data(c, &off)) > 0 && nr < HOLDS_MAX; nr++) {
		content_unlock_quiet(c); /* let other users of view_lock proceed */
		content_lock_quiet(c);
	}
	if (r < 0)
		return r;
	if (c->log_end == as_of) {
		c->data_run.as_of = as_of;
		c->data_run.start = start;
		c->data_run.end = off;
		c->data_run.is_whole = r == 0;
	}
	*ret = r > 0 ? c->logged.size : MIN(off, c->logged.size);
	return 0;
}

int content_seek(struct content *c, uint64_t off, int whence, uint64_t *ret)
{
	uint64_t size, start = 0, end = 0;
	int r;

	content_lock_quiet(c);
	size = c->logged.size;
	if (off >= size) {
		r = -ENXIO;
	} else if (whence == SEEK_DATA) {
		r = next_data(c, off, &start, &end);
		r = r == 0 || (r > 0 && start >= size) ? -ENXIO : r;
		*ret = r > 0 ? MAX(start, off) : *ret;
	} else {
		r = seek_hole(c, off, ret);
	}
	if (c->is_away) /* perhaps only since the search began */
		r = -EREMOTE;
	content_unlock_quiet(c);
	return MIN(r, 0);
}

/* Hash each chunk's file offset and fingerprint. The result must not depend on how chunks are grouped into extents. */
static int fold_extent(struct engine *e, const struct extent *x, uint64_t base, struct fp *state)
{
	uint32_t done = 0;

	while (done < x->len) {
		struct addr a = x->addr, start;
		uint8_t bytes[2 * FP_LEN + 8];
		uint32_t len;
		struct fp fp;
		int r;

		a.off += done;
		r = packs_chunk_at(e->packs, a, &start, &len, &fp);
		if (r <= 0)
			return r < 0 ? r : -EBADMSG;
		fp_encode(*state, bytes);
		fp_encode(fp, bytes + FP_LEN);
		be64_put(bytes + 2 * FP_LEN, base + x->off + done);
		*state = fp_of(&e->key, bytes, sizeof(bytes));
		done += len - (a.off - start.off);
	}
	return 1;
}

/* No earlier extent of the segment is in the same frame: a read of 1 MiB visits each frame once. */
static bool is_first_of_frame(const struct segment *s, size_t i)
{
	for (size_t k = i; k-- > 0;)
		if (pack_same_frame(s->x[k].addr, s->x[i].addr))
			return false;
	return true;
}

/* Add the next segments from *at on. 1: more may follow at *at; 0: done. */
static int info_of_some(struct content *c, uint64_t *at, struct content_info *info) REQUIRES(c->lock)
{
	uint64_t start, end;
	int r = 1;

	for (unsigned nr = 0; nr < SEGMENTS_AT_ONCE && r > 0; nr++) {
		uint32_t off;
		struct segment *s;

		r = next_data(c, *at, &start, &end);
		if (r <= 0)
			return r;
		off = (uint32_t)(start % SEGMENT_SIZE);
		r = content_segment(c, start / SEGMENT_SIZE, false, &s);
		for (size_t i = r > 0 ? segment_find(s, off) : 0; r > 0 && i < s->nr; i++) {
			info->extents++;
			info->frames += is_first_of_frame(s, i);
			r = fold_extent(c->e, &s->x[i], s->number * SEGMENT_SIZE, &info->fingerprint);
		}
		*at = (start / SEGMENT_SIZE + 1) * SEGMENT_SIZE;
	}
	return r;
}

static bool is_durable(struct content *c) REQUIRES(c->lock)
{
	return log_is_committed(c->e, c->log_end);
}

#define RESTARTS_MAX 4u /* for a file that is being written */

int content_info(struct content *c, struct content_info *ret)
{
	struct content_info info = { 0 };
	uint64_t at = 0, log_end;
	unsigned nr_restarts = 0;
	int r = 1;

	content_lock_quiet(c);
	(void)content_catch_up(c, SIZE_MAX); /* if this fails, the calls below fail too */
	log_end = c->log_end;
	while (r > 0 && (r = info_of_some(c, &at, &info)) > 0) {
		content_unlock_quiet(c); /* let other users of view_lock proceed */
		r = cancel_check();
		content_lock_quiet(c);
		if (r == 0 && c->log_end != log_end && nr_restarts++ < RESTARTS_MAX) {
			info = (struct content_info){ 0 };
			at = 0;
			log_end = c->log_end;
		}
		r = r < 0 ? r : 1;
	}
	info.size = c->logged.size;
	info.mapped = c->logged.mapped;
	info.durable = is_durable(c);
	if (c->is_away) /* perhaps only since the first segment */
		r = -EREMOTE;
	content_unlock_quiet(c);
	if (r < 0)
		return r;
	info.fingerprint.lo ^= info.size; /* account for a hole at the end */
	info.fingerprint = fp_veiled(&c->e->key, info.fingerprint);
	*ret = info;
	return 0;
}
