/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the host side of deltas on a GPU (delta_gpu*.c) and the kernels (*.cu). It is C on one side and
 * CUDA C++ on the other, so it has plain types only.
 *
 * Content is a sequence of buffers in device memory at multiples of GPU_TILE, with zeros between them. It is processed
 * in segments of whole units. gpu_hash() computes digests and signatures, and finds the chunks that differ from the
 * parent. gpu_segment() looks them up in the table and gathers the bytes of first occurrences. Segments run in order,
 * so lower content is final before higher content refers to it: the result depends neither on the number of segments
 * nor on the order of threads. At the end gpu_tables() builds the tables from the bitmap of first occurrences and the
 * list of shifted duplicates, and writes them to host memory.
 */
#pragma once

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "gpu/format/crc_parts.h"
#include "gpu/format/xxh3.h"

#define GPU_TILE 4096u /* bytes that a warp loads at once */
#define GPU_GROUP 32u /* chunks: LEAF_GROUP */
#define GPU_UNIT 128u /* groups */
#define GPU_UNIT_CHUNKS (GPU_UNIT * GPU_GROUP)
#define GPU_SEGMENTS_MAX 64
#define GPU_PAGE 4096u /* DELTA_PAGE */
/*
 * Entries of the log that a warp reserves at a time: enough for two groups with all chunks changed, with their
 * signatures. All but one may stay unused.
 */
#define GPU_LOG_GRAB 66u
#define GPU_BLOCKS_MAX 1024u /* size of arrays with one element per block */
#define GPU_NAMES_BLOCK 128u /* shifted duplicates per summary of names */

struct gpu_buffer {
	const uint8_t *p;
	uint64_t len, off;
};

/* Adjacent, since most searches need both, and a cache miss is expensive. */
struct gpu_slot {
	uint64_t value; /* version << 32 | chunk; 0: empty, 1: dropped */
	struct digest key; /* valid if entered by a committed version */
};

struct gpu_table {
	uint8_t *tags; /* a byte of the digest, or the value of an unused slot */
	struct gpu_slot *slots;
	uint64_t nr_slots; /* a multiple of GPU_BUCKET, below 2^32 - 2 */
};
#define GPU_BUCKET 16u /* slots */
#define GPU_SLOT_EMPTY 0u
#define GPU_SLOT_DROPPED 1u

/* Ways to name a run of shifted duplicates, as in delta_record.c. */
enum gpu_names {
	GPU_OWN_ADVANCING = 1 << 0,
	GPU_NEWEST_ADVANCING = 1 << 1,
	GPU_OWN_REPEATED = 1 << 2,
	GPU_NEWEST_REPEATED = 1 << 3,
};
#define GPU_IN_NEWEST (UINT32_C(1) << 31) /* flag in `src` */
struct gpu_shift {
	uint32_t dst, version, src;
};

/* Changed chunks, and the position of their digests in the log; with `sparse`, after the group's signature. */
struct gpu_group {
	uint32_t mask, log;
};

struct gpu_entry {
	uint32_t chunk, at; /* at: position of its digest in the log */
};

/* Totals of the version being taken, up to and including a segment. */
struct gpu_totals {
	uint64_t changed, pages, rest; /* chunks; pages, rest: new, in whole pages or not */
};

/* In device memory, zeroed before each attempt. */
struct gpu_counts {
	uint32_t shift_starts; /* shifted duplicates where a run must begin */
	uint32_t overflow; /* the log is full; the take restarts */
	uint32_t log_used;
	uint32_t arrived[GPU_SEGMENTS_MAX], tables_arrived; /* blocks at barriers */
	uint32_t guessed[GPU_SEGMENTS_MAX]; /* blocks that have gathered on a guess */
	uint32_t tabled; /* blocks that have written their parts of the tables */
	uint32_t unknown[GPU_SEGMENTS_MAX]; /* unknown chunks per segment */
	uint32_t flags[GPU_SEGMENTS_MAX]; /* shared by the blocks of a segment */
	uint64_t entered, reclaimed; /* slots; reclaimed: those that were dropped before */
	uint64_t kept; /* entries kept by gpu_forget() or gpu_sweep() */
	struct gpu_totals before[GPU_SEGMENTS_MAX + 1];
};

/*
 * In host memory that the device can write to. `done` becomes the number of the attempt once the figures of the
 * segment are valid. `guessed` does so earlier, once staging has the payload for the case that all changed chunks are
 * new and none is in a whole page.
 */
struct gpu_report {
	struct gpu_totals upto[GPU_SEGMENTS_MAX];
	uint32_t unknown[GPU_SEGMENTS_MAX]; /* per segment */
	uint32_t placed[GPU_SEGMENTS_MAX]; /* not 0: the guess was right, and the payload is in staging */
	uint32_t guessed[GPU_SEGMENTS_MAX], guessed_nr[GPU_SEGMENTS_MAX]; /* guessed_nr: chunks */
	uint64_t entered, reclaimed;
	uint32_t last_is_first; /* the last chunk is a first occurrence */
	uint32_t overflow, done[GPU_SEGMENTS_MAX];
	uint32_t tabled, topped; /* set to the attempt once the tables and `top` are valid */
	struct digest top; /* of the tree of the fingerprint */
	uint64_t first_len, shifted_len; /* of tables */
	uint32_t first_encoding, shifted_encoding;
	uint32_t first_crc[GPU_BLOCKS_MAX], shifted_crc[GPU_BLOCKS_MAX]; /* contributions of the blocks */
};

struct gpu_keys {
	struct xxh3_key leaf, group;
};

/* Argument of most kernels. Pointers are to device memory unless noted. */
struct gpu_take {
	const struct gpu_buffer *buffers; /* sorted by off */
	uint32_t nr_buffers, chunk_len;
	uint64_t len, nr_chunks, nr_whole, nr_groups, nr_units;
	uint32_t number, attempt;

	uint32_t newest; /* 0: none */
	uint64_t newest_chunks, newest_whole;
	const struct digest *digests, *newest_signatures; /* of the newest version */
	struct digest zero; /* digest of a chunk of zeros */

	struct digest *signatures; /* of this version, as all below; written if `whole` or not `sparse` */
	uint32_t sparse; /* the newest version has as many chunks, so only changes are written */
	struct digest *second; /* second level of the fingerprint */
	struct gpu_group *groups; /* zeroed before the take */
	uint32_t *first; /* first occurrences per group; zeroed before the take */
	struct digest *log;
	uint64_t log_room;
	uint32_t whole; /* the log has the digests of all chunks, indexed by chunk */
	uint32_t all; /* treat every chunk as changed: method Full */
	uint32_t dedup, compare; /* use the table; compare bytes */
	uint64_t room; /* entries left in the table */
	struct gpu_table table;

	uint32_t *unit_changed; /* changed chunks per unit */
	uint32_t *block_unknown, *block_pages, *block_rest; /* per block of gpu_segment() */
	struct gpu_entry *entries; /* of a segment: changed chunks */
	uint64_t *results; /* of a segment: the result for each entry */
	uint64_t entries_room, changed_room; /* of a segment; of all */
	struct gpu_shift *shifts;
	uint64_t shifts_room;
	uint8_t *staging;

	struct gpu_counts *counts;
	struct gpu_report *report; /* host memory */
};

struct gpu_segment {
	uint32_t nr;
	uint64_t unit, end; /* units */
	uint64_t staging_off; /* position of its payload, relative to `append` */
	uint32_t append; /* after the payload of the previous segments, not from 0 */
	uint32_t last;
};

/*
 * How much memory traffic the hashing has in flight: as much as it can use, or somewhat less, to reduce the latency for
 * other kernels.
 */
enum gpu_pace { GPU_FAST, GPU_GENTLE, GPU_NR_PACES };
#define GPU_HASH_WARPS 4u /* per block */
struct gpu_shape {
	uint32_t blocks, shared; /* shared: bytes of shared memory per block */
};

/* Argument of the kernel that builds tables. */
struct gpu_tables {
	uint32_t method; /* enum delta_method */
	uint32_t height; /* delta_tree_height() */
	uint32_t nr_segments;
	uint32_t *run_starts, *run_ends; /* of first occurrences */
	uint64_t runs_room;
	uint32_t *run_sums, *chunk_sums, *node_sums, *shift_run_sums, *shift_node_sums; /* per block */
	uint8_t *names, *names_summary, *starts; /* per shifted duplicate; per GPU_NAMES_BLOCK of them */
	uint32_t *shift_runs; /* indexes of the shifted duplicates that begin a run */
	const struct crc_powers *powers;
	uint32_t *first_out, *shifted_out; /* host memory */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Except gpu_prepare(), all of these only launch kernels. */
/* Gets the shapes of gpu_hash() and the number of blocks of gpu_segment(), once per device. */
cudaError_t gpu_prepare(uint32_t chunk_len, struct gpu_shape ret_shapes[GPU_NR_PACES], uint32_t *ret_blocks);
cudaError_t gpu_hash(const struct gpu_take *t, const struct gpu_keys *k, const struct gpu_segment *s,
		     struct gpu_shape shape, cudaStream_t stream);
/* At most as many blocks as multiprocessors. */
cudaError_t gpu_segment(const struct gpu_take *t, const struct gpu_segment *s, uint32_t blocks, cudaStream_t stream);
/* Computes t->second from the signatures of some units. */
cudaError_t gpu_second(const struct gpu_take *t, const struct gpu_keys *k, uint64_t unit, uint64_t end,
		       cudaStream_t stream);
/* Computes report->top from t->second, and overwrites that. */
cudaError_t gpu_fingerprint(const struct gpu_take *t, const struct gpu_keys *k, cudaStream_t stream);
/* Call after the last segment. At most four blocks per multiprocessor. */
cudaError_t gpu_tables(const struct gpu_take *t, const struct gpu_tables *tables, uint32_t blocks, cudaStream_t stream);

/* Applies the changes to the newest version: digests and keys of the table unless t->whole, and signatures if
 * t->sparse. */
cudaError_t gpu_commit(const struct gpu_take *t, struct digest *digests, struct digest *signatures, cudaStream_t stream);
/* Drops the entries of version `number`, or transfers them to version `newest` if it has the same chunk at the same
 * place. Counts `kept`. */
cudaError_t gpu_forget(const struct gpu_take *t, uint32_t number, uint32_t newest, cudaStream_t stream);
/* Drops all entries whose chunk the newest version does not have at the same place. `versions`: 4 bytes per chunk.
 * Counts `kept`. */
cudaError_t gpu_sweep(const struct gpu_take *t, uint32_t *versions, cudaStream_t stream);
/* Copies all entries of t->table into an empty table. */
cudaError_t gpu_rehash(const struct gpu_take *t, const struct gpu_table *to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
