/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Compares a frame on disk with its fingerprints, independently of memory: cached tables are not trusted, and tables
 * read by a scrub do not evict others.
 *
 *   1. read the table and everything that may follow it at once
 *   2. read each chunk that does not match once more, by itself: one unreadable block fails the whole read of step 1,
 *      and bytes may have been corrupted in transit only. repair_lock keeps damaged chunks from being overwritten
 *      meanwhile: a repair happens either before, and the chunk is good, or afterwards, and clears the damage
 *
 * Unreadable chunks count as damaged too: overwriting them lets a disk remap the block.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

struct look {
	struct packs *p;
	struct pack_file *file;
	uint32_t frame;
	struct pack_buffer *stored, *plain;
	uint32_t have; /* bytes of data that were read with the table */
	struct pack_table t;
	struct pack_cuts cuts;
	uint64_t *bad; /* the result: bit mask of damaged chunks */
};

/* Chunks that are gone or remote are skipped. */
static bool is_looked_at(const struct look *l, uint32_t i)
{
	return !fp_is_none(l->t.fps[i]) && !pack_is_remote(l->t.remote, i);
}

static bool is_bad(const struct look *l, uint32_t i)
{
	return l->bad[i / 64] >> i % 64 & 1;
}

static void set_bad(struct look *l, uint32_t i, bool bad)
{
	l->bad[i / 64] &= ~(UINT64_C(1) << i % 64);
	l->bad[i / 64] |= (uint64_t)bad << i % 64;
}

static bool any_bad(const struct look *l)
{
	return (l->bad[0] | l->bad[1] | l->bad[2] | l->bad[3]) != 0;
}

static struct addr chunk_addr(const struct look *l, uint32_t i)
{
	return (struct addr){ .pack = l->file->pack, .off = pack_data_off(l->frame) + pack_cut_start(&l->cuts, i) };
}

/* --- the table --- */

static void table_is_unreadable(struct look *l)
{
	pack_places_add(&l->p->damaged, l->file->pack, pack_table_off(l->frame));
}

/* 1/0 no table/<0 */
static int read_table(struct look *l)
{
	uint32_t pack = l->file->pack, off = pack_table_off(l->frame);
	ssize_t n = io_pread(l->file->fd, l->stored, PACK_BLOCK + PACK_FRAME_BYTES, off);
	int r = -EBADMSG;

	if (n >= (ssize_t)PACK_BLOCK) {
		l->have = (uint32_t)n - PACK_BLOCK;
		r = packs_check_table(l->p, pack, l->frame, &l->stored->table, PACK_BLOCK, &l->t);
	}
	if (r == -EBADMSG || r == -EOPNOTSUPP)
		r = packs_load_table(l->p, l->file, l->frame, &l->t);
	if (r > 0)
		pack_places_remove(&l->p->damaged, pack, off); /* the table is intact (again) */
	if (r == -EIO)
		table_is_unreadable(l);
	return r == -EIO || r == -EOPNOTSUPP ? -EBADMSG : r;
}

/* --- chunks --- */

static bool is_same(const struct look *l, uint32_t i, const uint8_t *bytes)
{
	return fp_is_of(l->p->conf.key, l->t.fps[i], bytes, pack_cut_len(&l->cuts, i));
}

/* Parts (bit mask) that contain chunk i. */
static uint32_t parts_of(const struct look *l, uint32_t i)
{
	uint32_t parts = 0;

	for (uint32_t k = pack_cut_start(&l->cuts, i) / PACK_PART_BYTES;
	     k * PACK_PART_BYTES < pack_cut_end(&l->cuts, i); k++)
		parts |= 1u << k;
	return parts;
}

/* Decode these parts to their place in the plain bytes. *ret_bad: parts that could not be decoded. */
static int read_parts(struct look *l, uint32_t parts, uint32_t have, uint32_t *ret_bad)
{
	struct part_read pr = {
		.packs = l->p,
		.file = l->file,
		.frame = l->frame,
		.plain_len = pack_cut_total(&l->cuts),
		.coding = &l->t.coding,
		.stored = l->stored,
		.spare = l->plain->data,
		.have = have,
	};
	int r;

	for (uint32_t k = 0; k < PACK_PARTS; k++)
		if (parts >> k & 1)
			pr.to[k] = l->plain->data + k * PACK_PART_BYTES;
	r = packs_read_parts(&pr);
	*ret_bad = r < 0 ? parts : pr.bad;
	return r == -ENOMEM ? r : 0;
}

/* Step 1. */
static int compare_all(struct look *l)
{
	bool is_plain = l->t.coding.codec == PACK_CODEC_NONE;
	uint32_t parts = 0, bad_parts = 0;
	int r;

	for (uint32_t i = 0; !is_plain && i < l->t.nr_chunks; i++)
		parts |= is_looked_at(l, i) ? parts_of(l, i) : 0;
	r = parts > 0 ? read_parts(l, parts, l->have, &bad_parts) : 0;
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < l->t.nr_chunks; i++) {
		const uint8_t *bytes = (is_plain ? l->stored : l->plain)->data + pack_cut_start(&l->cuts, i);
		bool there = is_plain ? pack_cut_end(&l->cuts, i) <= l->have : !(parts_of(l, i) & bad_parts);

		if (is_looked_at(l, i))
			set_bad(l, i, !there || !is_same(l, i, bytes));
	}
	return 0;
}

/* Verify one chunk by itself: read whole blocks, or the parts that contain it. 1: good. */
static int compare_one(struct look *l, uint32_t i)
{
	uint32_t start = pack_cut_start(&l->cuts, i), from = (uint32_t)round_down(start, PACK_BLOCK), bad_parts;
	uint32_t len = (uint32_t)round_up(pack_cut_end(&l->cuts, i), PACK_BLOCK) - from;
	int r;

	if (l->t.coding.codec != PACK_CODEC_NONE) {
		r = read_parts(l, parts_of(l, i), 0, &bad_parts);
		return r < 0 ? r : bad_parts == 0 && is_same(l, i, l->plain->data + start);
	}
	return io_pread(l->file->fd, l->plain->data, len, pack_data_off(l->frame) + (uint64_t)from) == (ssize_t)len &&
	       is_same(l, i, l->plain->data + (start - from));
}

/* Step 2. */
static int look_again(struct look *l)
{
	struct packs *p = l->p;
	int r = 0;

	mutex_lock(&p->repair_lock);
	for (uint32_t i = 0; i < l->t.nr_chunks && r >= 0; i++) {
		struct addr a = chunk_addr(l, i);

		if (!is_bad(l, i))
			continue;
		/* replaced chunks are not referenced any more */
		r = pack_places_has(&p->replaced, a.pack, a.off) ? 1 : compare_one(l, i);
		set_bad(l, i, r == 0);
		if (r == 0 && pack_places_add(&p->damaged, a.pack, a.off))
			log_error("pack %" PRIu32 " offset %" PRIu32 ": chunk %s is damaged", a.pack, a.off,
				  fp_hex(l->t.fps[i]).s);
	}
	mutex_unlock(&p->repair_lock);
	return MIN(r, 0);
}

/* Clear records of damage for chunks that are good. */
static void clear_good(struct look *l)
{
	for (uint32_t i = 0; l->p->damaged.nr > 0 && i < l->t.nr_chunks; i++) {
		struct addr a = chunk_addr(l, i);

		if (!is_bad(l, i) && is_looked_at(l, i))
			pack_places_remove(&l->p->damaged, a.pack, a.off);
	}
}

static int look_at_chunks(struct look *l, struct pack_scrub *ret)
{
	uint32_t stored;
	int r;

	l->cuts = pack_table_cuts(&l->t);
	stored = PACK_BLOCK + (uint32_t)round_up(pack_stored_len(&l->t.coding, pack_cut_total(&l->cuts)), PACK_BLOCK);
	r = compare_all(l);
	if (r == 0 && any_bad(l))
		r = look_again(l);
	if (r < 0)
		return r;
	clear_good(l);
	l->p->read_bytes += stored;
	ret->read_bytes = stored;
	io_rate_wait(l->p->conf.read_rate, stored);
	return 1;
}

/* --- a frame --- */

/* Without a table: was the frame freed, never written, or is it lost? */
static int look_at_nothing(struct look *l, struct pack_scrub *ret)
{
	struct packs *p = l->p;
	struct pack_fate fate;
	int r = packs_fate(p, l->file->pack, l->frame, &fate);

	if (r < 0 || r & PACK_GONE)
		return MIN(r, 0);
	ret->absent = true;
	return 1;
}

static int examine_frame(struct look *l, struct pack_scrub *ret)
{
	int r = read_table(l);

	ret->read_bytes = PACK_BLOCK;
	if (r == 0)
		return look_at_nothing(l, ret);
	if (r > 0)
		r = look_at_chunks(l, ret);
	if (r < 0 && r != -EBADMSG)
		return r;
	packs_fill_rec(l->file->pack, l->frame, r < 0 ? NULL : &l->t, &ret->rec);
	return 1;
}

/* Is the frame being filled or written, or did its write fail? */
static bool is_unwritten(struct packs *p, uint32_t pack, uint32_t frame)
{
	struct table_view v;
	bool is;

	if (!pack_tables_get(p->tables, pack, frame, 0, 0, &v))
		return false;
	is = v.frame || v.error < 0;
	pack_tables_put(p->tables, &v);
	return is;
}

int packs_scrub_frame(struct packs *p, uint32_t pack, uint32_t frame, struct pack_scrub *ret)
{
	struct look l = { .p = p, .frame = frame, .bad = ret->bad };
	int r;

	memset(ret->bad, 0, sizeof(ret->bad));
	ret->absent = false;
	ret->read_bytes = 0;
	packs_fill_rec(pack, frame, NULL, &ret->rec);
	if (frame >= packs_nr_frames(p, pack) || is_unwritten(p, pack, frame))
		return 0;
	r = packs_file_get(p, pack, &l.file);
	if (r <= 0)
		return r;
	l.stored = pack_buffer_get(&p->buffers);
	l.plain = pack_buffer_get(&p->buffers);
	r = l.stored && l.plain ? examine_frame(&l, ret) : -ENOMEM;
	pack_buffer_put(&p->buffers, l.stored);
	pack_buffer_put(&p->buffers, l.plain);
	pack_file_put(p->files, l.file);
	return r;
}

int packs_read_intact(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_buffer *stored,
		      struct pack_table *ret)
{
	uint64_t bad[PACK_GONE_WORDS] = { 0 };
	struct look l = { .p = p, .file = file, .frame = frame, .stored = stored, .bad = bad };
	ssize_t n = io_pread(file->fd, stored, PACK_BLOCK + PACK_FRAME_BYTES, pack_table_off(frame));
	int r;

	if (n < (ssize_t)PACK_BLOCK)
		return n < 0 && n != -EINVAL ? (int)n : 0;
	l.have = (uint32_t)n - PACK_BLOCK;
	r = packs_check_table(p, file->pack, frame, &stored->table, PACK_BLOCK, &l.t);
	if (r <= 0)
		return r == -EBADMSG ? 0 : r;
	l.cuts = pack_table_cuts(&l.t);
	l.plain = pack_buffer_get(&p->buffers);
	r = l.plain ? compare_all(&l) : -ENOMEM;
	pack_buffer_put(&p->buffers, l.plain);
	if (r < 0 || any_bad(&l))
		return MIN(r, 0);
	*ret = l.t;
	return 1;
}

int packs_scrub_header(struct packs *p, uint32_t pack)
{
	_Alignas(PACK_BLOCK) uint8_t block[PACK_BLOCK];
	struct pack_header h;
	struct pack_file *file;
	struct stat st;
	ssize_t n;
	bool is_there;
	int r;

	r = packs_file_get(p, pack, &file);
	if (r < 0)
		return r;
	if (r == 0)
		return packs_is_removed(p, pack) ? 0 : -ENOENT;
	is_there = fstat(file->fd, &st) < 0 || st.st_nlink > 0;
	n = io_pread(file->fd, block, sizeof(block), 0);
	pack_file_put(p->files, file);
	if (!is_there) /* an open file can still be read after it was unlinked */
		return packs_is_removed(p, pack) ? 0 : -ENOENT;
	r = n < 0 ? (int)n : pack_header_decode(block, (size_t)n, &h);
	if (r == 0 && (h.pack != pack || memcmp(h.store_id, p->conf.store_id, sizeof(h.store_id)) != 0))
		r = -EBADMSG;
	if (r < 0 && pack_places_add(&p->damaged, pack, 0))
		log_errno(r, "pack %" PRIu32 ": the header cannot be used", pack);
	if (r == 0)
		pack_places_remove(&p->damaged, pack, 0);
	return r < 0 ? -EBADMSG : 1;
}
