/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Freeing disk space.
 *
 * No order and no sync is needed here: the caller guarantees that nothing refers to these bytes, now or after a crash,
 * so it does not matter whether they are still on disk. After a crash half-way the space is freed once more.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

static bool is_gone(const uint64_t *gone, uint32_t i)
{
	return gone[i / 64] >> i % 64 & 1;
}

static uint32_t run_of_gone(const uint64_t *gone, uint32_t from, uint32_t nr_chunks)
{
	uint32_t n = 0;

	while (from + n < nr_chunks && is_gone(gone, from + n))
		n++;
	return n;
}

/* Has any frame ever been compressed? If not, no table need be read. */
static bool has_compressed(struct packs *p)
{
	bool has;

	mutex_lock(&p->lock);
	has = p->counts.stored_bytes + p->later.stored_bytes != p->counts.chunk_bytes + p->later.chunk_bytes;
	mutex_unlock(&p->lock);
	return has;
}

static bool is_part_gone(const struct pack_cuts *cuts, uint32_t part, const uint64_t *gone)
{
	uint32_t start = part * PACK_PART_BYTES, end = start + pack_part_len(pack_cut_total(cuts), part);

	for (uint32_t i = pack_cut_at(cuts, start); i < cuts->nr_chunks && pack_cut_start(cuts, i) < end; i++)
		if (!is_gone(gone, i))
			return false;
	return true;
}

/* Parts (bit mask) that hold a remaining chunk, and the parts they are coded against. */
static uint32_t needed_parts(const struct pack_cuts *cuts, const struct pack_coding *coding, const uint64_t *gone)
{
	uint32_t plain_len = pack_cut_total(cuts), left = 0;

	for (uint32_t i = 0; i < pack_nr_parts(plain_len); i++)
		left |= is_part_gone(cuts, i, gone) ? 0 : 1u << i;
	return pack_with_bases(coding, plain_len, left);
}

/* Mark the blocks that contain bytes [from, to). */
static void set_blocks(uint32_t from, uint32_t to, bool *ret)
{
	for (uint32_t b = from / PACK_BLOCK; b * PACK_BLOCK < to; b++)
		ret[b] = true;
}

/* Blocks of the data needed for the remaining chunks. Chunks of varied lengths share blocks, and so do parts. */
static void needed_blocks(const struct pack_cuts *cuts, const struct pack_coding *coding, const uint64_t *gone,
			  bool ret[PACK_FRAME_BLOCKS])
{
	uint32_t plain_len = pack_cut_total(cuts), parts;

	memset(ret, 0, PACK_FRAME_BLOCKS * sizeof(*ret));
	if (coding->codec == PACK_CODEC_NONE) {
		for (uint32_t i = 0; i < cuts->nr_chunks; i++)
			if (!is_gone(gone, i))
				set_blocks(pack_cut_start(cuts, i), pack_cut_end(cuts, i), ret);
		return;
	}
	parts = needed_parts(cuts, coding, gone);
	for (uint32_t i = 0; i < pack_nr_parts(plain_len); i++)
		if (parts >> i & 1)
			set_blocks(pack_part_start(coding, i), coding->part_end[i], ret);
}

static int punch_blocks(struct pack_file *file, uint32_t frame, const struct pack_table *t, const uint64_t *gone)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint32_t nr = (uint32_t)round_up(pack_stored_len(&t->coding, pack_cut_total(&cuts)), PACK_BLOCK) / PACK_BLOCK;
	bool needed[PACK_FRAME_BLOCKS];
	int r = 0;

	needed_blocks(&cuts, &t->coding, gone, needed);
	for (uint32_t i = 0, end; i < nr && r >= 0; i = end + 1) {
		for (end = i; end < nr && !needed[end];)
			end++;
		if (end > i)
			r = io_punch(file->fd, pack_data_off(frame) + (uint64_t)i * PACK_BLOCK,
				     (uint64_t)(end - i) * PACK_BLOCK);
	}
	return r;
}

uint32_t pack_rec_disk(const struct pack_frame_rec *rec, const uint64_t gone[PACK_GONE_WORDS])
{
	struct pack_cuts cuts = { PACK_VARIED, rec->nr_chunks, rec->ends };
	struct pack_coding coding = { .codec = rec->codec };
	uint64_t unneeded[PACK_GONE_WORDS], here[PACK_GONE_WORDS] = { 0 };
	bool needed[PACK_FRAME_BLOCKS];
	uint32_t nr_blocks = 1;

	for (uint32_t i = 0; i < rec->nr_chunks; i++)
		here[i / 64] |= (uint64_t)!fp_is_none(rec->fps[i]) << i % 64;
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++) {
		unneeded[i] = ~here[i] | gone[i];
		here[i] &= ~gone[i];
	}
	if ((here[0] | here[1] | here[2] | here[3]) == 0)
		return 0;
	for (unsigned i = 0; i < PACK_GONE_WORDS; i++)
		unneeded[i] |= rec->remote[i];
	memcpy(coding.part_end, rec->part_end, sizeof(coding.part_end));
	memcpy(coding.base, rec->base, sizeof(coding.base));
	needed_blocks(&cuts, &coding, unneeded, needed);
	for (uint32_t i = 0; i < PACK_FRAME_BLOCKS; i++)
		nr_blocks += needed[i];
	return nr_blocks * PACK_BLOCK;
}

/* Load the table if it is needed: for the lengths of chunks, or how they are compressed. 1/0 there is none/<0. */
static int table_for(struct packs *p, struct pack_file *file, uint32_t frame, bool all, struct pack_table *t)
{
	uint32_t chunk_len = t->chunk_len, nr_chunks = t->nr_chunks;
	int r;

	if (chunk_len != PACK_VARIED && (all || !has_compressed(p)))
		return 1;
	r = packs_load_table(p, file, frame, t);
	return r > 0 && (t->chunk_len != chunk_len || t->nr_chunks != nr_chunks) ? -EINVAL : r;
}

/* Chunks that are gone no longer count as damaged. */
static void forget_damage(struct packs *p, uint32_t pack, uint32_t frame, const struct pack_cuts *cuts,
			  const uint64_t *gone)
{
	for (uint32_t i = 0; i < cuts->nr_chunks; i++)
		if (is_gone(gone, i)) {
			uint32_t off = pack_data_off(frame) + pack_cut_start(cuts, i);

			pack_places_remove(&p->damaged, pack, off);
			pack_places_remove(&p->replaced, pack, off);
		}
}

static uint64_t disk_bytes(const struct pack_file *file)
{
	struct stat st;

	return fstat(file->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

static void count_freed(struct packs *p, struct pack_file *file, uint64_t before, uint64_t now)
{
	mutex_lock(&p->lock);
	packs_count_disk(p, file, now);
	mutex_unlock(&p->lock);
	p->freed_bytes += before - MIN(before, now);
}

static int punch(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		 const uint64_t *gone, bool all)
{
	struct pack_table t = { .chunk_len = chunk_len, .nr_chunks = nr_chunks };
	struct pack_cuts cuts;
	struct pack_file *file;
	uint64_t before;
	int r;

	if (p->conf.read_only)
		return -EROFS;
	if ((chunk_len != PACK_VARIED && !pack_chunk_len_valid(chunk_len)) ||
	    nr_chunks > pack_nr_chunks_max(chunk_len) || frame >= PACK_FRAMES_MAX)
		return -EINVAL;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	r = table_for(p, file, frame, all, &t);
	cuts = pack_table_cuts(&t);
	before = disk_bytes(file);
	if (r > 0 && all)
		r = io_punch(file->fd, pack_table_off(frame), PACK_BLOCK + round_up(pack_cut_total(&cuts), PACK_BLOCK));
	else if (r > 0)
		r = punch_blocks(file, frame, &t, gone);
	if (r < 0) {
		log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot give space back", pack, frame);
	} else {
		count_freed(p, file, before, disk_bytes(file));
		forget_damage(p, pack, frame, &cuts, gone);
	}
	pack_file_put(p->files, file);
	return MIN(r, 0);
}

int packs_punch(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t gone[PACK_GONE_WORDS])
{
	return punch(p, pack, frame, chunk_len, nr_chunks, gone, run_of_gone(gone, 0, nr_chunks) == nr_chunks);
}

int packs_empty(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t unneeded[PACK_GONE_WORDS])
{
	return punch(p, pack, frame, chunk_len, nr_chunks, unneeded, false);
}

bool packs_end(struct packs *p, uint32_t pack, uint32_t nr_places)
{
	bool ended = false; /* stays false if the stream has moved on: the pack may have got more frames before */

	mutex_lock(&p->lock);
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++) {
		struct stream *st = &p->streams[s];

		if (st->at.pack != pack)
			continue;
		ended = st->at.nr_frames == nr_places;
		if (ended)
			pack_file_put(p->files, TAKE(st->file)); /* the next frame starts a new pack */
	}
	mutex_unlock(&p->lock);
	return ended;
}

int packs_remove(struct packs *p, uint32_t pack)
{
	struct pack_file *file;
	uint64_t before;
	int r;

	if (p->conf.read_only)
		return -EROFS;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	pack_places_add(&p->removed, pack, 0);
	before = disk_bytes(file);
	r = io_unlink(p->dirfd, pack_name(pack).s);
	if (r < 0 && r != -ENOENT) {
		log_errno(r, "pack %" PRIu32 ": cannot remove; the next mount will", pack);
	} else {
		count_freed(p, file, before, 0);
		p->nr_packs--;
		r = 0;
	}
	pack_file_put(p->files, file);
	pack_files_forget(p->files, pack);
	for (uint32_t frame = 0; frame < PACK_FRAMES_MAX; frame++)
		pack_tables_forget(p->tables, pack, frame);
	return r;
}

bool packs_is_removed(struct packs *p, uint32_t pack)
{
	return pack_places_has(&p->removed, pack, 0);
}

void packs_forget_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	pack_tables_forget(p->tables, pack, frame);
}
