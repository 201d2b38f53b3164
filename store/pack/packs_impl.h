/*
 * What the files of store/pack share: the body of struct packs. Nobody outside this folder includes it.
 *
 * Lock order: packs.lock, then the locks of pack_files, pack_tables' shards, pack_places,
 * pack_buffers, coders, pack_crew and pack_ahead, which are all leaves. No lock is held across disk I/O, but for heal_lock.
 */
#pragma once

#include <stdatomic.h>

#include "base/mutex.h"
#include "store/pack/codec.h"
#include "store/pack/pack.h"
#include "store/pack/pack_ahead.h"
#include "store/pack/pack_buffers.h"
#include "store/pack/pack_crew.h"
#include "store/pack/pack_files.h"
#include "store/pack/pack_places.h"
#include "store/pack/pack_table.h"

struct stream {
	struct pack_mark at; /* frames opened so far, written or not */
	uint64_t data_bytes; /* written to the pack */
	struct pack_file *file; /* of the pack, referenced; NULL: the next frame starts a new pack */
};

struct pack_frame {
	/* constant after packs_frame_open() */
	struct packs *packs;
	struct pack_file *file; /* referenced */
	enum pack_stream stream;
	uint32_t frame, chunk_len, nr_max;
	uint64_t number;
	struct table *table;

	/* of the owner */
	struct pack_buffer *buffer; /* PACK_SMALL: chunk bytes */
	const uint8_t **chunks; /* PACK_BULK: where they are */
	struct pack_compression compression;
	bool uncompressed; /* it is to stay so */
	bool tried; /* to write: the place may hold anything */
	uint64_t away[PACK_GONE_WORDS]; /* of one that is written partly */

	/* guarded by packs.lock */
	struct pack_frame *prev, *next;
	bool written;
	int error; /* the last write failed with */
	int abandoned; /* what whoever shares its chunks is told */
};

struct packs {
	/* constant after packs_open() */
	int dirfd;
	struct packs_conf conf;
	struct pack_files *files;
	struct pack_tables *tables;

	struct pack_buffers buffers;
	struct coders coders;
	struct pack_crew crew; /* to decode what was read */
	struct pack_ahead ahead;
	struct pack_places removed; /* packs, as offset 0 */
	struct pack_places damaged; /* chunks by their address, tables by theirs, whole packs and headers as offset 0 */
	struct pack_places replaced; /* chunks that were damaged and are referred to no more */
	_Atomic uint32_t likely_chunk_len; /* of the table met last: what a reader without a table guesses */
	_Atomic uint32_t likely_stored; /* bytes of a whole frame, if that one was compressed; else 0 */
	_Atomic bool likely_away; /* it had chunks that are elsewhere */
	_Atomic uint64_t nr_packs, nr_healed, read_bytes, written_bytes;
	_Atomic uint64_t compressed_bytes, compressed_to, unshrinkable_bytes, busy_bytes;

	/* one chunk at a time is written over: two may share a block. Held across that I/O; before all others */
	struct mutex heal_lock;

	struct mutex lock;
	struct cond changed; /* something of the below that others wait for */
	struct stream streams[PACK_NR_STREAMS] GUARDED_BY(lock);
	uint32_t next_pack GUARDED_BY(lock);
	bool creating GUARDED_BY(lock); /* a pack: one at a time, and no marks meanwhile */
	uint64_t disk_bytes GUARDED_BY(lock);

	/* Frames opened and not yet written or given up, in order of their number, which counts those of the mount. */
	struct pack_frame *first GUARDED_BY(lock), *last GUARDED_BY(lock);
	uint64_t last_number GUARDED_BY(lock);
	struct pack_frame *unclean GUARDED_BY(lock); /* given up, and the place may still look like a frame */

	/* What the next sync has to do. */
	struct pack_file *dirty GUARDED_BY(lock);
	bool dir_dirty GUARDED_BY(lock);

	/* One sync at a time. Marks stand for the frames up to `sync_number`; those after it that are done meanwhile
	 * count in `later`. */
	bool syncing GUARDED_BY(lock);
	uint64_t sync_number GUARDED_BY(lock);
	struct pack_marks sync_marks GUARDED_BY(lock);
	struct pack_counts counts GUARDED_BY(lock), later GUARDED_BY(lock);
};

/* packs.c: the file of a pack. 1/0/<0 as pack_files_get(); a missing pack or damaged header is logged once. */
int packs_file_get(struct packs *p, uint32_t pack, struct pack_file **ret);
/* packs.c: a frame as its table says; NULL: that is damaged. */
void packs_fill_rec(uint32_t pack, uint32_t frame, const struct pack_table *t, struct pack_frame_rec *ret);
/* How many frames of a pack can be there, by what was opened; 0: the pack is not ours. */
uint32_t packs_nr_frames(struct packs *p, uint32_t pack);

/* pack_lookup.c: what has become of a frame's chunks, as conf.fate() tells it. */
int packs_fate(struct packs *p, uint32_t pack, uint32_t frame, struct pack_fate *ret);
/* A table block as read from its place. 1: decoded; 0: there is none, only zeros or the end of the file;
 * -EBADMSG, -EOPNOTSUPP: logged the first time, and remembered. */
int packs_check_table(struct packs *p, uint32_t pack, uint32_t frame, const void *block, size_t len,
		      struct pack_table *ret);
/* The same, reading it. */
int packs_load_table(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_table *ret);
/* The same, if it is not in memory, where it is from then on. What is likely stored of [in, end) may come with it:
 * *ret_have bytes, behind the table in *ret_stored, which is to be put. */
int packs_find_table(struct packs *p, struct pack_file *file, uint32_t frame, uint32_t in, uint32_t end,
		     struct pack_buffer **ret_stored, uint32_t *ret_have, struct pack_table *ret);

/* pack_compress.c: the frame's bytes compressed, filled up with zeros to whole blocks, behind room for the table.
 * NULL: to be written as it is. */
struct pack_buffer *packs_frame_compress(struct packs *p, const struct pack_frame *f, uint32_t plain_len,
					 struct pack_coding *ret);

/* What a table says of its frame. */
struct shape {
	struct pack_cuts cuts;
	const struct pack_coding *coding;
	const struct fp *fps;
	const uint64_t *away; /* words */
};

/* pack_parts.c: parts of a compressed frame that a read wants. */
struct part_read {
	struct packs *packs;
	struct pack_file *file;
	uint32_t frame, plain_len;
	const struct pack_coding *coding;
	struct pack_buffer *stored; /* as on disk */
	uint32_t have; /* of the stored bytes, from the first one on, are there already */
	uint8_t *to[PACK_PARTS]; /* where each is wanted, whole; NULL: it is not */
	uint8_t *spare; /* PACK_FRAME_BYTES, for what these are coded against: each part at its place */
	struct pack_held held; /* what it has already; out: has now */
	bool is_alone; /* nobody is to help: they are needed elsewhere */
	uint32_t decoded; /* bit i: part i is read and decoded */
	uint32_t bases; /* out, bit i: part i was decoded for that alone, and is whole */
	uint32_t bad; /* bit i: part i cannot be decompressed */
};
/* 0, or the parts could not be read. Does not log. */
int packs_read_parts(struct part_read *pr);

/* pack_write.c: bytes of a chunk in a frame that a table_view holds. */
const uint8_t *pack_frame_chunk(const struct pack_frame *f, uint32_t i);
/* pack_write.c: its table as it is on disk; that it is written, in so many bytes behind the table. */
void packs_frame_encode(const struct pack_frame *f, const struct pack_coding *coding, struct pack_table_disk *ret);
void packs_frame_count(struct packs *p, struct pack_frame *f, const struct pack_coding *coding, uint32_t on_disk);
/* pack_write.c: it could not be, which is told, and to whoever waits for it. Returns r. */
int packs_frame_failed(struct packs *p, struct pack_frame *f, int r);
/* pack_write.c: make the place of a lost frame look as if nothing had been written there. */
int packs_frame_wipe(struct pack_frame *f);
void packs_frame_free(struct pack_frame *f); /* neither listed nor in a table any more; NULL is fine */
/* pack_write.c: a file that the next sync has to see to, and the disk space it takes now. */
void packs_set_dirty(struct packs *p, struct pack_file *file) REQUIRES(p->lock);
void packs_count_disk(struct packs *p, struct pack_file *file, uint64_t now_bytes) REQUIRES(p->lock);

/* pack_sync.c: let go of what was left to be synced. */
void packs_forget_unsynced(struct packs *p);
