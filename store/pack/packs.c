/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening, closing and iterating over the packs of a store.
 *
 * Opening with marks restores the directory to the state of the marks: later packs are removed, and in the current pack
 * of each stream everything after the marked frames is cut off. No committed data refers to either. This is idempotent:
 * a crash half-way leaves less to do. New packs reuse the numbers of removed later packs; their header is written
 * before anything else.
 *
 * A missing pack or a damaged header does not keep the store from opening: all other chunks remain readable (also those
 * behind a damaged header), and the stream continues in a new pack.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

#define PACK_BYTES_DEFAULT MiB(256)

static void packs_closep(struct packs **p)
{
	packs_close(*p);
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int scan_entry(struct packs *p, const char *name, uint32_t pack, const struct pack_marks *marks)
{
	struct stat st;
	int r;

	bool was_removed = pack_places_has(&p->removed, pack, 0);

	if (pack >= marks->next_pack || was_removed) {
		if (p->conf.read_only)
			return 0;
		log_info("pack %" PRIu32 ": removed: %s", pack, was_removed ? "not used any more" : "not committed");
		r = io_unlink(p->dirfd, name);
		return r < 0 ? log_errno(r, "pack %" PRIu32 ": cannot remove", pack) : 0;
	}
	if (fstatat(p->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(-errno, "pack %" PRIu32 ": cannot stat", pack);
	p->nr_packs++;
	p->disk_bytes += (uint64_t)st.st_blocks * 512;
	return 0;
}

/* Count the existing packs and remove those that came after the marks. */
static int scan_directory(struct packs *p, const struct pack_marks *marks)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct dirent *e;
	uint32_t pack;
	int fd, r;

	fd = io_open(p->dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return log_errno(fd, "packs: cannot open directory");
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		io_close(fd);
		return log_errno(r, "packs: cannot read directory");
	}
	while (errno = 0, (e = readdir(dir))) {
		if (!pack_name_parse(e->d_name, &pack))
			continue;
		r = scan_entry(p, e->d_name, pack, marks);
		if (r < 0)
			return r;
	}
	return errno ? log_errno(-errno, "packs: cannot read directory") : 0;
}

static int cut_file(struct packs *p, struct pack_file *file, uint32_t nr_frames)
{
	uint64_t end = pack_table_off(nr_frames), data_bytes;
	struct stream *st = &p->streams[file->stream];
	struct stat s;
	int r;

	if (fstat(file->fd, &s) < 0)
		return log_errno(-errno, "pack %" PRIu32 ": cannot stat", file->pack);
	if ((uint64_t)s.st_size > end) {
		r = io_truncate(file->fd, end);
		if (r < 0)
			return log_errno(r, "pack %" PRIu32 ": cannot cut at frame %" PRIu32, file->pack, nr_frames);
		log_info("pack %" PRIu32 ": cut at frame %" PRIu32 ", the last committed", file->pack, nr_frames);
		if (fstat(file->fd, &s) < 0)
			return log_errno(-errno, "pack %" PRIu32 ": cannot stat", file->pack);
	}
	data_bytes = (uint64_t)s.st_blocks * 512;
	p->disk_bytes += data_bytes - file->disk_bytes;
	file->disk_bytes = data_bytes;
	/* Its chunks have not been counted; the size of the file is accurate enough to decide when it is full. */
	st->data_bytes = data_bytes - MIN(data_bytes, (uint64_t)(1 + nr_frames) * PACK_BLOCK);
	return 0;
}

/* Open the current pack of a stream to continue it. */
static int open_stream(struct packs *p, enum pack_stream s)
{
	struct stream *st = &p->streams[s];
	struct pack_file *file;
	int r;

	if (st->at.pack == 0 || p->conf.read_only)
		return 0;
	r = packs_file_get(p, st->at.pack, &file);
	if (r <= 0)
		return r;
	if (file->header_error == 0 && file->stream == s) {
		r = cut_file(p, file, st->at.nr_frames);
		if (r >= 0)
			st->file = pack_file_ref(p->files, file);
	} else {
		r = 0;
	}
	pack_file_put(p->files, file);
	return r;
}

static bool marks_valid(const struct pack_marks *m)
{
	if (m->next_pack == 0)
		return false;
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		if (m->stream[s].pack >= m->next_pack || m->stream[s].nr_frames > PACK_FRAMES_MAX ||
		    (m->stream[s].pack == 0 && m->stream[s].nr_frames > 0))
			return false;
	return true;
}

static void take_marks(struct packs *p, const struct pack_marks *marks)
{
	p->next_pack = marks->next_pack;
	p->counts = marks->counts;
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++) {
		p->streams[s].at = marks->stream[s];
		if (s >= PACK_MORE_BULK && marks->stream[s].pack > 0) /* go on with all that the store has */
			p->conf.nr_bulk = MAX(p->conf.nr_bulk, s - PACK_MORE_BULK + 2);
	}
}

int packs_open(int dirfd, const struct packs_conf *conf, const struct pack_marks *marks, struct packs **ret)
{
	_cleanup_(packs_closep) struct packs *p = NULL;
	int r;

	if (!marks_valid(marks))
		return log_errno(-EBADMSG, "packs: impossible marks, next pack %" PRIu32, marks->next_pack);
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->dirfd = dirfd;
	p->conf = *conf;
	if (p->conf.pack_bytes == 0)
		p->conf.pack_bytes = PACK_BYTES_DEFAULT;
	p->conf.nr_bulk = MIN(conf->nr_bulk, PACK_NR_BULK_MAX);
	if (p->conf.nr_bulk == 0)
		p->conf.nr_bulk = 1;
	p->likely_chunk_len = PACK_BLOCK;
	pack_buffers_init(&p->buffers, conf->nr_spare, conf->held_memory);
	coders_init(&p->coders);
	pack_crew_init(&p->crew);
	pack_ahead_init(&p->ahead);
	pack_gathers_init(&p->gathers);
	pack_places_init(&p->damaged);
	pack_places_init(&p->replaced);
	pack_places_init(&p->removed);
	mutex_init(&p->repair_lock);
	mutex_init(&p->lock);
	cond_init(&p->changed);
	p->synced_failures = io_sync_failures();
	take_marks(p, marks);
	for (size_t i = 0; i < conf->nr_removed; i++)
		pack_places_add(&p->removed, conf->removed[i], 0);
	p->conf.removed = NULL;
	r = pack_files_new(dirfd, &p->conf, &p->files);
	if (r < 0)
		return r;
	r = pack_tables_new(conf->table_memory, &p->tables);
	if (r < 0)
		return r;
	r = scan_directory(p, marks);
	if (r < 0)
		return r;
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++) {
		r = open_stream(p, s);
		if (r < 0)
			return r;
	}
	*ret = TAKE(p);
	return 0;
}

void packs_close(struct packs *p)
{
	if (!p)
		return;
	assert(!p->first); /* every frame has been written or abandoned */
	packs_forget_unsynced(p);
	free(p->unsynced);
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		pack_file_put(p->files, p->streams[s].file);
	pack_tables_free(p->tables);
	pack_files_free(p->files);
	pack_places_release(&p->removed);
	pack_places_release(&p->replaced);
	pack_places_release(&p->damaged);
	pack_buffers_release(&p->buffers);
	pack_crew_release(&p->crew);
	pack_ahead_release(&p->ahead);
	pack_gathers_release(&p->gathers);
	coders_release(&p->coders);
	cond_release(&p->changed);
	mutex_release(&p->lock);
	mutex_release(&p->repair_lock);
	free(p);
}

int packs_file_get(struct packs *p, uint32_t pack, struct pack_file **ret)
{
	int r;

	if (pack_places_has(&p->removed, pack, 0))
		return 0;
	r = pack_files_get(p->files, pack, ret);
	if (r == 0 && pack_places_has(&p->removed, pack, 0)) /* removed meanwhile */
		return 0;
	if (r == 0 && pack_places_add(&p->damaged, pack, 0))
		log_error("pack %" PRIu32 ": file is missing", pack);
	if (r > 0 && (*ret)->header_error < 0 && pack_places_add(&p->damaged, pack, 0))
		log_error("pack %" PRIu32 ": header is damaged", pack);
	return r;
}

uint32_t packs_nr_frames(struct packs *p, uint32_t pack)
{
	uint32_t n = PACK_FRAMES_MAX;

	mutex_lock(&p->lock);
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		if (p->streams[s].at.pack == pack)
			n = p->streams[s].at.nr_frames;
	if (pack == 0 || pack >= p->next_pack || pack_places_has(&p->removed, pack, 0))
		n = 0;
	mutex_unlock(&p->lock);
	return n;
}

int packs_stream_of(struct packs *p, uint32_t pack, enum pack_stream *ret)
{
	struct pack_file *file;
	int r;

	mutex_lock(&p->lock);
	r = pack > 0 && pack < p->next_pack;
	mutex_unlock(&p->lock);
	if (r > 0)
		r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	if (file->header_error < 0)
		r = file->header_error;
	else
		*ret = file->stream;
	pack_file_put(p->files, file);
	return r;
}

struct pack_iter pack_iter(struct packs *p, uint32_t pack, uint32_t frame)
{
	struct pack_iter it = { .packs = p, .pack = MAX(pack, 1u), .frame = pack == 0 ? 0 : frame };

	mutex_lock(&p->lock);
	it.end_pack = p->next_pack;
	mutex_unlock(&p->lock);
	return it;
}

/* Number of frames to look at: as many as were opened, limited by the size of the file. */
static uint32_t nr_frames_there(struct packs *p, struct pack_file *file)
{
	uint32_t n = packs_nr_frames(p, file->pack);
	struct stat st;
	uint64_t blocks;

	if (fstat(file->fd, &st) < 0)
		return n;
	blocks = ((uint64_t)st.st_size + PACK_BLOCK - 1) / PACK_BLOCK;
	blocks -= MIN(blocks, (uint64_t)1); /* the header's */
	return (uint32_t)MIN((uint64_t)n, (blocks + PACK_FRAME_STRIDE - 1) / PACK_FRAME_STRIDE);
}

int packs_frames_of(struct packs *p, uint32_t pack, uint32_t *ret, bool *ret_full)
{
	struct pack_file *file;
	bool full = true;
	int r;

	if (packs_nr_frames(p, pack) == 0)
		return 0;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	*ret = nr_frames_there(p, file);
	pack_file_put(p->files, file);
	mutex_lock(&p->lock);
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		full &= p->streams[s].at.pack != pack || !p->streams[s].file;
	mutex_unlock(&p->lock);
	*ret_full = full;
	return 1;
}

void packs_fill_rec(uint32_t pack, uint32_t frame, const struct pack_table *t, struct pack_frame_rec *ret)
{
	ret->pack = pack;
	ret->frame = frame;
	ret->first = (struct addr){ .pack = pack, .off = pack_data_off(frame) };
	ret->chunk_len = t ? t->chunk_len : 0;
	ret->nr_chunks = t ? t->nr_chunks : 0;
	ret->damaged = !t;
	ret->codec = t ? t->coding.codec : PACK_CODEC_NONE;
	ret->based = t && pack_has_bases(&t->coding);
	if (t) {
		memcpy(ret->part_end, t->coding.part_end, sizeof(ret->part_end));
		memcpy(ret->base, t->coding.base, sizeof(ret->base));
	}
	memset(ret->remote, 0, sizeof(ret->remote));
	if (t)
		memcpy(ret->remote, t->remote, sizeof(ret->remote));
	for (uint32_t i = 0; i < ret->nr_chunks; i++) {
		ret->fps[i] = t->fps[i];
		ret->ends[i] = t->chunk_len ? (i + 1) * t->chunk_len : t->ends[i];
	}
}

/* Written and still in memory: partly written, not settled yet. */
static bool is_written(struct packs *p, const struct pack_frame *f)
{
	bool written;

	mutex_lock(&p->lock);
	written = f->written;
	mutex_unlock(&p->lock);
	return written;
}

/* 1: *ret; 0: not written, or lost. */
static int read_frame(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_frame_rec *ret)
{
	struct pack_table table;
	struct table_view v;
	int r;

	if (pack_tables_get(p->tables, file->pack, frame, 0, 0, &v)) {
		bool there = !v.frame && v.error == 0, settles = v.frame && is_written(p, v.frame);

		if (settles)
			table_copy(v.table, &table);
		pack_tables_put(p->tables, &v);
		if (settles)
			packs_fill_rec(file->pack, frame, &table, ret);
		if (!there)
			return settles;
	}
	r = packs_load_table(p, file, frame, &table);
	if (r <= 0 && r != -EBADMSG)
		return r;
	packs_fill_rec(file->pack, frame, r < 0 ? NULL : &table, ret);
	return 1;
}

int packs_frame_rec(struct packs *p, uint32_t pack, uint32_t frame, struct pack_frame_rec *ret)
{
	struct pack_file *file;
	int r;

	if (frame >= packs_nr_frames(p, pack))
		return 0;
	r = packs_file_get(p, pack, &file);
	if (r <= 0)
		return r;
	r = read_frame(p, file, frame, ret);
	pack_file_put(p->files, file);
	return r;
}

/* Next frame of the current pack. 0: no more in it. */
static int next_in_pack(struct pack_iter *it, struct pack_frame_rec *ret)
{
	struct packs *p = it->packs;
	struct pack_file *file;
	uint32_t nr_frames;
	int r;

	r = packs_file_get(p, it->pack, &file);
	if (r < 0) {
		it->pack++;
		it->frame = 0;
	}
	if (r <= 0)
		return r;
	nr_frames = nr_frames_there(p, file);
	for (r = 0; r == 0 && it->frame < nr_frames; it->frame++)
		r = read_frame(p, file, it->frame, ret);
	pack_file_put(p->files, file);
	return r;
}

int pack_iter_next(struct pack_iter *it, struct pack_frame_rec *ret)
{
	int r;

	for (; it->pack < it->end_pack; it->pack++, it->frame = 0) {
		r = next_in_pack(it, ret);
		if (r != 0)
			return r;
	}
	return 0;
}

bool packs_is_damaged(struct packs *p, struct addr chunk)
{
	return pack_places_has(&p->damaged, chunk.pack, chunk.off) ||
	       pack_places_has(&p->replaced, chunk.pack, chunk.off);
}

bool packs_is_replaced(struct packs *p, struct addr chunk)
{
	return pack_places_has(&p->replaced, chunk.pack, chunk.off);
}

void packs_set_replaced(struct packs *p, struct addr chunk)
{
	pack_places_add(&p->replaced, chunk.pack, chunk.off);
	if (pack_places_remove(&p->damaged, chunk.pack, chunk.off)) {
		p->nr_repaired++;
		log_notice("pack %" PRIu32 " offset %" PRIu32 ": damaged chunk replaced by a good copy", chunk.pack,
			   chunk.off);
	}
}

void packs_set_table_memory(struct packs *p, uint64_t limit)
{
	pack_tables_set_limit(p->tables, limit);
}

void packs_stats(struct packs *p, struct pack_stats *ret)
{
	struct pack_tables_stats tables;

	pack_tables_stats(p->tables, &tables);
	*ret = (struct pack_stats){
		.nr_packs = p->nr_packs,
		.table_memory = tables.memory,
		.table_hits = tables.hits,
		.table_misses = tables.misses,
		.nr_damaged = p->damaged.nr,
		.nr_repaired = p->nr_repaired,
		.read_bytes = p->read_bytes,
		.written_bytes = p->written_bytes,
		.freed_bytes = p->freed_bytes,
		.compressed_bytes = p->compressed_bytes,
		.compressed_to = p->compressed_to,
		.unshrinkable_bytes = p->unshrinkable_bytes,
		.busy_bytes = p->busy_bytes,
		.direct_io = pack_files_direct(p->files),
		.parallel_reads = !p->gathers.refused,
	};
	mutex_lock(&p->lock);
	ret->nr_frames = p->counts.nr_frames + p->later.nr_frames;
	ret->nr_chunks = p->counts.nr_chunks + p->later.nr_chunks;
	ret->chunk_bytes = p->counts.chunk_bytes + p->later.chunk_bytes;
	ret->stored_bytes = p->counts.stored_bytes + p->later.stored_bytes;
	ret->disk_bytes = p->disk_bytes;
	mutex_unlock(&p->lock);
}
