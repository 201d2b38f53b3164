/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A writer, and a flush that it runs. For the files of store/tier/flush alone:
 *   tier_flush.c      opening a writer, and the order of the steps of a flush
 *   flush_load.c      what the tier has: manifests, and the tables of packs that they name
 *   flush_known.c     the chunks that are in the tier: in memory, and in the index
 *   flush_packs.c     chunks to packs, several of which are being put
 *   flush_convert.c   the catalog of a checkpoint to the catalog of its manifest
 *   flush_commit.c    putting the manifest
 *   flush_log.c       the log of the tier: generations of collections, other machines
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fp.h"
#include "store/catalog/catalog_format.h"
#include "store/pack/pack_format.h"
#include "store/tier/collect/tier_log.h"
#include "store/tier/flush/tier_flush.h"
#include "store/tier/index/tier_index.h"
#include "store/tier/tier.h"
#include "store/tier/tier_ids.h"
#include "store/tier/tier_known.h"
#include "store/tier/tier_open.h"

#define PACKS_IN_FLIGHT_MAX TIER_PARALLEL_MAX
#define CHECKED_BYTES 64u /* of an object, to verify that it exists */
#define READ_BYTES ((size_t)MiB(4)) /* read from the source at once */

/* A pack that is being put. */
struct sending {
	struct tier_request q;
	struct tier_object_name name;
	struct buf bytes;
};

/* A manifest in a list of the tier. */
struct listed {
	uint8_t store[TIER_ID_LEN];
	uint64_t number;
	uint64_t rank; /* 0: the last one of its store */
	bool is_own;
};

struct other_key {
	uint8_t id[TIER_ID_LEN];
	bool is_there;
};

struct tier_writer {
	struct tier *tier;
	struct tier_writer_conf conf;
	struct fp_key key;
	struct tier_queue *queue;
	struct tier_log log;
	uint64_t number; /* of the next manifest */
	struct tier_written last; /* manifest of this store */
	bool is_overtaken; /* a collection has found a later one */
	bool has_failed; /* in the tier: known chunks may be in packs that were not put; or the index is gone */

	struct tier_known known; /* places in `packs` */
	struct tier_footer *packs; /* in the tier, or about to be; the last one may be open */
	bool *is_dropped; /* each of them: by a collection, or unproven */
	bool *is_unproven; /* each of them: of the index, and no valid manifest that names it has been read yet */
	uint32_t nr_packs, nr_discarded; /* nr_discarded: of flushes that were abandoned */
	size_t packs_room, dropped_room, unproven_room;
	struct tier_index *index; /* places in `packs`; NULL: none */
	bool is_save_due; /* the index lacks chunks of the last flush, of a checkpoint of this many bytes: */
	uint64_t flushed_bytes;
	struct tier_ids numbers; /* of packs that are closed */
	struct tier_written *seals; /* of this store, in the tier */
	size_t nr_seals, seals_room;
	struct listed *seen; /* manifests of other stores that have been loaded, ascending */
	size_t nr_seen, seen_room;
	struct other_key *keys; /* of own manifests with another key than the writer's */
	size_t nr_keys, keys_room;

	/* The open pack, the last of `packs`; without frames and chunks: there is none. */
	bool is_open;
	struct buf data, tables;
	uint32_t nr_chunks;
	struct pack_table frame; /* the open frame of it, if it has chunks */
	uint32_t frame_len;

	struct sending sending[PACKS_IN_FLIGHT_MAX];
	bool is_sending[PACKS_IN_FLIGHT_MAX];
};

struct flush {
	struct tier_writer *w;
	const struct tier_checkpoint *c;
	struct tier_flushed *sums;
	struct catalog_reader reader;
	struct buf unread; /* less than a record */
	struct buf catalog; /* with runs; in the end the whole manifest */
	struct buf runs, refs;
	uint32_t *index; /* of each of the writer's packs: number in the manifest, plus 1; 0: none */
	size_t index_room;
	uint32_t nr_refs;
	uint32_t *order; /* packs of the manifest */
	uint32_t first_own; /* of the writer's packs: this flush puts these itself */
	uint32_t uid; /* of the directory */
	struct record {
		struct content_piece pieces[CATALOG_PIECES_MAX];
		unsigned nr_pieces;
		struct tier_want wants[CATALOG_PIECES_MAX]; /* chunks unknown before it */
		size_t nr_wants, nr_read, nr_appended; /* nr_read: or being read */
		uint8_t *bytes; /* READ_BYTES, aligned as direct I/O requires */
	} records[2];
	struct record *last; /* its last chunks are read, or being read; NULL: all records are converted */
	bool is_reading; /* await() has to be called */
};

/* flush_load.c: reads the log and all manifests, first own ones. */
int writer_load_all(struct tier_writer *w);
/*
 * What other stores have flushed since. The log has been read before: a manifest that a later generation removes names
 * no pack that this generation drops.
 */
int writer_load_new(struct tier_writer *w, uint64_t checkpoint_bytes);
int writer_add_seal(struct tier_writer *w, const struct tier_manifest *m);

/* flush_known.c. writer_save_known() and writer_commit_index() need an index. */
int writer_open_index(struct tier_writer *w);
void writer_drop_index(struct tier_writer *w);
void writer_save_known(struct tier_writer *w, bool older_only);
void writer_trim_known(struct tier_writer *w);
uint64_t writer_others_max(const struct tier_writer *w, uint64_t checkpoint_bytes);
void writer_commit_index(struct tier_writer *w, uint64_t checkpoint_bytes);
/* 1: the chunk is in the tier, and its place is in memory until the next but one writer_trim_known(). 0: not known */
int writer_use_chunk(struct tier_writer *w, struct fp fp, uint32_t len);

/* flush_packs.c */
int writer_add_pack(struct tier_writer *w, const struct tier_footer *f);
int writer_append_chunk(struct tier_writer *w, const struct tier_want *c, struct tier_flushed *sums);
int writer_close_pack(struct tier_writer *w, struct tier_flushed *sums);
int writer_await_packs(struct tier_writer *w);
void writer_free_buffers(struct tier_writer *w);
int writer_replace_object(struct tier_writer *w, const char *name, const void *data, size_t len);
uint32_t chunk_kind(uint32_t len);

/* flush_log.c: adopt the marks of the log's generation; read what was appended to the log. */
void writer_apply_generation(void *writer);
int writer_read_generations(struct tier_writer *w);
int writer_another_machine(const struct tier_writer *w, const char *name);

/* flush_convert.c: the packs are in the tier afterwards, or none is being put. */
int flush_write_packs(struct flush *f);

/* flush_commit.c: checks that what the manifest relies on is in the tier, and puts it. */
int flush_commit(struct flush *f);
