/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The body of struct packs, shared by the files of store/pack. Not included outside this folder.
 *
 * Lock order: repair_lock, then packs.lock, then the locks of pack_files, the shards of pack_tables, pack_places,
 * pack_buffers, coders, pack_crew, pack_ahead and pack_gathers, which are all leaves. Only repair_lock is held across disk I/O.
 */
#pragma once

#include <stdatomic.h>

#include "base/mutex.h"
#include "store/pack/coded/codec.h"
#include "store/pack/pack.h"
#include "store/pack/pack_buffers.h"
#include "store/pack/pack_crew.h"
#include "store/pack/pack_files.h"
#include "store/pack/pack_places.h"
#include "store/pack/pack_table.h"
#include "store/pack/reading/pack_ahead.h"
#include "store/pack/reading/pack_gather.h"

struct stream {
	struct pack_mark at; /* frames opened so far, written or not */
	uint64_t data_bytes; /* written to the pack */
	struct pack_file *file; /* of the pack, referenced; NULL: the next frame starts a new pack */
	unsigned nr_open; /* frames on the list of those opened and not yet written or abandoned */
};

struct pack_frame {
	/* constant after packs_frame_open() */
	struct packs *packs;
	struct pack_file *file; /* referenced */
	enum pack_stream stream;
	bool is_small; /* of PACK_SMALL; else of a bulk stream */
	uint32_t frame, chunk_len, nr_max;
	uint64_t number;
	struct table *table;
	uint64_t seal; /* of the table as it was encoded last */

	/* used by the owning thread only */
	struct pack_buffer *buffer; /* PACK_SMALL: chunk bytes */
	const uint8_t **chunks; /* PACK_BULK: where they are */
	struct pack_compression compression;
	bool uncompressed; /* must stay uncompressed */
	bool tried; /* a write was attempted: the place may hold anything */
	uint64_t remote[PACK_GONE_WORDS]; /* chunks left out by packs_frame_write_partly() */

	/* guarded by packs.lock */
	struct pack_frame *prev, *next;
	bool written;
	int error; /* of the last write, if it failed */
	int abandoned; /* error returned to threads that share its chunks */
};

/* Something written to a pack that no sync has made durable yet (pack_rewrite.c). */
enum unsynced_kind { UNSYNCED_HEADER, UNSYNCED_FRAME, UNSYNCED_WIPED };
struct unsynced {
	enum unsynced_kind kind;
	uint32_t pack, frame;
	uint64_t number; /* a sync that waits for frames up to this number covers it */
	uint64_t seal; /* of a frame's table */
};

struct packs {
	/* constant after packs_open() */
	int dirfd;
	struct packs_conf conf;
	struct pack_files *files;
	struct pack_tables *tables;

	struct pack_buffers buffers;
	struct coders coders;
	struct pack_crew crew; /* helps to decode */
	struct pack_ahead ahead;
	struct pack_gathers gathers;
	struct pack_places removed; /* packs, as offset 0 */
	struct pack_places damaged; /* chunks by their address, tables by theirs, whole packs and headers as offset 0 */
	struct pack_places replaced; /* chunks that were damaged and are no longer referred to */
	_Atomic uint32_t likely_chunk_len; /* of the table decoded last: a reader without a table guesses this */
	_Atomic uint32_t likely_stored; /* stored size of a full frame, if the last one was compressed; else 0 */
	_Atomic bool likely_remote; /* the last one had remote chunks */
	_Atomic uint64_t nr_packs, nr_repaired, read_bytes, written_bytes, freed_bytes;
	_Atomic uint64_t compressed_bytes, compressed_to, unshrinkable_bytes, busy_bytes;

	/* Serialises in-place repairs, since two damaged chunks may share a block, and frames that are rewritten after a
	 * failed sync. Held across the reads and the write of one frame; taken before all others. */
	struct mutex repair_lock;

	struct mutex lock;
	struct cond changed; /* any of the fields below that a thread may wait for */
	struct stream streams[PACK_NR_STREAMS] GUARDED_BY(lock);
	uint32_t next_pack GUARDED_BY(lock);
	bool creating GUARDED_BY(lock); /* a pack is being created: one at a time, and no marks are taken meanwhile */
	uint64_t disk_bytes GUARDED_BY(lock);

	/* Frames opened and not yet written or abandoned, ordered by `number`, which counts all frames of the mount. */
	struct pack_frame *first GUARDED_BY(lock), *last GUARDED_BY(lock);
	uint64_t last_number GUARDED_BY(lock);
	struct pack_frame *unclean GUARDED_BY(lock); /* abandoned, but the place may still look like a frame */

	/* Work for the next sync. */
	struct pack_file *dirty GUARDED_BY(lock);
	bool dir_dirty GUARDED_BY(lock);
	struct unsynced *unsynced GUARDED_BY(lock);
	size_t nr_unsynced GUARDED_BY(lock), max_unsynced GUARDED_BY(lock);
	uint64_t unnoted GUARDED_BY(lock); /* highest number that could not be recorded for lack of memory; 0: none */
	int lost GUARDED_BY(lock); /* < 0: unsynced data is lost, and all further syncs fail */

	/* One sync at a time. Its marks cover the frames up to `sync_number`; frames after it that are written
	 * meanwhile are counted in `later`. */
	bool syncing GUARDED_BY(lock);
	bool early GUARDED_BY(lock); /* a thread is in packs_sync_early() */
	uint64_t sync_number GUARDED_BY(lock);
	struct pack_marks sync_marks GUARDED_BY(lock);
	/* io_sync_failures() when this sync began, and when the last successful one did. */
	uint64_t sync_failures GUARDED_BY(lock), synced_failures GUARDED_BY(lock);
	struct pack_counts counts GUARDED_BY(lock), later GUARDED_BY(lock);
};

/* packs.c: the file of a pack. 1/0/<0 as pack_files_get(); a missing pack or damaged header is logged once. */
int packs_file_get(struct packs *p, uint32_t pack, struct pack_file **ret);
/* packs.c: describe a frame by its table; NULL: the table is damaged. */
void packs_fill_rec(uint32_t pack, uint32_t frame, const struct pack_table *t, struct pack_frame_rec *ret);
/* How many frames of a pack may exist, by how many were opened; 0: no such pack. */
uint32_t packs_nr_frames(struct packs *p, uint32_t pack);

/* pack_lookup.c: which chunks of a frame are gone or remote, from conf.fate(). */
int packs_fate(struct packs *p, uint32_t pack, uint32_t frame, struct pack_fate *ret);
/* Check a table block as read from disk. 1: decoded; 0: no table, only zeros or the end of the file; -EBADMSG,
 * -EOPNOTSUPP: logged the first time, and recorded as damaged. */
int packs_check_table(struct packs *p, uint32_t pack, uint32_t frame, const void *block, size_t len,
		      struct pack_table *ret);
/* The same, reading the block. */
int packs_load_table(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_table *ret);
/* The same, and cache the table. May also read the stored bytes that probably hold [in, end): *ret_have bytes, behind
 * the table in *ret_stored, which the caller puts back. */
int packs_find_table(struct packs *p, struct pack_file *file, uint32_t frame, uint32_t in, uint32_t end,
		     struct pack_buffer **ret_stored, uint32_t *ret_have, struct pack_table *ret);

/* pack_compress.c: compress the frame, zero-padded to whole blocks, behind space for the table. NULL: do not. */
struct pack_buffer *packs_frame_compress(struct packs *p, const struct pack_frame *f, uint32_t plain_len,
					 struct pack_coding *ret);

/* Layout of a frame according to its table. */
struct shape {
	struct pack_cuts cuts;
	const struct pack_coding *coding;
	const struct fp *fps;
	const uint64_t *remote; /* words */
};

/* pack_parts.c: read and decode parts of a compressed frame. */
struct part_read {
	struct packs *packs;
	struct pack_file *file;
	uint32_t frame, plain_len;
	const struct pack_coding *coding;
	struct pack_buffer *stored; /* as on disk */
	uint32_t have; /* stored bytes that are already in memory, from the first one on */
	uint8_t *to[PACK_PARTS]; /* destination of each whole part; NULL: not wanted */
	uint8_t *spare; /* PACK_FRAME_BYTES, for parts needed as bases: each at its own offset */
	struct pack_held held; /* in: parts already decoded in `spare`; out: those decoded there now */
	bool is_alone; /* decode in this thread only: the helper threads are needed elsewhere */
	uint32_t decoded; /* bit i: part i is read and decoded */
	uint32_t bases; /* out, bit i: part i was decoded as a base only, and completely */
	uint32_t bad; /* bit i: part i cannot be decompressed */
};
/* 0, or an error if the parts could not be read. Does not log. */
int packs_read_parts(struct part_read *pr);

/* pack_write.c: bytes of a chunk of a frame that is pinned by a table_view. */
const uint8_t *pack_frame_chunk(const struct pack_frame *f, uint32_t i);
/* pack_write.c: encode the table; account for a frame that was written with `on_disk` bytes behind the table. */
void packs_frame_encode(struct pack_frame *f, const struct pack_coding *coding, struct pack_table_disk *ret);
void packs_frame_count(struct packs *p, struct pack_frame *f, const struct pack_coding *coding, uint32_t on_disk);
/* pack_write.c: log a failed write and wake the threads that wait for the frame. Returns r. */
int packs_frame_failed(struct packs *p, struct pack_frame *f, int r);
/* pack_write.c: make the place of a lost frame look as if it had never been written. */
int packs_frame_wipe(struct pack_file *file, uint32_t frame);
void packs_frame_free(struct pack_frame *f); /* neither listed nor in a table any more; NULL is fine */
/* pack_write.c: put a file on the list of the next sync; update the disk space that is counted for it. */
void packs_set_dirty(struct packs *p, struct pack_file *file) REQUIRES(p->lock);
void packs_count_disk(struct packs *p, struct pack_file *file, uint64_t now_bytes) REQUIRES(p->lock);

/* pack_rewrite.c: which blocks of an uncompressed frame hold bytes of a local chunk. */
void pack_blocks_here(const struct pack_cuts *cuts, const uint64_t remote[PACK_GONE_WORDS],
		      bool ret[PACK_FRAME_BLOCKS]);
/* pack_rewrite.c: write the blocks of a frame's data that are in `now` and not in `before`. *ret: how many. */
int pack_write_blocks(struct packs *p, struct pack_file *file, uint32_t frame, const uint8_t *data, const bool *now,
		      const bool *before, uint32_t *ret);

/* pack_scrub.c: read a frame, table and data, into `stored`, and verify all local chunks. The caller holds repair_lock.
 * 1: intact, and *ret is the table; 0: not intact; <0: it could not be read. */
int packs_read_intact(struct packs *p, struct pack_file *file, uint32_t frame, struct pack_buffer *stored,
		      struct pack_table *ret);

/* pack_rewrite.c: record something that the next sync makes durable. */
void packs_unsynced_add(struct packs *p, enum unsynced_kind kind, uint32_t pack, uint32_t frame, uint64_t number,
			uint64_t seal) REQUIRES(p->lock);
/* pack_rewrite.c: the running sync has succeeded. */
void packs_unsynced_done(struct packs *p) REQUIRES(p->lock);
/* pack_rewrite.c: rewrite everything that the running sync covers. Drops the lock meanwhile. */
int packs_rewrite_unsynced(struct packs *p) REQUIRES(p->lock);

/* pack_sync.c: release what is still waiting to be synced. */
void packs_forget_unsynced(struct packs *p);
