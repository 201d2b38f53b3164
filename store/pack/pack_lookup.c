/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Looks up the chunk at an address, with tables from memory or disk; repairs damaged chunks in place. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/codec/code.h"
#include "store/pack/packs_impl.h"

/* minimum range of a probably compressed frame that is worth reading together with the table */
#define AHEAD_MIN (PACK_FRAME_BYTES / 4)

int packs_fate(struct packs *p, uint32_t pack, uint32_t frame, struct pack_fate *ret)
{
	*ret = (struct pack_fate){ 0 };
	return p->conf.fate ? p->conf.fate(p->conf.userdata, pack, frame, ret) : 0;
}

/* Clear the fingerprints of chunks that are gone: they are never shared, and reading them is an error. */
static int read_fate(struct packs *p, uint32_t pack, uint32_t frame, struct pack_table *t)
{
	struct pack_fate fate;
	int r = packs_fate(p, pack, frame, &fate);

	if (r < 0)
		return r;
	memcpy(t->remote, fate.remote, sizeof(t->remote));
	for (uint32_t i = 0; r & PACK_GONE && i < t->nr_chunks; i++)
		if (fate.gone[i / 64] >> i % 64 & 1)
			t->fps[i] = FP_NONE;
	return 1;
}

/* Size of a full frame that compresses like this one; 0: this one is uncompressed. */
static uint32_t stored_of_whole(const struct pack_table *t)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint32_t plain = pack_cut_total(&cuts);

	if (t->coding.codec == PACK_CODEC_NONE || plain == 0)
		return 0;
	return (uint32_t)((uint64_t)pack_stored_len(&t->coding, plain) * PACK_FRAME_BYTES / plain);
}

int packs_check_table(struct packs *p, uint32_t pack, uint32_t frame, const void *block, size_t len,
		      struct pack_table *ret)
{
	int r;

	if (len == 0 || (len == PACK_BLOCK && pack_block_is_zero(block)))
		return 0;
	r = pack_table_decode(block, len, p->conf.key, pack, frame, ret);
	if (r < 0) {
		if (pack_places_add(&p->damaged, pack, pack_table_off(frame)))
			log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": table cannot be used", pack, frame);
		return r;
	}
	atomic_store_explicit(&p->likely_chunk_len, ret->chunk_len, memory_order_relaxed);
	atomic_store_explicit(&p->likely_stored, stored_of_whole(ret), memory_order_relaxed);
	r = read_fate(p, pack, frame, ret);
	if (r > 0)
		atomic_store_explicit(&p->likely_remote, pack_any_remote(ret->remote), memory_order_relaxed);
	return r;
}

int packs_load_table(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_table *ret)
{
	_Alignas(PACK_BLOCK) uint8_t block[PACK_BLOCK];
	ssize_t n;

	io_rate_wait(p->conf.read_rate, sizeof(block));
	n = io_pread(file->fd, block, sizeof(block), pack_table_off(frame));
	if (n == -EINVAL) /* the file ends inside the block, and direct I/O cannot continue there */
		n = 1;
	if (n < 0)
		return log_errno((int)n, "pack %" PRIu32 " frame %" PRIu32 ": cannot read table", file->pack, frame);
	p->read_bytes += (uint64_t)n;
	return packs_check_table(p, file->pack, frame, block, (size_t)n, ret);
}

/* Probable stored offset of a plain byte, behind the table. */
static uint64_t likely_place(uint32_t likely_stored, uint32_t in)
{
	return (uint64_t)likely_stored * in / PACK_FRAME_BYTES;
}

/*
 * 1: the table, and with it probably the stored bytes of [in, end), *ret_have bytes; 0: read the table alone; <0:
 * damaged. Does not read beyond `end`: requests for a file end anywhere in a frame, and the next request continues from
 * there.
 */
static int read_with_table(struct packs *p, struct pack_file *file, uint32_t frame, uint32_t in, uint32_t end,
			   struct pack_buffer **ret_stored, uint32_t *ret_have, struct pack_table *ret)
{
	uint32_t likely_stored = atomic_load_explicit(&p->likely_stored, memory_order_relaxed);
	uint64_t len = PACK_BLOCK + round_up(likely_place(likely_stored, end), PACK_BLOCK);
	ssize_t n;
	int r;

	if (likely_stored == 0 || end - in < AHEAD_MIN || likely_place(likely_stored, in) > PACK_SKIP_BYTES)
		return 0;
	*ret_stored = pack_buffer_get(&p->buffers);
	if (!*ret_stored)
		return -ENOMEM;
	io_rate_wait(p->conf.read_rate, len);
	n = io_pread(file->fd, *ret_stored, len, pack_table_off(frame));
	if (n < (ssize_t)PACK_BLOCK)
		return 0;
	p->read_bytes += (uint64_t)n;
	r = packs_check_table(p, file->pack, frame, &(*ret_stored)->table, PACK_BLOCK, ret);
	if (r > 0)
		*ret_have = (uint32_t)n - PACK_BLOCK;
	return r;
}

int packs_find_table(struct packs *p, struct pack_file *file, uint32_t frame, uint32_t in, uint32_t end,
		     struct pack_buffer **ret_stored, uint32_t *ret_have, struct pack_table *ret)
{
	int r = read_with_table(p, file, frame, in, end, ret_stored, ret_have, ret);

	if (r == 0)
		r = packs_load_table(p, file, frame, ret);
	if (r > 0)
		pack_tables_insert(p->tables, file->pack, frame, ret);
	return r;
}

/* Read a table from disk, cache it, and fill the view as pack_tables_get() would. */
static int find_on_disk(struct packs *p, uint32_t pack, uint32_t frame, struct table_view *ret)
{
	struct pack_table table;
	struct pack_file *file;
	int r;

	if (frame >= packs_nr_frames(p, pack))
		return 0;
	if (pack_places_has(&p->damaged, pack, pack_table_off(frame)))
		return -EBADMSG;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	r = packs_load_table(p, file, frame, &table);
	pack_file_put(p->files, file);
	if (r <= 0)
		return r;
	pack_tables_insert(p->tables, pack, frame, &table);
	ret->chunk_len = table.chunk_len;
	ret->nr_chunks = table.nr_chunks;
	ret->coding = table.coding;
	memcpy(ret->remote, table.remote, sizeof(ret->remote));
	memcpy(ret->fps, table.fps, table.nr_chunks * sizeof(*table.fps));
	if (table.chunk_len == PACK_VARIED)
		memcpy(ret->ends, table.ends, table.nr_chunks * sizeof(*table.ends));
	return 1;
}

/* Table of the frame that holds `len` bytes from `a`. 1, 0: no chunks there, <0. The view does not pin a frame. */
static int find_table(struct packs *p, struct addr a, uint32_t len, uint32_t *ret_frame, uint32_t *ret_in,
		      struct table_view *ret)
{
	if (a.node != 0 || !pack_place_of(a.off, ret_frame, ret_in))
		return 0;
	if (!pack_tables_get(p->tables, a.pack, *ret_frame, *ret_in, len, ret))
		return find_on_disk(p, a.pack, *ret_frame, ret);
	pack_tables_put(p->tables, ret);
	return ret->error == 0;
}

int packs_fps(struct packs *p, struct addr a, uint32_t chunk_len, unsigned n, struct fp *ret)
{
	struct table_view v;
	uint32_t frame, in;
	int r;

	if (!pack_chunk_len_valid(chunk_len) || n == 0 || n > PACK_FRAME_BYTES / chunk_len)
		return -EINVAL;
	r = find_table(p, a, n * chunk_len, &frame, &in, &v);
	if (r <= 0)
		return r;
	if (v.chunk_len != chunk_len || in % chunk_len != 0 || in / chunk_len >= v.nr_chunks)
		return 0;
	n = MIN(n, v.nr_chunks - in / chunk_len);
	memcpy(ret, &v.fps[in / chunk_len], n * sizeof(*ret));
	return (int)n;
}

int packs_chunks(struct packs *p, struct addr a, uint32_t len, unsigned n, struct pack_chunk *ret)
{
	struct pack_cuts cuts;
	struct table_view v;
	uint32_t frame, in, first, i = 0;
	int r;

	if (!pack_place_of(a.off, &frame, &in))
		return 0;
	len = MIN(len, PACK_FRAME_BYTES - in);
	r = find_table(p, a, len, &frame, &in, &v);
	if (r <= 0)
		return r;
	cuts = table_view_cuts(&v);
	first = pack_cut_at(&cuts, in);
	if (first >= v.nr_chunks || pack_cut_start(&cuts, first) != in)
		return 0;
	for (; i < n && first + i < v.nr_chunks && pack_cut_start(&cuts, first + i) < in + len; i++)
		ret[i] = (struct pack_chunk){
			.off = pack_data_off(frame) + pack_cut_start(&cuts, first + i),
			.len = pack_cut_len(&cuts, first + i),
			.fp = v.fps[first + i],
			.is_remote = pack_is_remote(v.remote, first + i),
		};
	return (int)i;
}

/* Frame that holds `a`, and the number of the chunk in it. */
static int find_chunk(struct packs *p, struct addr a, uint32_t *ret_frame, uint32_t *ret, struct table_view *ret_view)
{
	struct pack_cuts cuts;
	uint32_t in;
	int r = find_table(p, a, 1, ret_frame, &in, ret_view);

	if (r <= 0)
		return r;
	cuts = table_view_cuts(ret_view);
	*ret = pack_cut_at(&cuts, in);
	return *ret < ret_view->nr_chunks;
}

int packs_chunk_at(struct packs *p, struct addr a, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp)
{
	struct pack_cuts cuts;
	struct table_view v;
	uint32_t frame, i;
	int r;

	r = find_chunk(p, a, &frame, &i, &v);
	if (r <= 0)
		return r;
	cuts = table_view_cuts(&v);
	*ret_start = (struct addr){ .pack = a.pack, .off = pack_data_off(frame) + pack_cut_start(&cuts, i) };
	*ret_len = pack_cut_len(&cuts, i);
	*ret_fp = v.fps[i];
	return 1;
}

/* Stored size of plain bytes [from, to). */
static uint32_t stored_share(enum pack_codec codec, const uint32_t part_end[PACK_PARTS], uint32_t plain_len,
			     uint32_t from, uint32_t to)
{
	uint64_t stored = 0;

	if (codec == PACK_CODEC_NONE)
		return to - from;
	for (uint32_t i = from / PACK_PART_BYTES; i * PACK_PART_BYTES < to; i++) {
		uint32_t start = i * PACK_PART_BYTES, len = pack_part_len(plain_len, i);
		uint64_t part = part_end[i] - (i > 0 ? part_end[i - 1] : 0);

		stored += part * (MIN(to, start + len) - MAX(from, start)) / len;
	}
	return (uint32_t)stored;
}

uint32_t pack_rec_stored(const struct pack_frame_rec *rec, uint32_t from, uint32_t to)
{
	return stored_share(rec->codec, rec->part_end, pack_rec_start(rec, rec->nr_chunks), from, to);
}

int packs_chunk_info(struct packs *p, struct addr a, struct pack_chunk_info *ret)
{
	struct pack_cuts cuts;
	struct table_view v;
	uint32_t frame, i;
	int r;

	r = find_chunk(p, a, &frame, &i, &v);
	if (r <= 0)
		return r;
	cuts = table_view_cuts(&v);
	*ret = (struct pack_chunk_info){
		.start = { .pack = a.pack, .off = pack_data_off(frame) + pack_cut_start(&cuts, i) },
		.len = pack_cut_len(&cuts, i),
		.chunk_len = cuts.chunk_len,
		.fp = v.fps[i],
		.stored = stored_share(v.coding.codec, v.coding.part_end, pack_cut_total(&cuts),
				       pack_cut_start(&cuts, i), pack_cut_end(&cuts, i)),
		.codec = v.coding.codec,
		.is_remote = pack_is_remote(v.remote, i),
		.is_based = pack_has_bases(&v.coding),
	};
	return 1;
}

int packs_find(struct packs *p, struct addr hint, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp)
{
	struct pack_cuts cuts;
	struct table_view v;
	uint32_t frame, in, i;
	int r;

	if (!pack_place_of(hint.off, &frame, &in))
		return 0;
	r = find_table(p, hint, PACK_BLOCK, &frame, &in, &v);
	if (r <= 0)
		return r;
	cuts = table_view_cuts(&v);
	i = in / (v.chunk_len ? v.chunk_len : PACK_BLOCK);
	if (in % (v.chunk_len ? v.chunk_len : PACK_BLOCK) != 0 || i >= v.nr_chunks)
		return 0;
	hint.off = pack_data_off(frame) + pack_cut_start(&cuts, i);
	if (v.chunk_len == PACK_VARIED) /* only fingerprints around the hint were copied; the chunk lies elsewhere */
		return packs_chunk_at(p, hint, ret_start, ret_len, ret_fp);
	*ret_start = hint;
	*ret_len = v.chunk_len;
	*ret_fp = v.fps[i];
	return 1;
}

int packs_remote_number(struct packs *p, struct addr a, uint32_t *ret_frame, uint32_t *ret_number)
{
	struct table_view v;
	uint32_t frame, i;
	int r = find_chunk(p, a, &frame, &i, &v);

	if (r <= 0 || !pack_is_remote(v.remote, i))
		return MIN(r, 0);
	*ret_frame = frame;
	*ret_number = i;
	return 1;
}

int packs_is_remote(struct packs *p, struct addr a)
{
	uint32_t frame, number;

	return packs_remote_number(p, a, &frame, &number);
}

/* The first and last block of a chunk may also hold bytes of its neighbours, which are rewritten unchanged. */
static int read_edge(struct pack_file *file, uint64_t off, uint8_t *ret)
{
	ssize_t n = io_pread(file->fd, ret, PACK_BLOCK, off);

	return n == (ssize_t)PACK_BLOCK ? 0 : n < 0 ? (int)n : -EBADMSG;
}

/* Direct I/O needs aligned memory and whole blocks; the caller's buffer may be unaligned. */
static int write_chunk(struct packs *p, struct pack_file *file, uint32_t off, const void *data, uint32_t len)
{
	uint32_t from = (uint32_t)round_down(off, PACK_BLOCK), to = (uint32_t)round_up((uint64_t)off + len, PACK_BLOCK);
	struct pack_buffer *b = pack_buffer_get(&p->buffers);
	uint64_t failures = io_sync_failures();
	int r = 0;

	if (!b)
		return -ENOMEM;
	mutex_lock(&p->repair_lock);
	if (off > from)
		r = read_edge(file, from, b->data);
	if (r == 0 && off + len < to)
		r = read_edge(file, to - PACK_BLOCK, b->data + (to - from - PACK_BLOCK));
	if (r == 0) {
		memcpy(b->data + (off - from), data, len);
		io_rate_wait(p->conf.write_rate, to - from);
		r = io_pwrite(file->fd, b->data, to - from, from);
	}
	mutex_unlock(&p->repair_lock);
	pack_buffer_put(&p->buffers, b);
	if (r >= 0)
		r = io_sync_since(file->fd, failures);
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " offset %" PRIu32 ": cannot repair chunk", file->pack, off);
	p->written_bytes += len;
	return 0;
}

/* Read stored bytes [from, to) of a frame's data, in whole blocks, and decode the block header. */
static int read_stored(struct packs *p, struct addr a, uint32_t frame, uint32_t from, uint32_t to, struct code_header *ret)
{
	uint32_t off = (uint32_t)round_down(from, PACK_BLOCK), len = (uint32_t)round_up(to, PACK_BLOCK) - off;
	struct pack_buffer *b = pack_buffer_get(&p->buffers);
	struct pack_file *file = NULL;
	ssize_t n;
	int r = b ? packs_file_get(p, a.pack, &file) : -ENOMEM;

	if (r > 0) {
		n = io_pread(file->fd, b->data, len, pack_data_off(frame) + (uint64_t)off);
		r = n < 0	      ? (int)n :
		    (uint32_t)n < len ? -EBADMSG :
					code_header_decode(b->data + (from - off), to - from, ret);
		pack_file_put(p->files, file);
	} else if (r == 0) {
		r = -EBADMSG;
	}
	pack_buffer_put(&p->buffers, b);
	return r;
}

int packs_block_header(struct packs *p, struct addr a, struct code_header *ret, uint32_t *ret_in)
{
	struct table_view v;
	struct pack_cuts cuts;
	uint32_t frame, in, part, start, end;
	int r = find_table(p, a, 1, &frame, &in, &v);

	if (r <= 0)
		return r;
	cuts = table_view_cuts(&v);
	part = in / PACK_PART_BYTES;
	if (v.coding.codec != PACK_CODEC_CODED || in >= pack_cut_total(&cuts))
		return 0;
	start = pack_part_start(&v.coding, part);
	end = v.coding.part_end[part];
	if (end - start >= pack_part_len(pack_cut_total(&cuts), part))
		return 0;
	r = read_stored(p, a, frame, start, end, ret);
	if (r < 0)
		return r;
	*ret_in = in % PACK_PART_BYTES;
	return 1;
}

/* The frame must be written already. */
static int is_compressed(struct packs *p, struct addr a)
{
	struct table_view v;
	uint32_t frame, in;
	int r = find_table(p, a, 1, &frame, &in, &v);

	return r > 0 ? v.coding.codec != PACK_CODEC_NONE : r;
}

int packs_repair_chunk(struct packs *p, struct addr chunk, const void *data, uint32_t len)
{
	struct pack_file *file;
	struct addr start;
	uint32_t chunk_len;
	struct fp fp;
	int r;

	if (p->conf.read_only)
		return -EROFS;
	r = packs_chunk_at(p, chunk, &start, &chunk_len, &fp);
	if (r < 0)
		return r;
	if (r == 0)
		return -EBADMSG;
	r = is_compressed(p, chunk);
	if (r != 0)
		return r < 0 ? r : -EOPNOTSUPP;
	if (!addr_equal(start, chunk) || chunk_len != len || !fp_is_of(p->conf.key, fp, data, len))
		return -EINVAL;
	r = packs_wait(p, chunk);
	if (r < 0)
		return r;
	r = packs_file_get(p, chunk.pack, &file);
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	r = write_chunk(p, file, chunk.off, data, len);
	pack_file_put(p->files, file);
	if (r < 0)
		return r;
	if (pack_places_remove(&p->damaged, chunk.pack, chunk.off)) {
		p->nr_repaired++;
		log_notice("pack %" PRIu32 " offset %" PRIu32 ": chunk %s repaired", chunk.pack, chunk.off, fp_hex(fp).s);
	}
	return 0;
}
