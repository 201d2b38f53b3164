/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Frames with remote chunks, for store/remote; not built without the cluster. pack.h describes the order of calls. On
 * disk are:
 *
 *   written partly   the table, and the blocks that hold a byte of a local chunk; the other blocks are holes
 *   settled          also the blocks of chunks that became local after all
 *
 * The table is the same in both states and is written once. So settling does not touch anything that was durable
 * before, and a crash during it does no harm: these chunks count as gone until the caller has recorded them as local.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

static int write_table_and_blocks(struct pack_frame *f, const bool *here, uint32_t *ret_blocks)
{
	static const bool none[PACK_FRAME_BLOCKS];
	static const struct pack_coding plain;
	uint32_t total = table_total(f->table);
	int r;

	memset(f->buffer->data + total, 0, round_up(total, PACK_BLOCK) - total);
	packs_frame_encode(f, &plain, &f->buffer->table);
	r = io_pwrite(f->file->fd, &f->buffer->table, PACK_BLOCK, pack_table_off(f->frame));
	return r < 0 ? r : pack_write_blocks(f->packs, f->file, f->frame, f->buffer->data, here, none, ret_blocks);
}

int packs_frame_write_partly(struct packs *p, struct pack_frame *f, const uint64_t remote[PACK_GONE_WORDS])
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
	pack_blocks_here(&cuts, remote, here);
	f->tried = true;
	r = write_table_and_blocks(f, here, &nr_blocks);
	if (r < 0)
		return packs_frame_failed(p, f, r);
	memcpy(f->remote, remote, sizeof(f->remote));
	packs_frame_count(p, f, &plain, nr_blocks * PACK_BLOCK);
	return 0;
}

int packs_frame_settle(struct packs *p, struct pack_frame *f, const uint64_t remote[PACK_GONE_WORDS])
{
	static const struct pack_coding plain;
	struct pack_cuts cuts = table_cuts(f->table);
	bool before[PACK_FRAME_BLOCKS], now[PACK_FRAME_BLOCKS];
	uint64_t failures = io_sync_failures();
	uint32_t nr_blocks;
	int r;

	pack_blocks_here(&cuts, f->remote, before);
	pack_blocks_here(&cuts, remote, now);
	r = pack_write_blocks(p, f->file, f->frame, f->buffer->data, now, before, &nr_blocks);
	if (r == 0 && nr_blocks > 0)
		r = io_sync_since(f->file->fd, failures);
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot write chunks that no other node has",
				 f->file->pack, f->frame);
	p->written_bytes += (uint64_t)nr_blocks * PACK_BLOCK;
	mutex_lock(&p->lock);
	p->counts.stored_bytes += (uint64_t)nr_blocks * PACK_BLOCK;
	packs_count_disk(p, f->file, f->file->disk_bytes + (uint64_t)nr_blocks * PACK_BLOCK);
	mutex_unlock(&p->lock);
	pack_tables_written(p->tables, f->table, &plain, remote);
	packs_frame_free(f);
	return 0;
}

void packs_frame_leave(struct packs *p, struct pack_frame *f)
{
	static const struct pack_coding plain;

	pack_tables_written(p->tables, f->table, &plain, f->remote);
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
