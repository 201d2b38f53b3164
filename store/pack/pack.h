/*
 * The packs of one store: append-only files that hold chunk bytes and the fingerprints of them.
 *
 * A pack is a header block and then frames at a fixed stride of 257 blocks of 4 KiB: one table block
 * (which chunks, their fingerprints, sealed with a keyed checksum) and up to 256 blocks of chunk bytes.
 * A frame that holds less leaves a hole in the file, which costs nothing, and so
 *   - the table of any address is found by division, without a search or a map;
 *   - a table and its bytes are one contiguous read;
 *   - a frame is written once, whole, and never touched again: appending cannot damage what is there.
 * A frame holds chunks of one length that is a multiple of blocks, or chunks of any lengths, side by side.
 * Frames of a stream are numbered in order; a pack is full at a number of frames or bytes and the stream
 * goes on in the next pack. Two streams, so that large frames are written straight from the caller's
 * memory while scattered single chunks collect in one frame.
 *
 * What is durable is told by marks: per stream the current pack and how many of its frames are complete
 * and synced. The caller keeps the marks in its journal. Opening with marks cuts off everything after
 * them: bytes that nothing committed refers to, possibly torn. Crash order: frame written -> pack synced ->
 * marks committed by the caller. Packs with an id at or above `next_pack` did not exist at the commit and are
 * removed; packs below it that no stream is at are complete.
 *
 * Thread rule: all functions from any thread, except that a pack_frame belongs to one thread at a time.
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
 * How the parts of a frame are coded: where each ends in what is stored, and where its base is: a code_place()
 * (store/code/code_format.h) among the frame's plain bytes, in parts before it; 0: it has none. So nothing outside a
 * frame is needed to decode it.
 */
struct pack_parts {
	uint32_t end[PACK_PARTS];
	uint32_t base[PACK_PARTS];
};

/* Is it worth storing so many bytes another way? What saves less than 5 % costs more than it saves. */
static inline bool pack_is_worth_it(uint64_t stored, uint64_t before)
{
	return stored * 100 <= before * 95;
}

/* A frame has chunks of one length, or PACK_VARIED ones: of any lengths up to a limit, and so many at most. */
#define PACK_VARIED 0u
#define PACK_VARIED_MAX 225u
#define PACK_VARIED_LEN_MAX (64u << 10)

enum pack_stream { PACK_BULK, PACK_SMALL, PACK_NR_STREAMS };

struct pack_mark {
	uint32_t pack;	    /* the stream's current pack, 0: none yet */
	uint32_t nr_frames; /* complete and durable ones in it */
};

/* What the frames before the marks hold, kept with them so that a mount need not count. */
struct pack_counts {
	uint64_t nr_chunks, chunk_bytes, nr_frames;
	uint64_t stored_bytes; /* that the chunks took when they were written: less where compressed */
};

struct pack_marks {
	struct pack_mark stream[PACK_NR_STREAMS];
	uint32_t next_pack; /* smallest id never used, from 1 */
	struct pack_counts counts;
};

/* How the bytes of new frames are stored. A frame that does not get smaller by 5 % is stored as it is. */
enum pack_compress { PACK_COMPRESS_NONE, PACK_COMPRESS_LZ4, PACK_COMPRESS_ZSTD, PACK_COMPRESS_AUTO };
struct pack_compression {
	enum pack_compress kind; /* AUTO: with lz4, if time_for() says that there is time */
	int level; /* of zstd, 0: its default */
};

/* SPARE: unless somebody comes to wait, and then the frame is written as it is. */
enum pack_time { PACK_TIME_NONE, PACK_TIME_SPARE, PACK_TIME_ENOUGH };

/* A chunk that is elsewhere, and where its bytes are wanted. */
struct pack_away {
	uint32_t number; /* in its frame */
	uint32_t len;
	struct fp fp;
	void *buf;
};

/* Bit i % 64 of word i / 64 for chunk i of a frame. */
struct pack_fate {
	uint64_t gone[PACK_GONE_WORDS]; /* given back by packs_punch() or packs_remove(), and no chunk any more */
	uint64_t away[PACK_GONE_WORDS]; /* its bytes are elsewhere, not in the pack, though it counts as there */
};
enum { PACK_GONE = 1, PACK_AWAY = 2 }; /* what there are bits of */

struct packs_conf {
	const struct fp_key *key; /* borrowed for the life of the packs */
	uint8_t store_id[16];
	uint16_t node;
	uint64_t pack_bytes;   /* data bytes after which a pack is full; 0: 256 MiB */
	uint64_t table_memory; /* limit on cached frame tables */
	/* frames whose memory is kept when they are written: as many as the caller holds at once; 0: a few */
	unsigned nr_spare;
	uint64_t held_memory; /* for frames of which something was decoded; 0: a few */
	struct io_rate *read_rate, *write_rate; /* borrowed; NULL: unlimited */
	bool read_only;	       /* opens without cutting or removing anything */

	struct pack_compression compression; /* of frames that are not told otherwise */
	/* Asked before each frame of AUTO is compressed; NULL: there is time. */
	enum pack_time (*time_for)(void *userdata, uint32_t bytes);
	bool (*is_disturbed)(void *userdata); /* in spare time, between parts: does somebody wait? */

	/* What has become of a frame's chunks: asked whenever a table has been read. PACK_GONE and PACK_AWAY, if any
	 * are; `ret` is all zeros before. 0: all are there, <0. NULL: all are. */
	int (*fate)(void *userdata, uint32_t pack, uint32_t frame, struct pack_fate *ret);
	/* Gets such bytes, all of one frame, and checks them. */
	int (*fetch)(void *userdata, uint32_t pack, uint32_t frame, const struct pack_away *chunks, size_t nr);
	void *userdata; /* of all of them */
	const uint32_t *removed; /* packs, borrowed by packs_open() only */
	size_t nr_removed;
};

/* `dirfd` is packs/ itself (kept until close, not closed). Marks of zeros with next_pack 1: a new store. */
int packs_open(int dirfd, const struct packs_conf *conf, const struct pack_marks *marks, struct packs **ret);
void packs_close(struct packs *p); /* NULL is fine */

/*
 * Writing. A frame is opened, filled and written by one thread. Opening takes the next place of the stream and
 * costs no I/O but the creation of a new pack now and then, so it may be called under a short lock.
 */
int packs_frame_open(struct packs *p, enum pack_stream s, uint32_t chunk_len, struct pack_frame **ret);
/* Chunks that still fit. chunk_len is a multiple of PACK_BLOCK, at most PACK_FRAME_BYTES; or PACK_VARIED, with
 * PACK_SMALL only, and then bytes count too: pack_frame_takes(). */
unsigned pack_frame_room(const struct pack_frame *f);
bool pack_frame_takes(const struct pack_frame *f, uint32_t len);
void pack_frame_set_compression(struct pack_frame *f, struct pack_compression c);
void pack_frame_set_uncompressed(struct pack_frame *f); /* whatever is set later */
/* Add one chunk. PACK_BULK borrows `data` (4 KiB aligned) until the frame is written; PACK_SMALL copies it.
 * From here on its address can be given out: packs_fps() knows it, packs_read() has its bytes from memory. */
struct addr pack_frame_add(struct pack_frame *f, struct fp fp, const void *data);
/* The same for a PACK_VARIED frame that takes it. */
struct addr pack_frame_add_varied(struct pack_frame *f, struct fp fp, const void *data, uint32_t len);
/* The number of the chunk that was added last, as pack_hint() wants it. */
uint8_t pack_frame_last(const struct pack_frame *f);
/* Write the frame with one aligned write. On an error its chunks are not there, packs_wait() says so to whoever
 * already shares them, and `f` lives on: write it again (PACK_SMALL, memory is ours) or abandon it. On success
 * frees f. A frame without chunks is dropped. */
int packs_frame_write(struct packs *p, struct pack_frame *f);
/* The same of bytes that the caller has coded (store/code), PACK_PART_BYTES at a time, each block with the base_place
 * that is said here. A part as long as its plain bytes is stored as it is. */
int packs_frame_write_coded(struct packs *p, struct pack_frame *f, const void *stored, const struct pack_parts *parts);
void packs_frame_abandon(struct packs *p, struct pack_frame *f);
/*
 * A frame of PACK_SMALL of which some chunks are to be elsewhere. First it is written without them: blocks that hold
 * nothing else stay holes. The frame goes on to have all bytes in memory, for whoever reads them, until it is settled:
 * then those that are not elsewhere after all have been written as well, durably, and `f` is freed. On an error `f`
 * lives on: try again. A crash in between leaves a table that names chunks whose bytes are not there: `gone` must tell
 * of them by then.
 */
int packs_frame_write_partly(struct packs *p, struct pack_frame *f, const uint64_t away[PACK_GONE_WORDS]);
int packs_frame_settle(struct packs *p, struct pack_frame *f, const uint64_t away[PACK_GONE_WORDS]);
void packs_frame_leave(struct packs *p, struct pack_frame *f); /* neither: as a crash in between would */
/* What is in a frame, for whoever has it open. */
void pack_frame_place(const struct pack_frame *f, uint32_t *ret_pack, uint32_t *ret_frame);
uint32_t pack_frame_nr(const struct pack_frame *f);
struct fp pack_frame_fp(const struct pack_frame *f, uint32_t i);
uint32_t pack_frame_len(const struct pack_frame *f, uint32_t i);
/* Until the frame that holds `a` has been written: 0, or the error it failed with. 0 at once for all written ones and
 * for small frames, whose bytes are in our memory until then. */
int packs_wait(struct packs *p, struct addr a);

/*
 * Make all frames opened before packs_sync_begin() durable (waits for those being written) and tell the marks. Two
 * steps, so that the caller can make sure, under the lock it opens frames with, that none of them is open and left
 * lying: such a frame would never be done. From begin to end no other sync runs.
 */
void packs_sync_begin(struct packs *p);
int packs_sync_end(struct packs *p, struct pack_marks *ret);
/* Both at once. */
int packs_sync(struct packs *p, struct pack_marks *ret);

static inline bool pack_same_frame(struct addr a, struct addr b)
{
	return a.node == b.node && a.pack == b.pack &&
	       (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE == (b.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* The number of its frame; not of one of a table. */
static inline uint32_t pack_frame_of(struct addr a)
{
	return (a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
}

/* How far into its frame's data an address is; not one of a table. */
static inline uint32_t pack_in_frame(struct addr a)
{
	return a.off - ((a.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE * PACK_FRAME_STRIDE + 2) * PACK_BLOCK;
}

/*
 * Reading. Addresses may point inside a chunk. A range lies in one frame.
 * Every chunk is checked against its fingerprint: -EBADMSG with the pack and offset logged, and remembered as damaged.
 */
int packs_read(struct packs *p, struct addr a, uint32_t len, void *buf);
/* The same for several pieces of one request: neighbouring ranges become one read where that helps. */
struct pack_piece {
	struct addr addr;
	uint32_t len;
	void *buf;
};
int packs_read_pieces(struct packs *p, const struct pack_piece *pieces, size_t nr);
/* The same without a look at what was read: whoever gets it compares it. */
int packs_read_as_is(struct packs *p, const struct pack_piece *pieces, size_t nr);
/* The same for who reads a file, up to its end or not. Files that lie one behind the other in compressed frames are
 * likely read so: when he has been given these, packs_read_ahead() decodes what comes next, if that has been seen, or
 * does nothing. It may be called by anybody at any time. */
int packs_read_of_file(struct packs *p, const struct pack_piece *pieces, size_t nr, bool is_end);
void packs_read_ahead(struct packs *p);

/* Fingerprints of up to `n` chunks of `chunk_len` that lie side by side from `a` in its frame: how many there are.
 * 0: the address holds no such chunks (a stale hint); -EBADMSG: the table is damaged, logged once. */
int packs_fps(struct packs *p, struct addr a, uint32_t chunk_len, unsigned n, struct fp *ret);
/* The same for chunks of any lengths: the one that begins at `a`, and those behind it that begin in the next `len`
 * bytes. */
struct pack_chunk {
	uint32_t off, len; /* address and bytes */
	struct fp fp;
	bool is_away; /* its bytes are elsewhere */
};
int packs_chunks(struct packs *p, struct addr a, uint32_t len, unsigned n, struct pack_chunk *ret);
/* Length and start of the chunk that holds `a`. 1/0/<0 as above. */
int packs_chunk_at(struct packs *p, struct addr a, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp);

/* All that is known of the chunk that holds `a`. 1/0/<0 as above. */
struct pack_chunk_info {
	struct addr start;
	uint32_t len, chunk_len; /* chunk_len: of all in its frame, or PACK_VARIED */
	struct fp fp; /* FP_NONE: it is gone */
	uint32_t stored; /* bytes that it takes; of a part of what was compressed together its share */
	bool is_coded, is_away;
	bool is_based; /* its frame has parts that are coded against others of it */
};
int packs_chunk_info(struct packs *p, struct addr a, struct pack_chunk_info *ret);
/* How the block was coded that holds `a`, and how far into its plain bytes that is. Reads it. 1; 0: it is in none, or
 * stored as it is; -EBADMSG: damaged; <0. */
int packs_block_header(struct packs *p, struct addr a, struct code_header *ret, uint32_t *ret_in);

/*
 * Hints. An index remembers 20 bits of where a chunk lies in its pack: the block it begins at. Chunks of varied lengths
 * begin anywhere, so of their frames it is the block that the chunk's number would be at, if each took one.
 */
static inline uint32_t pack_hint(struct addr chunk, uint8_t number)
{
	return (chunk.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE * PACK_FRAME_STRIDE + 2 + number;
}
/* The chunk that a hint, taken as an address, leads to. 1/0/<0 as above. */
int packs_find(struct packs *p, struct addr hint, struct addr *ret_start, uint32_t *ret_len, struct fp *ret_fp);

/* Are the bytes of the chunk that holds `a` elsewhere? 1/0/<0: nobody knows */
int packs_is_away(struct packs *p, struct addr a);
/* The same, and if they are, its frame and which chunk of that it is. */
int packs_away_number(struct packs *p, struct addr a, uint32_t *ret_frame, uint32_t *ret_number);

/* Damage found so far in this mount. Cheap when there is none. */
bool packs_is_damaged(struct packs *p, struct addr chunk);
void packs_set_damaged(struct packs *p, struct addr chunk);
/* Write a damaged chunk's bytes over its place again, durable; whoever refers to it reads well again. -EOPNOTSUPP: it
 * is compressed together with others, and they have no place but this. */
int packs_heal(struct packs *p, struct addr chunk, const void *data, uint32_t len);
/* Nobody refers to this damaged chunk any more, but to another copy: it counts as healed, and still must not be
 * shared. */
void packs_set_replaced(struct packs *p, struct addr chunk);
bool packs_is_replaced(struct packs *p, struct addr chunk);

/* All frames of all packs in order of pack and frame, for absorbing, rebuilding and checking. Damaged tables are
 * reported (rec.damaged) and skipped over; frames not written yet are passed over, so go no further than the marks.
 * After an error the next call goes on behind it. */
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
	bool compressed; /* each PACK_PART_BYTES of plain bytes on their own, ... */
	bool coded; /* as blocks of store/code, */
	bool based; /* and some of them against others, */
	uint32_t part_end[PACK_PARTS]; /* and these end there in what is stored, */
	uint32_t base[PACK_PARTS]; /* and have their bases there */
	uint32_t ends[PACK_FRAME_BLOCKS]; /* of each chunk, from `first` */
	struct fp fps[PACK_FRAME_BLOCKS]; /* FP_NONE: the chunk is gone */
	uint64_t away[PACK_GONE_WORDS]; /* chunks whose bytes are elsewhere */
};
static inline bool pack_rec_away(const struct pack_frame_rec *rec, uint32_t i)
{
	return rec->away[i / 64] >> i % 64 & 1;
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
/* As pack_hint() wants it. */
static inline uint8_t pack_rec_number(const struct pack_frame_rec *rec, uint32_t i)
{
	return (uint8_t)(rec->chunk_len ? pack_rec_start(rec, i) / PACK_BLOCK : i);
}
/* One frame, whatever became of its chunks. 1/0 there is none/<0. */
int packs_frame_rec(struct packs *p, uint32_t pack, uint32_t frame, struct pack_frame_rec *ret);
/* From (pack, frame) on. */
struct pack_iter pack_iter(struct packs *p, uint32_t pack, uint32_t frame);
int pack_iter_next(struct pack_iter *it, struct pack_frame_rec *ret); /* 1/0/<0 */
/*
 * Looking for damage. A frame is read from the disk, table and data, and every chunk of it compared, which costs one
 * access of up to 1 MiB and leaves the tables in memory as they are. What is damaged is logged and remembered, as if a
 * reader had met it; what is not any more is forgotten. Chunks that are gone or replaced are not looked at. The caller
 * sees to it that none are given back meanwhile.
 */
struct pack_scrub {
	struct pack_frame_rec rec; /* rec.damaged: the table is, and nothing is known of the chunks */
	uint64_t bad[PACK_GONE_WORDS]; /* bit i % 64 of bad[i / 64]: chunk i is damaged */
	bool absent; /* there is no table: never written after all, or lost */
	uint32_t read_bytes;
};
/* 1/0 there is none, or it is not written yet/<0: the disk works, but this could not be done. */
int packs_scrub_frame(struct packs *p, uint32_t pack, uint32_t frame, struct pack_scrub *ret);
/* 1: as it should be; 0: the pack was removed; -ENOENT: it should be there; -EBADMSG. */
int packs_scrub_header(struct packs *p, uint32_t pack);

/* The stream a pack belongs to; 1/0 no such pack/<0. */
int packs_stream_of(struct packs *p, uint32_t pack, enum pack_stream *ret);

/*
 * Giving space back. The caller vouches that nothing refers to these chunks, that nobody will share them any more, and
 * that `gone` and `removed` will say so from now on, also after a crash. Then the disk may forget them at any time.
 */
/* Bytes of the chunks of one frame; of the whole frame, table included, if all of them are gone. What others of the
 * frame are coded against stays until these are gone, too. */
int packs_punch(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t gone[PACK_GONE_WORDS]);
/* The same where the table stays, also if nothing else does: these chunks are gone, or their bytes are elsewhere. */
int packs_empty(struct packs *p, uint32_t pack, uint32_t frame, uint32_t chunk_len, uint32_t nr_chunks,
		const uint64_t unneeded[PACK_GONE_WORDS]);
/* No more frames for this pack, which a stream is at and which has so many; false: it has got more. */
bool packs_end(struct packs *p, uint32_t pack, uint32_t nr_frames);
int packs_remove(struct packs *p, uint32_t pack); /* the whole pack, of which no more will come */
bool packs_is_removed(struct packs *p, uint32_t pack);
/* Ask `gone` again when the frame is next looked at. */
void packs_forget_table(struct packs *p, uint32_t pack, uint32_t frame);
/* Frames that a pack may have, written or being written; *ret_full: no more will come. 1/0 no such pack/<0. */
int packs_frames_of(struct packs *p, uint32_t pack, uint32_t *ret, bool *ret_full);

struct pack_stats {
	uint64_t nr_packs, nr_frames, nr_chunks;
	uint64_t chunk_bytes; /* bytes of chunks in all packs */
	uint64_t stored_bytes; /* as compressed */
	uint64_t disk_bytes;  /* blocks of the files */
	uint64_t table_memory, table_hits, table_misses;
	uint64_t nr_damaged, nr_healed;
	uint64_t read_bytes, written_bytes;
	/* Of the frames written since opening, in plain bytes: */
	uint64_t compressed_bytes, compressed_to; /* compressed, and the blocks that took */
	uint64_t unshrinkable_bytes, busy_bytes; /* not compressed: it did not pay, there was no time */
	bool direct_io; /* false: the filesystem refused O_DIRECT, packs go through the page cache */
};
void packs_set_table_memory(struct packs *p, uint64_t limit);
void packs_stats(struct packs *p, struct pack_stats *ret);
