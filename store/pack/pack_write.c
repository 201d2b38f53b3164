/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Filling and writing frames.
 *
 *   packs_frame_open ──▶ open ──packs_frame_write──▶ written (and freed)
 *                          │                   └────▶ failed ──packs_frame_write──▶ ...
 *                          └──packs_frame_abandon──▶ lost  ◀──packs_frame_abandon──┘
 *
 * A place (pack, frame) is given out once per mount, whatever becomes of the frame: its addresses may have been handed
 * out. A lost frame leaves a place where no table decodes: never written, or wiped. Wiping matters because a write that
 * fails half-way may have left an intact table in front of missing bytes. While wiping fails, no sync returns marks
 * that cover the place, so a later mount either cuts it off or finds it wiped.
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

static const uint64_t none_remote[PACK_GONE_WORDS];

void packs_frame_free(struct pack_frame *f)
{
	if (!f)
		return;
	pack_buffer_put(&f->packs->buffers, f->buffer);
	pack_file_put(f->packs->files, f->file);
	free(f->chunks);
	free(f);
}

static int frame_new(struct packs *p, enum pack_stream s, uint32_t chunk_len, struct pack_frame **ret)
{
	struct pack_frame *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->packs = p;
	f->is_small = s == PACK_SMALL;
	f->chunk_len = chunk_len;
	f->compression = p->conf.compression;
	f->nr_max = pack_nr_chunks_max(chunk_len);
	f->table = table_new(chunk_len);
	if (f->is_small)
		f->buffer = pack_buffer_get(&p->buffers);
	else
		f->chunks = calloc(f->nr_max, sizeof(*f->chunks));
	if (!f->table || (!f->buffer && !f->chunks)) {
		table_free(f->table);
		packs_frame_free(f);
		return -ENOMEM;
	}
	*ret = f;
	return 0;
}

static void list_add(struct packs *p, struct pack_frame *f) REQUIRES(p->lock)
{
	f->prev = p->last;
	*(p->last ? &p->last->next : &p->first) = f;
	p->last = f;
	p->streams[f->stream].nr_open++;
}

static void list_remove(struct packs *p, struct pack_frame *f) REQUIRES(p->lock)
{
	*(f->prev ? &f->prev->next : &p->first) = f->next;
	*(f->next ? &f->next->prev : &p->last) = f->prev;
	f->prev = f->next = NULL;
	p->streams[f->stream].nr_open--;
}

void packs_set_dirty(struct packs *p, struct pack_file *file)
{
	assert(mutex_held(&p->lock));
	if (file->dirty)
		return;
	file->dirty = true;
	file->next_dirty = p->dirty;
	p->dirty = pack_file_ref(p->files, file);
}

void packs_count_disk(struct packs *p, struct pack_file *file, uint64_t now_bytes)
{
	p->disk_bytes += now_bytes - file->disk_bytes;
	file->disk_bytes = now_bytes;
}

static bool stream_wants_pack(const struct packs *p, const struct stream *st)
{
	return !st->file || st->at.nr_frames >= PACK_FRAMES_MAX || st->data_bytes >= p->conf.pack_bytes;
}

static int stream_start_pack(struct packs *p, enum pack_stream s) REQUIRES(p->lock)
{
	uint32_t pack = p->next_pack;
	struct stream *st = &p->streams[s];
	struct pack_file *file, *old;
	int r;

	p->creating = true;
	mutex_unlock(&p->lock);
	r = pack_files_create(p->files, pack, s, &file);
	mutex_lock(&p->lock);
	p->creating = false;
	cond_broadcast(&p->changed);
	if (r < 0)
		return r;
	old = st->file;
	*st = (struct stream){ .at = { .pack = pack }, .file = file, .nr_open = st->nr_open };
	p->next_pack++;
	p->nr_packs++;
	p->dir_dirty = true;
	packs_set_dirty(p, file);
	packs_unsynced_add(p, UNSYNCED_HEADER, pack, 0, p->last_number + 1, 0);
	packs_count_disk(p, file, PACK_BLOCK);
	pack_file_put(p->files, old);
	return 0;
}

static enum pack_stream idlest_bulk_stream(const struct packs *p) REQUIRES(p->lock)
{
	enum pack_stream ret = PACK_BULK;

	for (unsigned s = PACK_MORE_BULK; s < PACK_MORE_BULK + p->conf.nr_bulk - 1; s++)
		if (p->streams[s].nr_open < p->streams[ret].nr_open)
			ret = (enum pack_stream)s;
	return ret;
}

/* Assign the next place of a stream to f. */
static int frame_place(struct packs *p, struct pack_frame *f) REQUIRES(p->lock)
{
	struct stream *st;
	int r;

	assert(mutex_held(&p->lock));
	for (;;) {
		f->stream = f->is_small ? PACK_SMALL : idlest_bulk_stream(p);
		st = &p->streams[f->stream];
		if (!stream_wants_pack(p, st))
			break;
		if (p->creating) {
			cond_wait(&p->changed, &p->lock);
			continue;
		}
		r = stream_start_pack(p, f->stream);
		if (r < 0)
			return r;
	}
	f->file = pack_file_ref(p->files, st->file);
	f->frame = st->at.nr_frames++;
	f->number = ++p->last_number;
	list_add(p, f);
	return 0;
}

int packs_frame_open(struct packs *p, enum pack_stream s, uint32_t chunk_len, struct pack_frame **ret)
{
	struct pack_frame *f;
	int r;

	if ((s != PACK_BULK && s != PACK_SMALL) || !(pack_chunk_len_valid(chunk_len) || (chunk_len == PACK_VARIED && s == PACK_SMALL)))
		return -EINVAL;
	if (p->conf.read_only)
		return -EROFS;
	r = frame_new(p, s, chunk_len, &f);
	if (r < 0)
		return r;
	mutex_lock(&p->lock);
	r = frame_place(p, f);
	mutex_unlock(&p->lock);
	if (r < 0) {
		table_free(f->table);
		packs_frame_free(f);
		return r;
	}
	pack_tables_pin(p->tables, f->table, f->file->pack, f->frame, f);
	*ret = f;
	return 0;
}

unsigned pack_frame_room(const struct pack_frame *f)
{
	return f->nr_max - table_nr_chunks(f->table);
}

bool pack_frame_takes(const struct pack_frame *f, uint32_t len)
{
	return pack_frame_room(f) > 0 && len <= PACK_FRAME_BYTES - table_total(f->table);
}

void pack_frame_set_compression(struct pack_frame *f, struct pack_compression c)
{
	if (!f->uncompressed)
		f->compression = c;
}

void pack_frame_set_uncompressed(struct pack_frame *f)
{
	f->compression = (struct pack_compression){ .kind = PACK_COMPRESS_NONE };
	f->uncompressed = true;
}

struct addr pack_frame_add(struct pack_frame *f, struct fp fp, const void *data)
{
	uint32_t i = table_nr_chunks(f->table);

	assert(i < f->nr_max && f->chunk_len);
	if (f->is_small) {
		memcpy(f->buffer->data + (size_t)i * f->chunk_len, data, f->chunk_len);
	} else {
		assert((uintptr_t)data % PACK_BLOCK == 0);
		f->chunks[i] = data;
	}
	table_add(f->table, fp, f->chunk_len);
	return (struct addr){ .pack = f->file->pack, .off = pack_data_off(f->frame) + i * f->chunk_len };
}

struct addr pack_frame_add_varied(struct pack_frame *f, struct fp fp, const void *data, uint32_t len)
{
	uint32_t at = table_total(f->table);

	assert(f->chunk_len == PACK_VARIED && len > 0 && len <= PACK_VARIED_LEN_MAX && pack_frame_takes(f, len));
	memcpy(f->buffer->data + at, data, len);
	table_add(f->table, fp, len);
	return (struct addr){ .pack = f->file->pack, .off = pack_data_off(f->frame) + at };
}

uint8_t pack_frame_last(const struct pack_frame *f)
{
	uint32_t i = table_nr_chunks(f->table) - 1;

	return (uint8_t)(f->chunk_len ? i * (f->chunk_len / PACK_BLOCK) : i);
}

const uint8_t *pack_frame_chunk(const struct pack_frame *f, uint32_t i)
{
	struct pack_cuts cuts;

	if (!f->is_small)
		return f->chunks[i];
	cuts = table_cuts(f->table);
	return f->buffer->data + pack_cut_start(&cuts, i);
}

void packs_frame_encode(struct pack_frame *f, const struct pack_coding *coding, struct pack_table_disk *ret)
{
	struct pack_table table;

	table_copy(f->table, &table);
	table.coding = *coding;
	pack_table_encode(&table, f->packs->conf.key, f->file->pack, f->frame, ret);
	f->seal = le64_get(ret->seal);
}

/* Our buffer has the layout of the disk, except for the padding of the last block. */
static int write_varied(struct pack_frame *f, uint32_t plain_len)
{
	static const struct pack_coding none;
	uint32_t on_disk = (uint32_t)round_up(plain_len, PACK_BLOCK);

	memset(f->buffer->data + plain_len, 0, on_disk - plain_len);
	packs_frame_encode(f, &none, &f->buffer->table);
	return io_pwrite(f->file->fd, f->buffer, PACK_BLOCK + on_disk, pack_table_off(f->frame));
}

static int write_plain(struct pack_frame *f, uint32_t nr_chunks)
{
	static const struct pack_coding none;
	_Alignas(PACK_BLOCK) struct pack_table_disk block;
	struct iovec iov[1 + PACK_FRAME_BLOCKS] = { { &block, sizeof(block) } };
	int n = 1;

	packs_frame_encode(f, &none, &block);
	for (uint32_t i = 0; i < nr_chunks; i++) {
		const uint8_t *chunk = pack_frame_chunk(f, i);
		struct iovec *last = &iov[n - 1];

		if (n > 1 && (const uint8_t *)last->iov_base + last->iov_len == chunk)
			last->iov_len += f->chunk_len;
		else
			iov[n++] = (struct iovec){ (void *)chunk, f->chunk_len };
	}
	return io_pwritev(f->file->fd, iov, n, pack_table_off(f->frame));
}

static int write_compressed(struct pack_frame *f, const struct pack_coding *coding, uint32_t on_disk,
			    struct pack_buffer *compressed)
{
	packs_frame_encode(f, coding, &compressed->table);
	return io_pwrite(f->file->fd, compressed, PACK_BLOCK + on_disk, pack_table_off(f->frame));
}

void packs_frame_count(struct packs *p, struct pack_frame *f, const struct pack_coding *coding, uint32_t on_disk)
{
	uint64_t nr_chunks = table_nr_chunks(f->table), bytes = table_total(f->table);
	struct stream *st = &p->streams[f->stream];
	struct pack_counts *counts;

	mutex_lock(&p->lock);
	counts = p->syncing && f->number > p->sync_number ? &p->later : &p->counts;
	counts->nr_frames++;
	counts->nr_chunks += nr_chunks;
	counts->chunk_bytes += bytes;
	/* less only where compressed or remote */
	counts->stored_bytes += coding->codec == PACK_CODEC_NONE ? MIN(bytes, on_disk) : on_disk;
	if (st->file == f->file)
		st->data_bytes += on_disk;
	packs_count_disk(p, f->file, f->file->disk_bytes + PACK_BLOCK + on_disk);
	packs_set_dirty(p, f->file);
	packs_unsynced_add(p, UNSYNCED_FRAME, f->file->pack, f->frame, f->number, f->seal);
	list_remove(p, f);
	f->written = true;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);

	p->written_bytes += PACK_BLOCK + on_disk;
	if (coding->codec != PACK_CODEC_NONE) {
		p->compressed_bytes += bytes;
		p->compressed_to += on_disk;
	}
}

static void finish_written(struct packs *p, struct pack_frame *f, const struct pack_coding *coding, uint32_t on_disk)
{
	packs_frame_count(p, f, coding, on_disk);
	pack_tables_written(p->tables, f->table, coding, none_remote);
	packs_frame_free(f);
}

int packs_frame_failed(struct packs *p, struct pack_frame *f, int r)
{
	log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot write", f->file->pack, f->frame);
	mutex_lock(&p->lock);
	f->error = r;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	return r;
}

static void finish_empty(struct packs *p, struct pack_frame *f)
{
	mutex_lock(&p->lock);
	list_remove(p, f);
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	pack_tables_drop(p->tables, f->table);
	packs_frame_free(f);
}

/* A frame with chunks is about to be written, perhaps again. Only its owner changes the error, so it reads it without the
 * lock. */
static void begin_write(struct packs *p, struct pack_frame *f)
{
	if (f->error == 0)
		return;
	mutex_lock(&p->lock);
	f->error = 0;
	mutex_unlock(&p->lock);
}

/* Write the contents of `compressed` or, if NULL, the frame uncompressed. */
static int write_frame(struct packs *p, struct pack_frame *f, const struct pack_coding *coding,
		       struct pack_buffer *compressed)
{
	uint32_t nr_chunks = table_nr_chunks(f->table), plain_len = table_total(f->table);
	uint32_t on_disk = (uint32_t)round_up(pack_stored_len(coding, plain_len), PACK_BLOCK);
	int r;

	io_rate_wait(p->conf.write_rate, PACK_BLOCK + on_disk);
	f->tried = true;
	if (compressed)
		r = write_compressed(f, coding, on_disk, compressed);
	else
		r = f->chunk_len ? write_plain(f, nr_chunks) : write_varied(f, plain_len);
	pack_buffer_put(&p->buffers, compressed);
	if (r < 0)
		return packs_frame_failed(p, f, r);
	finish_written(p, f, coding, on_disk);
	return 0;
}

int packs_frame_write(struct packs *p, struct pack_frame *f)
{
	struct pack_coding coding = { 0 };
	struct pack_buffer *compressed;

	if (table_nr_chunks(f->table) == 0) {
		finish_empty(p, f);
		return 0;
	}
	begin_write(p, f);
	compressed = packs_frame_compress(p, f, table_total(f->table), &coding);
	return write_frame(p, f, &coding, compressed);
}

int packs_frame_write_coded(struct packs *p, struct pack_frame *f, const void *stored, const struct pack_parts *parts)
{
	uint32_t nr = pack_nr_parts(table_total(f->table)), len = parts->end[nr - 1];
	struct pack_coding coding = { .codec = PACK_CODEC_CODED };
	struct pack_buffer *b = pack_buffer_get(&p->buffers);

	assert(nr > 0 && len <= PACK_FRAME_BYTES);
	begin_write(p, f);
	if (!b)
		return packs_frame_failed(p, f, -ENOMEM);
	memcpy(coding.part_end, parts->end, nr * sizeof(*parts->end));
	memcpy(coding.base, parts->base, nr * sizeof(*parts->base));
	memcpy(b->data, stored, len);
	memset(b->data + len, 0, round_up(len, PACK_BLOCK) - len);
	return write_frame(p, f, &coding, b);
}

int packs_frame_wipe(struct pack_file *file, uint32_t frame)
{
	_Alignas(PACK_BLOCK) uint8_t block[PACK_BLOCK];
	uint64_t off = pack_table_off(frame);
	ssize_t n;
	int r;

	n = io_pread(file->fd, block, sizeof(block), off);
	if (n == 0 || (n == sizeof(block) && pack_block_is_zero(block)))
		return 0;
	r = io_punch(file->fd, off, PACK_BLOCK * PACK_FRAME_STRIDE); /* frees the space as well */
	if (r < 0) {
		memset(block, 0, sizeof(block));
		r = io_pwrite(file->fd, block, sizeof(block), off);
	}
	if (r < 0)
		return log_errno(r, "pack %" PRIu32 " frame %" PRIu32 ": cannot wipe what a failed write left",
				 file->pack, frame);
	return 0;
}

void packs_frame_abandon(struct packs *p, struct pack_frame *f)
{
	int error, r;

	if (table_nr_chunks(f->table) == 0) {
		finish_empty(p, f);
		return;
	}
	r = f->tried ? packs_frame_wipe(f->file, f->frame) : 0;

	mutex_lock(&p->lock);
	error = f->abandoned = f->error < 0 ? f->error : -EIO;
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	pack_tables_lost(p->tables, f->table, error);
	f->table = NULL;

	/* Last: while the frame is on the list no sync passes it; afterwards a sync may free it. */
	mutex_lock(&p->lock);
	list_remove(p, f);
	if (f->tried) {
		packs_set_dirty(p, f->file);
		packs_unsynced_add(p, UNSYNCED_WIPED, f->file->pack, f->frame, f->number, 0);
	}
	if (r < 0) {
		f->next = p->unclean;
		p->unclean = f;
	}
	cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
	if (r >= 0)
		packs_frame_free(f);
}

int packs_wait(struct packs *p, struct addr a)
{
	struct table_view v;
	uint32_t frame, in;
	int r;

	if (a.node != 0 || !pack_place_of(a.off, &frame, &in))
		return -EINVAL;
	if (!pack_tables_get(p->tables, a.pack, frame, 0, 0, &v))
		return 0;
	if (!v.frame)
		return v.error;
	mutex_lock(&p->lock);
	/* A small frame is in our own memory until it is written: no need to wait. */
	while (!v.frame->is_small && !v.frame->written && v.frame->error == 0 && v.frame->abandoned == 0)
		cond_wait(&p->changed, &p->lock);
	if (v.frame->written || v.frame->is_small)
		r = 0;
	else
		r = v.frame->abandoned < 0 ? v.frame->abandoned : v.frame->error;
	mutex_unlock(&p->lock);
	pack_tables_put(p->tables, &v);
	return r;
}
