/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The packs of one store: append-only files that hold chunk bytes and their fingerprints.
 *
 * A pack is a header block followed by frames at a fixed stride of 257 blocks of 4 KiB: one table block (lengths and
 * fingerprints of the chunks, protected by a keyed checksum) and up to 256 blocks of chunk bytes. A frame that holds
 * less leaves a hole in the file, which costs nothing. The fixed stride means that
 *   - the table for any address is found by division, without a search or a map;
 *   - a table and its data are one contiguous read;
 *   - a frame is written once, as a whole, and never touched again: appending cannot damage existing data.
 * A frame holds chunks of one length, a multiple of the block size, or chunks of arbitrary lengths, side by side.
 * The frames of a stream are numbered in order. A pack is full at a certain number of frames or bytes; the stream then
 * continues in a new pack. Large frames are written directly from the caller's memory, to bulk streams; scattered single
 * chunks are gathered in one frame of the small stream. There are several bulk streams because filesystems let one
 * thread at a time append to a file: a frame goes to the first of those with the fewest open frames, so few writers
 * keep to few streams.
 *
 * Marks describe what is durable: for each stream the current pack and how many of its frames are complete and synced.
 * The caller stores the marks in its journal. Crash order: write the frame -> sync the pack -> the caller commits the
 * marks. packs_open() cuts off everything after the marks: no committed data refers to those bytes, and they may be
 * torn. Packs with an id of `next_pack` or above did not exist at the commit and are removed. Packs with a lower id
 * that are not the current pack of a stream are complete.
 *
 * Thread rule: all functions may be called from any thread, except that a pack_frame belongs to one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"

struct buf;
struct code_header;
struct io_rate;
struct packs;
struct pack_frame;

#define PACK_BLOCK 4096u
#define PACK_FRAME_BLOCKS 256u	/* data blocks of a full frame */
#define PACK_FRAME_STRIDE 257u	/* with the table block in front */
#define PACK_FRAME_BYTES (PACK_BLOCK * PACK_FRAME_BLOCKS)

#define PACK_GONE_WORDS (PACK_FRAME_BLOCKS / 64)

#define PACK_PART_BYTES (64u << 10) /* plain */
#define PACK_PARTS (PACK_FRAME_BYTES / PACK_PART_BYTES)

/*
 * How the parts of a frame are coded: where each part ends in the stored bytes, and where its base is. A base is a
 * code_place() (store/codec/code_format.h) in the plain bytes of an earlier part of the same frame; 0: no base. A frame
 * can thus be decoded without reading anything outside it.
 */
struct pack_parts {
	uint32_t end[PACK_PARTS];
	uint32_t base[PACK_PARTS];
};

/* Is the alternative representation worth storing? Decoding costs more than a saving of less than 5 % is worth. */
static inline bool pack_is_worth_it(uint64_t stored, uint64_t before)
{
	return stored * 100 <= before * 95;
}

/* The chunks of a frame have one length, or (PACK_VARIED) arbitrary lengths up to these limits on number and length. */
#define PACK_VARIED 0u
#define PACK_VARIED_MAX 225u
#define PACK_VARIED_LEN_MAX (64u << 10)

/* Callers ask for PACK_BULK or PACK_SMALL. The streams from PACK_MORE_BULK on are further bulk streams. */
enum pack_stream { PACK_BULK, PACK_SMALL, PACK_MORE_BULK, PACK_NR_STREAMS = 17 };
#define PACK_NR_BULK_MAX ((unsigned)PACK_NR_STREAMS - 1)

struct pack_mark {
	uint32_t pack;	    /* the stream's current pack, 0: none yet */
	uint32_t nr_frames; /* complete and durable ones in it */
};

/* Totals over the frames before the marks. Stored with the marks so that a mount need not count. */
struct pack_counts {
	uint64_t nr_chunks, chunk_bytes, nr_frames;
	uint64_t stored_bytes; /* size of the chunks as written: less than chunk_bytes where compressed */
};

struct pack_marks {
	struct pack_mark stream[PACK_NR_STREAMS];
	uint32_t next_pack; /* smallest id never used, from 1 */
	struct pack_counts counts;
};

/* The first frame of a pack that the marks do not cover. UINT32_MAX: the pack was complete. Zero marks cover nothing. */
static inline uint32_t pack_marks_end(const struct pack_marks *m, uint32_t pack)
{
	for (unsigned s = 0; s < PACK_NR_STREAMS; s++)
		if (m->stream[s].pack == pack)
			return m->stream[s].nr_frames;
	return pack < m->next_pack ? UINT32_MAX : 0;
}

static inline bool pack_marks_cover(const struct pack_marks *m, uint32_t pack, uint32_t frame)
{
	return frame < pack_marks_end(m, pack);
}

/* How the bytes of a frame are stored (docs/format.md section 2). CODED: by data type (store/codec). */
enum pack_codec { PACK_CODEC_NONE = 0, PACK_CODEC_LZ4 = 1, PACK_CODEC_ZSTD = 2, PACK_CODEC_CODED = 3, NR_PACK_CODECS };
/* How the bytes of new frames are stored. A frame that does not shrink by 5 % is stored uncompressed. */
enum pack_compress { PACK_COMPRESS_NONE, PACK_COMPRESS_LZ4, PACK_COMPRESS_ZSTD, PACK_COMPRESS_AUTO };
struct pack_compression {
	enum pack_compress kind; /* AUTO: lz4, if time_for() reports that there is time */
	int level; /* of zstd, 0: its default */
};

/* SPARE: compress until another thread has to wait, then write the frame uncompressed. */
enum pack_time { PACK_TIME_NONE, PACK_TIME_SPARE, PACK_TIME_ENOUGH };

/* A remote chunk, and the buffer that its bytes are fetched into. */
struct pack_remote {
	uint32_t number; /* in its frame */
	uint32_t len;
	struct fp fp;
	void *buf;
};

/* Bit i % 64 of word i / 64 for chunk i of a frame. */
struct pack_fate {
	uint64_t gone[PACK_GONE_WORDS]; /* freed by packs_punch() or packs_remove(): no longer a chunk */
	uint64_t remote[PACK_GONE_WORDS]; /* remote: the chunk exists, but its bytes are not in the pack */
};
enum { PACK_GONE = 1, PACK_REMOTE = 2 }; /* which of the two sets have any bit */

struct packs_conf {
	const struct fp_key *key; /* borrowed for the life of the packs */
	uint8_t store_id[16];
	uint16_t node;
	uint64_t pack_bytes;   /* data bytes after which a pack is full; 0: 256 MiB */
	uint64_t table_memory; /* limit on cached frame tables */
	unsigned nr_bulk; /* bulk streams, at most PACK_NR_BULK_MAX; 0: one */
	/* frame buffers kept for reuse after a write: as many as the caller has open at once; 0: a few */
	unsigned nr_spare;
	uint64_t held_memory; /* for buffers that cache decoded parts of frames; 0: a few buffers */
	struct io_rate *read_rate, *write_rate; /* borrowed; NULL: unlimited */
	bool read_only;	       /* opens without cutting or removing anything */

	struct pack_compression compression; /* unless pack_frame_set_compression() overrides it */
	/* Called before each frame is compressed with AUTO; NULL: there is always time. */
	enum pack_time (*time_for)(void *userdata, uint32_t bytes);
	bool (*is_disturbed)(void *userdata); /* with SPARE, between parts: is another thread waiting? */

	/* Which chunks of a frame are gone or remote. Called whenever a table has been read. Returns PACK_GONE |
	 * PACK_REMOTE for the sets that have bits, 0 if all chunks are present, or <0. `ret` is zeroed before the call.
	 * NULL: all chunks are present. */
	int (*fate)(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret);
	/* Fetch remote chunks, all of one frame, and verify them. */
	int (*fetch)(void *userdata, uint32_t pack, uint32_t frame, const struct pack_remote *chunks, size_t nr);
	void *userdata; /* for all callbacks */
	const uint32_t *removed; /* ids of removed packs; borrowed by packs_open() only */
	size_t nr_removed;
};

/* `dirfd` is packs/ itself, used until packs_close() and not closed. A new store: zero marks with next_pack 1. */
int packs_open(int dirfd, const struct packs_conf *conf, const struct pack_marks *marks, struct packs **ret);
void packs_close(struct packs *p); /* NULL is fine */

/*
 * Writing. A frame is opened, filled and written by one thread. packs_frame_open() reserves the next place of the
 * stream. It does no I/O except when it creates a new pack, so it may be called under a short lock.
 */
int packs_frame_open(struct packs *p, enum pack_stream s, uint32_t chunk_len, struct pack_frame **ret);
/* Number of chunks that still fit. chunk_len is a multiple of PACK_BLOCK, at most PACK_FRAME_BYTES; or PACK_VARIED,
 * with PACK_SMALL only. A PACK_VARIED frame is also limited in bytes: pack_frame_takes(). */
unsigned pack_frame_room(const struct pack_frame *f);
bool pack_frame_takes(const struct pack_frame *f, uint32_t len);
void pack_frame_set_compression(struct pack_frame *f, struct pack_compression c);
void pack_frame_set_uncompressed(struct pack_frame *f); /* overrides later pack_frame_set_compression() calls */
/* Add one chunk. PACK_BULK borrows `data` (4 KiB aligned) until the frame is written; PACK_SMALL copies it.
 * The address is valid on return: packs_fps() finds the chunk, and packs_read() reads it from memory. */
struct addr pack_frame_add(struct pack_frame *f, struct fp fp, const void *data);
/* The same for a PACK_VARIED frame that takes it. */
struct addr pack_frame_add_varied(struct pack_frame *f, struct fp fp, const void *data, uint32_t len);
/* Number of the chunk added last, as expected by pack_hint(). */
uint8_t pack_frame_last(const struct pack_frame *f);
/* Write the frame with one aligned write. A frame without chunks is dropped. On success frees `f`. On an error its
 * chunks are not on disk, packs_wait() returns the error to threads that already share them, and `f` stays valid: write
 * it again (PACK_SMALL, which owns its memory) or abandon it. */
int packs_frame_write(struct packs *p, struct pack_frame *f);
/* The same for data that the caller has coded (store/codec) in parts of PACK_PART_BYTES, each block with the base_place
 * given in `parts`. A part as long as its plain bytes is stored uncoded. */
int packs_frame_write_coded(struct packs *p, struct pack_frame *f, const void *stored, const struct pack_parts *parts);
void packs_frame_abandon(struct packs *p, struct pack_frame *f);
/*
 * Frames that are written partly (pack_partly.c, which a build without the cluster does not have). They are PACK_SMALL
 * and have chunks that are to become remote. packs_frame_write_partly() writes the frame without these: blocks that
 * hold nothing else stay holes. The frame keeps all bytes in memory and serves reads until packs_frame_settle() durably
 * writes the chunks that did not become remote after all, and frees `f`. On an error `f` stays valid: try again. A
 * crash in between leaves a table that lists chunks without bytes: conf.fate() must report them as gone by then.
 */
int packs_frame_write_partly(struct packs *p, struct pack_frame *f, const uint64_t remote[PACK_GONE_WORDS]);
int packs_frame_settle(struct packs *p, struct pack_frame *f, const uint64_t remote[PACK_GONE_WORDS]);
void packs_frame_leave(struct packs *p, struct pack_frame *f); /* do neither; leaves the state that a crash would */
/* Contents of an open frame. */
void pack_frame_place(const struct pack_frame *f, uint32_t *ret_pack, uint32_t *ret_frame);
uint32_t pack_frame_nr(const struct pack_frame *f);
struct fp pack_frame_fp(const struct pack_frame *f, uint32_t i);
uint32_t pack_frame_len(const struct pack_frame *f, uint32_t i);
/* Wait until the frame that holds `a` has been written. Returns 0, or the error that the write failed with. Returns 0
 * at once for written frames and for small frames, which are in our own memory until they are written. */
int packs_wait(struct packs *p, struct addr a);

/*
 * Make all frames opened before packs_sync_begin() durable, waiting for those being written, and return the marks. This
 * takes two steps so that the caller can check, under the lock it opens frames with, that no such frame is left open
 * and idle: the sync would wait for it forever. No other sync runs between begin and end.
 */
void packs_sync_begin(struct packs *p);
int packs_sync_end(struct packs *p, struct pack_marks *ret);

/* A frame, and the checksum of its table, which has the fingerprints of its chunks. */
struct pack_seal {
	uint32_t pack, frame;
	uint64_t seal;
};
/* What the running sync is about to make durable: few frames, and nothing else. */
#define PACK_WRITTEN_MAX 8u
struct pack_written {
	struct pack_marks marks; /* as packs_sync_end() will return them */
	struct pack_seal frames[PACK_WRITTEN_MAX];
	unsigned nr; /* more than PACK_WRITTEN_MAX: too many to list */
};
/* Between packs_sync_begin() and packs_sync_end(): wait until the frames are written. If the frames that are not durable
 * yet are few, and all else is durable, list them and return true. */
bool packs_sync_written(struct packs *p, struct pack_written *ret);
/* Sync what is written, so that packs_sync_end() has less to do, which waits for it. From another thread; errors are
 * left to packs_sync_end(). */
void packs_sync_early(struct packs *p);
/*
 * Are these frames on disk, complete, in packs that exist as of `marks`? Then they are made durable, unless
 * conf->read_only: they may be readable from a cache only. 1/0 some frame is not/<0. Called without open packs.
 */
int packs_confirm(int dirfd, const struct packs_conf *conf, const struct pack_written *w);

static inline bool pack_same_frame(struct addr a, struct addr b)
{
	return a.node == b.node && a.pack == b.pack &&
	       (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE == (b.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* Frame number of an address; not valid for the address of a table. */
static inline uint32_t pack_frame_of(struct addr a)
{
	return (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* Offset of an address in its frame's data; not valid for the address of a table. */
static inline uint32_t pack_in_frame(struct addr a)
{
	return a.off - ((a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE * PACK_FRAME_STRIDE + 2) * PACK_BLOCK;
}

/*
 * Reading. An address may point into the middle of a chunk. A range lies in one frame.
 * Every chunk is compared with its fingerprint. A mismatch is -EBADMSG: pack and offset are logged, and the chunk is
 * recorded as damaged.
 */
int packs_read(struct packs *p, struct addr a, uint32_t len, void *buf);
/* The same for several pieces of one request: adjacent ranges are read together where that helps. */
struct pack_piece {
	struct addr addr;
	uint32_t len;
	void *buf;
};
int packs_read_pieces(struct packs *p, const struct pack_piece *pieces, size_t nr);
/* The same without verifying fingerprints: the caller compares the data. */
int packs_read_as_is(struct packs *p, const struct pack_piece *pieces, size_t nr);
/* The same for reads of a file; `is_end`: they reach its end. Files stored one after the other in compressed frames are
 * likely to be read in that order. After replying to the reader, call packs_read_ahead(): it decodes the data that
 * probably comes next, or does nothing if no such pattern was seen. It may be called from any thread at any time. */
int packs_read_of_file(struct packs *p, const struct pack_piece *pieces, size_t nr, bool is_end);
void packs_read_ahead(struct packs *p);

/* Fingerprints of up to `n` chunks of `chunk_len` that lie side by side in a frame, from `a` on. Returns their number.
 * 0: no such chunks at this address (a stale hint); -EBADMSG: the table is damaged, logged once. */
int packs_fps(struct packs *p, struct addr a, uint32_t chunk_len, unsigned n, struct fp *ret);
/* The same for chunks of any lengths: the one that begins at `a`, and those that begin in the next `len` bytes. */
struct pack_chunk {
	uint32_t off, len; /* address and bytes */
	struct fp fp;
	bool is_remote; /* remote */
};
int packs_chunks(struct packs *p, struct addr a, uint32_t len, unsigned n, struct pack_chunk *ret);
/* Length and start of the chunk that holds `a`. 1/0/<0 as above. */
int packs_chunk_at(struct packs *p, struct addr a, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp);

/* All properties of the chunk that holds `a`. 1/0/<0 as above. */
struct pack_chunk_info {
	struct addr start;
	uint32_t len, chunk_len; /* chunk_len: common to all chunks of the frame, or PACK_VARIED */
	struct fp fp; /* FP_NONE: it is gone */
	uint32_t stored; /* bytes it occupies; in a compressed part, its share of the part */
	enum pack_codec codec; /* of its frame */
	bool is_remote; /* remote */
	bool is_based; /* its frame has parts coded against other parts */
};
int packs_chunk_info(struct packs *p, struct addr a, struct pack_chunk_info *ret);
/* Header of the coded block that holds `a`, and the offset of `a` in the block's plain bytes. Reads the block. 1; 0:
 * not in a coded block, or stored uncoded; -EBADMSG: damaged; <0. */
int packs_block_header(struct packs *p, struct addr a, struct code_header *ret, uint32_t *ret_in);

/*
 * Hints. The index stores 20 bits of a chunk's position in its pack: the number of the block where it begins. Chunks of
 * arbitrary lengths begin anywhere in a block; in their frames the hint is the block that the chunk's number would have
 * if each chunk took one block.
 */
static inline uint32_t pack_hint(struct addr chunk, uint8_t number)
{
	return (chunk.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE * PACK_FRAME_STRIDE + 2 + number;
}
/* Look up the chunk for a hint given as an address. 1/0/<0 as above. */
int packs_find(struct packs *p, struct addr hint, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp);

/* Is the chunk that holds `a` remote? 1/0/<0: unknown */
int packs_is_remote(struct packs *p, struct addr a);
/* The same; if it is remote, also return its frame and its number in the frame. */
int packs_remote_number(struct packs *p, struct addr a, uint32_t *ret_frame, uint32_t *ret_number);

/* Damage found so far in this mount. A lookup is cheap when there is none. */
bool packs_is_damaged(struct packs *p, struct addr chunk);
/* Repair a damaged chunk in place, durably; all references to it read correctly again. -EOPNOTSUPP: it is compressed
 * together with other chunks, which are stored nowhere else. */
int packs_repair_chunk(struct packs *p, struct addr chunk, const void *data, uint32_t len);
/* All references to this damaged chunk point to another copy now: it counts as repaired, but must not be shared. */
void packs_set_replaced(struct packs *p, struct addr chunk);
bool packs_is_replaced(struct packs *p, struct addr chunk);

/* Iterate over all frames of all packs in order of pack and frame, to absorb, rebuild or check. Frames with damaged
 * tables are reported (rec.damaged). Frames not written yet are skipped, so do not rely on frames beyond the marks.
 * After an error the next call continues behind it. */
struct pack_iter {
	struct packs *packs;
	uint32_t pack, frame;
	uint32_t end_pack; /* stop before */
};
struct pack_frame_rec {
	uint32_t pack, frame;
	struct addr first; /* of its first chunk */
	uint32_t chunk_len, nr_chunks; /* chunk_len PACK_VARIED: they differ */
	bool damaged;
	enum pack_codec codec; /* not NONE: each PACK_PART_BYTES of plain bytes are one part */
	uint32_t part_end[PACK_PARTS]; /* end of each part in the stored bytes */
	uint32_t base[PACK_PARTS]; /* base of each part, as in pack_parts */
	bool based; /* any part has a base */
	uint32_t ends[PACK_FRAME_BLOCKS]; /* of each chunk, from `first` */
	struct fp fps[PACK_FRAME_BLOCKS]; /* FP_NONE: the chunk is gone */
	uint64_t remote[PACK_GONE_WORDS]; /* remote chunks */
};
static inline bool pack_rec_remote(const struct pack_frame_rec *rec, uint32_t i)
{
	return rec->remote[i / 64] >> i % 64 & 1;
}
static inline uint32_t pack_rec_start(const struct pack_frame_rec *rec, uint32_t i)
{
	return i == 0 ? 0 : rec->ends[i - 1];
}
static inline struct addr pack_rec_addr(const struct pack_frame_rec *rec, uint32_t i)
{
	return (struct addr){ .pack = rec->pack, .off = rec->first.off + pack_rec_start(rec, i) };
}
static inline uint32_t pack_rec_len(const struct pack_frame_rec *rec, uint32_t i)
{
	return rec->ends[i] - pack_rec_start(rec, i);
}
/* Chunk number as expected by pack_hint(). */
static inline uint8_t pack_rec_number(const struct pack_frame_rec *rec, uint32_t i)
{
	return (uint8_t)(rec->chunk_len ? pack_rec_start(rec, i) / PACK_BLOCK : i);
}
/* Stored size of plain bytes [from, to); for a fraction of a compressed part, its share. */
uint32_t pack_rec_stored(const struct pack_frame_rec *rec, uint32_t from, uint32_t to);
/* Disk space of the frame, including the table, after `gone` has been punched in addition to the chunks already gone.
 * A part that holds a remaining chunk stays, with all parts that it is coded against. */
uint32_t pack_rec_disk(const struct pack_frame_rec *rec, const uint64_t gone[PACK_GONE_WORDS]);
/* Describe one frame, regardless of which chunks are gone or remote. 1/0 there is none/<0. */
int packs_frame_rec(struct packs *p, uint32_t pack, uint32_t frame, struct pack_frame_rec *ret);
/* Iterate from (pack, frame) on. */
struct pack_iter pack_iter(struct packs *p, uint32_t pack, uint32_t frame);
int pack_iter_next(struct pack_iter *it, struct pack_frame_rec *ret); /* 1/0/<0 */
/*
 * Scrubbing. A frame is read from disk, table and data, and every chunk is compared with its fingerprint. This costs
 * one access of up to 1 MiB and does not change the table cache. Damage is logged and recorded as if a reader had found
 * it; records of damage that no longer exists are cleared. Chunks that are gone or replaced are skipped. The caller
 * ensures that no chunks of the frame are freed meanwhile.
 */
struct pack_scrub {
	struct pack_frame_rec rec; /* rec.damaged: the table is damaged, and the chunks are unknown */
	uint64_t bad[PACK_GONE_WORDS]; /* bit i % 64 of bad[i / 64]: chunk i is damaged */
	bool absent; /* there is no table: the frame was never written, or is lost */
	uint32_t read_bytes;
};
/* 1/0 no such frame, or not written yet/<0: the check could not be done, though the disk works. */
int packs_scrub_frame(struct packs *p, uint32_t pack, uint32_t frame, struct pack_scrub *ret);
/* 1: intact; 0: the pack was removed; -ENOENT: the file is missing; -EBADMSG. */
int packs_scrub_header(struct packs *p, uint32_t pack);

/* The stream a pack was created for; 1/0 no such pack/<0. */
int packs_stream_of(struct packs *p, uint32_t pack, enum pack_stream *ret);

/*
 * Freeing space. The caller guarantees that nothing refers to these chunks, that no thread will share them any more,
 * and that conf.fate() and conf.removed report them from now on, also after a crash. The bytes may then be discarded at
 * any time.
 */
/* Free the bytes of some chunks of a frame; the whole frame, including the table, if all of them are gone. Bases that
 * other chunks of the frame are coded against stay until those are gone as well. */
int packs_punch(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t gone[PACK_GONE_WORDS]);
/* The same, but always keep the table: these chunks are gone or remote. */
int packs_empty(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t unneeded[PACK_GONE_WORDS]);
/* Close the current pack of a stream to further frames if no more than `nr_places` were opened in it; else false. */
bool packs_end(struct packs *p, uint32_t pack, uint32_t nr_places);
int packs_remove(struct packs *p, uint32_t pack); /* a whole pack, which gets no more frames */
bool packs_is_removed(struct packs *p, uint32_t pack);
/* Drop a cached table, so that conf.fate() is called again at the next lookup. */
void packs_forget_table(struct packs *p, uint32_t pack, uint32_t frame);
/* Frames that a pack may have, written or being written; *ret_full: it gets no more. 1/0 no such pack/<0. */
int packs_frames_of(struct packs *p, uint32_t pack, uint32_t *ret, bool *ret_full);

struct pack_stats {
	uint64_t nr_packs, nr_frames, nr_chunks;
	uint64_t chunk_bytes; /* bytes of chunks in all packs */
	uint64_t stored_bytes; /* as compressed */
	uint64_t disk_bytes;  /* blocks of the files */
	uint64_t table_memory, table_hits, table_misses;
	uint64_t nr_damaged, nr_repaired;
	uint64_t read_bytes, written_bytes;
	uint64_t freed_bytes; /* on disk, by punching holes and removing packs */
	/* Plain bytes of the frames written since opening: */
	uint64_t compressed_bytes, compressed_to; /* compressed, and the size of the blocks they took */
	uint64_t unshrinkable_bytes, busy_bytes; /* not compressed: not worth it; no time */
	bool direct_io; /* false: the filesystem refused O_DIRECT, packs go through the page cache */
	bool parallel_reads; /* false: the kernel refused a queue, and scattered data was read place by place */
};
void packs_set_table_memory(struct packs *p, uint64_t limit);
void packs_stats(struct packs *p, struct pack_stats *ret);
