/*
 * Giving space back to the disk.
 *
 * Nothing here needs an order or a sync: by the caller's word nobody refers to these bytes, now or after a crash, so it
 * does not matter whether the disk still has them. A crash in between leaves space to be given back once more.
 */
#include <errno.h>
#include <inttypes.h>
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

/* Whole blocks only: a chunk of varied length may share those at its ends with its neighbours. */
static int punch_chunks(struct pack_file *file, uint32_t frame, const struct pack_cuts *cuts, const uint64_t *gone)
{
	uint32_t n;
	int r = 0;

	for (uint32_t i = 0; i < cuts->nr_chunks && r >= 0; i += n + 1) {
		uint64_t from, to;

		n = run_of_gone(gone, i, cuts->nr_chunks);
		if (n == 0)
			continue;
		from = round_up(pack_cut_start(cuts, i), PACK_BLOCK);
		to = pack_cut_end(cuts, i + n - 1);
		to = i + n == cuts->nr_chunks ? round_up(to, PACK_BLOCK) : round_down(to, PACK_BLOCK);
		if (from < to)
			r = io_punch(file->fd, pack_data_off(frame) + from, to - from);
	}
	return r;
}

/* Has any frame ever been compressed? Else no table need be read. */
static bool has_compressed(struct packs *p)
{
	bool has;

	mutex_lock(&p->lock);
	has = p->counts.stored_bytes + p->later.stored_bytes != p->counts.chunk_bytes + p->later.chunk_bytes;
	mutex_unlock(&p->lock);
	return has;
}

static bool is_part_gone(const struct pack_table *t, uint32_t part, const uint64_t *gone)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint32_t start = part * PACK_PART_BYTES, end = start + pack_part_len(pack_cut_total(&cuts), part);

	for (uint32_t i = pack_cut_at(&cuts, start); i < t->nr_chunks && pack_cut_start(&cuts, i) < end; i++)
		if (!is_gone(gone, i))
			return false;
	return true;
}

/* Parts that nobody needs any more: nothing is left of them, nor of what is coded against them. */
static uint32_t unneeded_parts(const struct pack_table *t, uint32_t plain_len, const uint64_t *gone)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < pack_nr_parts(plain_len); i++)
		left |= is_part_gone(t, i, gone) ? 0 : 1u << i;
	return ~pack_with_bases(&t->coding, plain_len, left);
}

/* Of what was compressed together only that can go of which nothing is left, in whole blocks. */
static int punch_parts(struct pack_file *file, uint32_t frame, const struct pack_table *t, const uint64_t *gone)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint32_t nr = pack_nr_parts(pack_cut_total(&cuts)), end,
		 unneeded = unneeded_parts(t, pack_cut_total(&cuts), gone);
	int r = 0;

	for (uint32_t i = 0; i < nr && r >= 0; i = end + 1) {
		uint64_t from, to;

		for (end = i; end < nr && unneeded >> end & 1;)
			end++;
		if (end == i)
			continue;
		from = round_up(pack_part_start(&t->coding, i), PACK_BLOCK);
		to = t->coding.part_end[end - 1];
		to = end == nr ? round_up(to, PACK_BLOCK) : round_down(to, PACK_BLOCK);
		if (from < to)
			r = io_punch(file->fd, pack_data_off(frame) + from, to - from);
	}
	return r;
}

/* Its table, as far as it is needed: lengths of chunks and how they are compressed. 1/0 there is none/<0. */
static int table_for(struct packs *p, struct pack_file *file, uint32_t frame, bool all, struct pack_table *t)
{
	uint32_t chunk_len = t->chunk_len, nr_chunks = t->nr_chunks;
	int r;

	if (chunk_len != PACK_VARIED && (all || !has_compressed(p)))
		return 1;
	r = packs_load_table(p, file, frame, t);
	return r > 0 && (t->chunk_len != chunk_len || t->nr_chunks != nr_chunks) ? -EINVAL : r;
}

/* What is gone is not damaged any more. */
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

static void count_again(struct packs *p, struct pack_file *file)
{
	struct stat st;

	if (fstat(file->fd, &st) < 0)
		return;
	mutex_lock(&p->lock);
	packs_count_disk(p, file, (uint64_t)st.st_blocks * 512);
	mutex_unlock(&p->lock);
}

static int punch(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		 const uint64_t *gone, bool all)
{
	struct pack_table t = { .chunk_len = chunk_len, .nr_chunks = nr_chunks };
	struct pack_cuts cuts;
	struct pack_file *file;
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
	if (r > 0 && all)
		r = io_punch(file->fd, pack_table_off(frame), PACK_BLOCK + round_up(pack_cut_total(&cuts), PACK_BLOCK));
	else if (r > 0)
		r = t.coding.codec == PACK_CODEC_NONE ? punch_chunks(file, frame, &cuts, gone) :
							punch_parts(file, frame, &t, gone);
	if (r < 0) {
		log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot give space back", pack, frame);
	} else {
		count_again(p, file);
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

bool packs_end(struct packs *p, uint32_t pack, uint32_t nr_frames)
{
	bool ended = false; /* also of one that was ended otherwise: it may have got more before */

	mutex_lock(&p->lock);
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++) {
		struct stream *st = &p->streams[s];

		if (st->at.pack != pack)
			continue;
		ended = st->at.nr_frames == nr_frames;
		if (ended)
			pack_file_put(p->files, TAKE(st->file)); /* the next frame starts a new pack */
	}
	mutex_unlock(&p->lock);
	return ended;
}

int packs_remove(struct packs *p, uint32_t pack)
{
	struct pack_file *file;
	int r;

	if (p->conf.read_only)
		return -EROFS;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	pack_places_add(&p->removed, pack, 0);
	r = io_unlink(p->dirfd, pack_name(pack).s);
	if (r < 0 && r != -ENOENT) {
		log_errno(r, "pack %" PRIu32 ": cannot remove; the next mount will", pack);
	} else {
		mutex_lock(&p->lock);
		packs_count_disk(p, file, 0);
		mutex_unlock(&p->lock);
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
