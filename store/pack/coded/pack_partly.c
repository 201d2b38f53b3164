/*
 * Frames of which some chunks are elsewhere. pack.h tells the order; here is what is on disk when:
 *
 *   written partly   the table, and the blocks that hold a byte of a chunk that is here; the others are holes
 *   settled          the blocks of those that had to be here after all, too
 *
 * The table is the same in both, written once. So nothing that was durable before is touched by settling, and a crash
 * in the middle of it harms nobody: until the caller has noted that these chunks are here, they count as gone.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

/* Does the block hold a byte of a chunk that is here? */
static void blocks_here(const struct pack_cuts *cuts, const uint64_t away[PACK_GONE_WORDS], bool ret[PACK_FRAME_BLOCKS])
{
	memset(ret, 0, PACK_FRAME_BLOCKS * sizeof(*ret));
	for (uint32_t i = 0; i < cuts->nr_chunks; i++) {
		uint32_t first = pack_cut_start(cuts, i) / PACK_BLOCK, last = (pack_cut_end(cuts, i) - 1) / PACK_BLOCK;

		for (uint32_t b = first; !pack_is_away(away, i) && b <= last; b++)
			ret[b] = true;
	}
}

/* Runs of the blocks that are in `now` and were not `before`. *ret: how many. */
static int write_blocks(struct pack_frame *f, const bool *now, const bool *before, uint32_t *ret)
{
	*ret = 0;
	for (uint32_t b = 0, n; b < PACK_FRAME_BLOCKS; b += n) {
		int r;

		n = 1;
		if (!now[b] || before[b])
			continue;
		while (b + n < PACK_FRAME_BLOCKS && now[b + n] && !before[b + n])
			n++;
		io_rate_wait(f->packs->conf.write_rate, (uint64_t)n * PACK_BLOCK);
		r = io_pwrite(f->file->fd, f->buffer->data + (size_t)b * PACK_BLOCK, (size_t)n * PACK_BLOCK,
			      pack_data_off(f->frame) + (uint64_t)b * PACK_BLOCK);
		if (r < 0)
			return r;
		*ret += n;
	}
	return 0;
}

static int write_table_and_blocks(struct pack_frame *f, const bool *here, uint32_t *ret_blocks)
{
	static const bool none[PACK_FRAME_BLOCKS];
	static const struct pack_coding plain;
	uint32_t total = table_total(f->table);
	int r;

	memset(f->buffer->data + total, 0, round_up(total, PACK_BLOCK) - total);
	packs_frame_encode(f, &plain, &f->buffer->table);
	r = io_pwrite(f->file->fd, &f->buffer->table, PACK_BLOCK, pack_table_off(f->frame));
	return r < 0 ? r : write_blocks(f, here, none, ret_blocks);
}

int packs_frame_write_partly(struct packs *p, struct pack_frame *f, const uint64_t away[PACK_GONE_WORDS])
{
	static const struct pack_coding plain;
	struct pack_cuts cuts = table_cuts(f->table);
	bool here[PACK_FRAME_BLOCKS];
	uint32_t nr_blocks;
	int r;

	assert(f->buffer && cuts.nr_chunks > 0);
	mutex_lock(&p->lock);
	f->error = 0;
	mutex_unlock(&p->lock);
	blocks_here(&cuts, away, here);
	f->tried = true;
	r = write_table_and_blocks(f, here, &nr_blocks);
	if (r < 0)
		return packs_frame_failed(p, f, r);
	memcpy(f->away, away, sizeof(f->away));
	packs_frame_count(p, f, &plain, nr_blocks * PACK_BLOCK);
	return 0;
}

int packs_frame_settle(struct packs *p, struct pack_frame *f, const uint64_t away[PACK_GONE_WORDS])
{
	static const struct pack_coding plain;
	struct pack_cuts cuts = table_cuts(f->table);
	bool before[PACK_FRAME_BLOCKS], now[PACK_FRAME_BLOCKS];
	uint32_t nr_blocks;
	int r;

	blocks_here(&cuts, f->away, before);
	blocks_here(&cuts, away, now);
	r = write_blocks(f, now, before, &nr_blocks);
	if (r == 0 && nr_blocks > 0)
		r = io_sync(f->file->fd);
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot write what no other node has",
				 f->file->pack, f->frame);
	p->written_bytes += (uint64_t)nr_blocks * PACK_BLOCK;
	mutex_lock(&p->lock);
	p->counts.stored_bytes += (uint64_t)nr_blocks * PACK_BLOCK;
	packs_count_disk(p, f->file, f->file->disk_bytes + (uint64_t)nr_blocks * PACK_BLOCK);
	mutex_unlock(&p->lock);
	pack_tables_written(p->tables, f->table, &plain, away);
	packs_frame_free(f);
	return 0;
}

void packs_frame_leave(struct packs *p, struct pack_frame *f)
{
	static const struct pack_coding plain;

	pack_tables_written(p->tables, f->table, &plain, f->away);
	packs_frame_free(f);
}

void pack_frame_place(const struct pack_frame *f, uint32_t *ret_pack, uint32_t *ret_frame)
{
	*ret_pack = f->file->pack;
	*ret_frame = f->frame;
}

uint32_t pack_frame_nr(const struct pack_frame *f)
{
	return table_nr_chunks(f->table);
}

struct fp pack_frame_fp(const struct pack_frame *f, uint32_t i)
{
	return table_fp(f->table, i);
}

uint32_t pack_frame_len(const struct pack_frame *f, uint32_t i)
{
	struct pack_cuts cuts = table_cuts(f->table);

	return pack_cut_len(&cuts, i);
}
