/*
 * Changes of ranges without new bytes: size, holes, times; and questions about ranges. Clones: clone.c.
 * Each settles the file first, then is one record in the log.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/le.h"
#include "base/util.h"
#include "store/engine/engine_internal.h"

/* Nothing changes but what the caller sets afterwards. */
static struct replace replace_nothing(const struct content *c)
{
	return (struct replace){
		.ino = c->ino,
		.size = c->logged.size,
		.mtime_ns = c->logged.mtime_ns,
		.ctime_ns = (int64_t)now_ns(),
	};
}

static int log_and_show(struct content *c, const struct replace *rp) REQUIRES(c->lock)
{
	int r = c->e->conf.read_only ? -EROFS : content_log(c, rp, 1);

	if (r == 0)
		c->live = c->logged;
	return r;
}

int content_truncate(struct content *c, uint64_t size)
{
	struct replace rp;
	bool grows;
	int r;

	if (size > CONTENT_MAX_SIZE)
		return -EFBIG;
	mutex_lock(&c->lock);
	grows = size > c->live.size;
	mutex_unlock(&c->lock);
	r = grows ? log_admit_growth(c->e, RECORD_BYTES) : 0; /* the others free something */
	if (r < 0)
		return r;
	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = rp.ctime_ns;
	rp.size = size;
	if (size < c->logged.size) {
		rp.off = size;
		rp.len = c->logged.size - size;
	}
	r = log_and_show(c, &rp);
	content_unlock_quiet(c);
	return r;
}

int content_punch(struct content *c, uint64_t off, uint64_t len)
{
	struct replace rp;
	int r;

	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = rp.ctime_ns;
	rp.off = MIN(off, c->logged.size);
	rp.len = MIN(len, c->logged.size - rp.off);
	r = log_and_show(c, &rp);
	content_unlock_quiet(c);
	return r;
}

int content_allocate(struct content *c, uint64_t off, uint64_t len, bool extend)
{
	struct replace rp;
	int r;

	if (off > CONTENT_MAX_SIZE || len > CONTENT_MAX_SIZE - off)
		return -EFBIG;
	r = space_check(c->e, len);
	if (r < 0)
		return r;
	content_lock_quiet(c);
	rp = replace_nothing(c);
	if (extend && off + len > c->logged.size) {
		rp.size = off + len;
		rp.mtime_ns = rp.ctime_ns;
	}
	r = log_and_show(c, &rp);
	content_unlock_quiet(c);
	return r;
}

int content_set_mtime(struct content *c, int64_t mtime_ns)
{
	struct replace rp;
	int r = log_admit_growth(c->e, RECORD_BYTES);

	if (r < 0)
		return r;
	content_lock_quiet(c);
	rp = replace_nothing(c);
	rp.mtime_ns = mtime_ns;
	r = log_and_show(c, &rp);
	content_unlock_quiet(c);
	return r;
}

/* Those of [from, to) of a segment. */
static int add_extents(const struct segment *s, uint32_t from, uint32_t to, int64_t shift, struct extent_list *ret)
{
	size_t first = segment_find(s, from), after = segment_find(s, to);
	struct extent edge;
	int r = 0;

	if (first < s->nr && s->x[first].off < from) { /* all of it but the beginning, or what is left of that */
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

int content_set_extents(struct content *c, uint64_t off, uint64_t len, const struct extent_list *l)
{
	struct replace rp = replace_nothing(c);

	assert(mutex_held(&c->lock));
	rp.mtime_ns = rp.ctime_ns;
	rp.size = MAX(c->logged.size, off + len);
	rp.off = off;
	rp.len = len;
	rp.x = l->x;
	rp.nr = l->nr;
	return log_and_show(c, &rp);
}

/* Where the extent that covers `at`, or else the next one, starts and ends. 1/0/<0. */
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
		while ((r = next_data(c, off, &start, &end)) > 0 && start <= off)
			off = end;
		*ret = r < 0 ? *ret : MIN(off, size);
	}
	content_unlock_quiet(c);
	return MIN(r, 0);
}

/* Fold in, chunk by chunk, where it lies in the file and its fingerprint: how chunks make up extents must not show. */
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

/* No extent before it in the segment lies in the same frame: a read of 1 MiB visits each frame once. */
static bool is_first_of_frame(const struct segment *s, size_t i)
{
	for (size_t k = i; k-- > 0;)
		if (pack_same_frame(s->x[k].addr, s->x[i].addr))
			return false;
	return true;
}

int content_info(struct content *c, struct content_info *ret)
{
	struct content_info info = { 0 };
	uint64_t at = 0, start, end;
	struct engine *e = c->e;
	int r;

	content_lock_quiet(c);
	(void)content_catch_up(c, SIZE_MAX); /* what it fails with, so does the next */
	info.size = c->logged.size;
	info.mapped = c->logged.mapped;
	while ((r = next_data(c, at, &start, &end)) > 0) {
		uint32_t off = (uint32_t)(start % SEGMENT_SIZE);
		struct segment *s;

		r = content_segment(c, start / SEGMENT_SIZE, false, &s);
		if (r <= 0)
			break;
		for (size_t i = segment_find(s, off); i < s->nr && r > 0; i++) {
			info.extents++;
			info.frames += is_first_of_frame(s, i);
			r = fold_extent(e, &s->x[i], s->number * SEGMENT_SIZE, &info.fingerprint);
		}
		if (r < 0)
			break;
		at = (start / SEGMENT_SIZE + 1) * SEGMENT_SIZE;
	}
	mutex_lock(&e->log.lock);
	info.durable = c->log_end <= e->log.committed;
	mutex_unlock(&e->log.lock);
	content_unlock_quiet(c);
	if (r < 0)
		return r;
	info.fingerprint.lo ^= info.size; /* a hole at the end counts too */
	info.fingerprint = fp_veiled(&e->key, info.fingerprint);
	*ret = info;
	return 0;
}
