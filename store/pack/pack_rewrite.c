/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Rewrites unsynced frames after a failed sync.
 *
 * Frames leave memory when they are written, long before they are synced: the amount of unsynced data is bounded by the
 * speed of the disk, not by `dirty`. So the bytes to rewrite are read back from the disk. Each frame written since the
 * last marks is compared with its fingerprints and with the seal of its table. The seal detects an older frame at the
 * same place, left in blocks that the filesystem has allocated to the file again.
 *   intact   the drive or the page cache still has it, but perhaps only in memory that counts as clean: it is rewritten
 *            in place, and the sync that follows covers it like any write
 *   lost     recipes that were never committed refer to it. All further syncs of this mount fail, so nothing that
 *            depends on it is acknowledged, and the next mount continues from the last commit
 *
 * Partly written frames are still in memory and are written from there. Headers of new packs and wiped places are
 * rewritten as well. Crash: all of this is beyond the last marks, and is cut off.
 *
 * In-place repairs (packs_repair_chunk()) and the blocks written by packs_frame_settle() are synced by their writers,
 * which
 * start again if a sync fails.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

void packs_unsynced_add(struct packs *p, enum unsynced_kind kind, uint32_t pack, uint32_t frame, uint64_t number,
			uint64_t seal)
{
	assert(mutex_held(&p->lock));
	if (p->nr_unsynced == p->max_unsynced) {
		size_t max = MAX(2 * p->max_unsynced, (size_t)64);
		struct unsynced *more = realloc(p->unsynced, max * sizeof(*more));

		if (!more) {
			p->unnoted = MAX(p->unnoted, number);
			return;
		}
		p->unsynced = more;
		p->max_unsynced = max;
	}
	p->unsynced[p->nr_unsynced++] =
		(struct unsynced){ .kind = kind, .pack = pack, .frame = frame, .number = number, .seal = seal };
}

void packs_unsynced_done(struct packs *p)
{
	size_t n = 0;

	assert(mutex_held(&p->lock));
	for (size_t i = 0; i < p->nr_unsynced; i++)
		if (p->unsynced[i].number > p->sync_number)
			p->unsynced[n++] = p->unsynced[i];
	p->nr_unsynced = n;
	if (p->unnoted <= p->sync_number)
		p->unnoted = 0;
	p->synced_failures = p->sync_failures; /* not later ones: what is left may have been written before them */
}

/* Blocks that hold a byte of a local chunk. */
void pack_blocks_here(const struct pack_cuts *cuts, const uint64_t remote[PACK_GONE_WORDS], bool ret[PACK_FRAME_BLOCKS])
{
	memset(ret, 0, PACK_FRAME_BLOCKS * sizeof(*ret));
	for (uint32_t i = 0; i < cuts->nr_chunks; i++) {
		uint32_t first = pack_cut_start(cuts, i) / PACK_BLOCK, last = (pack_cut_end(cuts, i) - 1) / PACK_BLOCK;

		for (uint32_t b = first; !pack_is_remote(remote, i) && b <= last; b++)
			ret[b] = true;
	}
}

int pack_write_blocks(struct packs *p, struct pack_file *file, uint32_t frame, const uint8_t *data, const bool *now,
		      const bool *before, uint32_t *ret)
{
	*ret = 0;
	for (uint32_t b = 0, n; b < PACK_FRAME_BLOCKS; b += n) {
		int r;

		n = 1;
		if (!now[b] || before[b])
			continue;
		while (b + n < PACK_FRAME_BLOCKS && now[b + n] && !before[b + n])
			n++;
		io_rate_wait(p->conf.write_rate, (uint64_t)n * PACK_BLOCK);
		r = io_pwrite(file->fd, data + (size_t)b * PACK_BLOCK, (size_t)n * PACK_BLOCK,
			      pack_data_off(frame) + (uint64_t)b * PACK_BLOCK);
		if (r < 0)
			return r;
		*ret += n;
	}
	return 0;
}

/* A frame that is still in memory (packs_frame_write_partly()). */
static int rewrite_partly(struct packs *p, struct pack_frame *f)
{
	static const bool none[PACK_FRAME_BLOCKS];
	struct pack_cuts cuts = table_cuts(f->table);
	bool here[PACK_FRAME_BLOCKS];
	uint32_t nr_blocks;
	int r;

	pack_blocks_here(&cuts, f->remote, here);
	r = io_pwrite(f->file->fd, &f->buffer->table, PACK_BLOCK, pack_table_off(f->frame));
	return r < 0 ? r : pack_write_blocks(p, f->file, f->frame, f->buffer->data, here, none, &nr_blocks);
}

static int write_as_read(struct packs *p, struct pack_file *file, const struct unsynced *u,
			 const struct pack_buffer *stored, const struct pack_table *t)
{
	static const bool none[PACK_FRAME_BLOCKS];
	struct pack_cuts cuts = pack_table_cuts(t);
	bool here[PACK_FRAME_BLOCKS];
	uint32_t len, nr_blocks;
	int r;

	if (t->coding.codec != PACK_CODEC_NONE) {
		len = PACK_BLOCK + (uint32_t)round_up(pack_stored_len(&t->coding, pack_cut_total(&cuts)), PACK_BLOCK);
		io_rate_wait(p->conf.write_rate, len);
		return io_pwrite(file->fd, stored, len, pack_table_off(u->frame));
	}
	pack_blocks_here(&cuts, t->remote, here);
	r = io_pwrite(file->fd, stored, PACK_BLOCK, pack_table_off(u->frame));
	return r < 0 ? r : pack_write_blocks(p, file, u->frame, stored->data, here, none, &nr_blocks);
}

/* 1/0 lost/<0. Takes repair_lock, so that no chunk of the frame is repaired meanwhile. */
static int rewrite_from_disk(struct packs *p, struct pack_file *file, const struct unsynced *u)
{
	struct pack_buffer *stored = pack_buffer_get(&p->buffers);
	struct pack_table t;
	int r = -ENOMEM;

	mutex_lock(&p->repair_lock);
	if (stored)
		r = packs_read_intact(p, file, u->frame, stored, &t);
	if (r > 0 && le64_get(stored->table.seal) != u->seal)
		r = 0;
	if (r > 0) {
		r = write_as_read(p, file, u, stored, &t);
		r = r < 0 ? r : 1;
	}
	mutex_unlock(&p->repair_lock);
	pack_buffer_put(&p->buffers, stored);
	return r;
}

/* 1/0 lost/<0 */
static int rewrite_frame(struct packs *p, struct pack_file *file, const struct unsynced *u)
{
	struct table_view v;
	int r;

	if (pack_tables_get(p->tables, u->pack, u->frame, 0, 0, &v) && v.frame) {
		r = rewrite_partly(p, v.frame);
		pack_tables_put(p->tables, &v);
		return r < 0 ? r : 1;
	}
	return rewrite_from_disk(p, file, u);
}

/* 1/0 lost/<0 */
static int rewrite(struct packs *p, struct pack_file *file, const struct unsynced *u)
{
	int r;

	switch (u->kind) {
	case UNSYNCED_HEADER:
		r = pack_file_write_header(p->files, file);
		return r < 0 ? r : 1;
	case UNSYNCED_WIPED:
		r = packs_frame_wipe(file, u->frame);
		return r < 0 ? r : 1;
	case UNSYNCED_FRAME:
		break;
	}
	return rewrite_frame(p, file, u);
}

/* Rewrite one entry, without holding the lock. */
static int rewrite_one(struct packs *p, const struct unsynced *u)
{
	struct pack_file *file;
	int r = packs_file_get(p, u->pack, &file);

	if (r <= 0) /* a missing pack is lost with everything in it, unless it was removed */
		return r < 0 ? r : packs_is_removed(p, u->pack);
	r = rewrite(p, file, u);
	if (r < 0)
		log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot rewrite after a failed sync", u->pack,
			  u->frame);
	mutex_lock(&p->lock);
	packs_set_dirty(p, file);
	p->dir_dirty |= u->kind == UNSYNCED_HEADER;
	mutex_unlock(&p->lock);
	pack_file_put(p->files, file);
	return r;
}

/* Only the running sync removes entries, so those it covers keep their index while the lock is dropped. */
int packs_rewrite_unsynced(struct packs *p)
{
	unsigned nr_rewritten = 0;
	int r = 1;

	assert(mutex_held(&p->lock));
	if (p->lost < 0)
		return p->lost;
	for (size_t i = 0; i < p->nr_unsynced && r > 0; i++) {
		struct unsynced u = p->unsynced[i];

		if (u.number > p->sync_number)
			continue;
		mutex_unlock(&p->lock);
		r = rewrite_one(p, &u);
		if (r == 0)
			log_error("pack %" PRIu32 " frame %" PRIu32 ": lost by the disk in a failed sync: data "
				  "written since the last commit cannot become durable; unmount and mount again to return to it",
				  u.pack, u.frame);
		mutex_lock(&p->lock);
		nr_rewritten += r > 0;
	}
	if (r == 0 || p->unnoted > 0)
		p->lost = -EIO;
	if (nr_rewritten > 0)
		log_notice("packs: %u frames and headers rewritten after a failed sync", nr_rewritten);
	return MIN(r, p->lost);
}
