/*
 * The interface between the host side of deltas on a GPU (delta_gpu*.c) and the kernels (*.cu). It is C on one side and
 * CUDA C++ on the other, so it has plain types only.
 *
 * Content is a row of buffers in device memory, each from a multiple of GPU_TILE on, with zeros between them. It is
 * taken in segments of whole units: gpu_hash() computes digests and signatures, and finds the chunks that differ from
 * the parent; gpu_segment() looks those up in the table and gathers the bytes of first occurrences. Segments run in
 * order, so lower content is final before higher content refers to it: the result depends neither on the number of
 * segments nor on the order of threads. In the end the tables are built from the bitmap of first occurrences and the
 * list of shifted duplicates, and written directly to host memory.
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
 * Entries of the log that a warp takes at a time: as many as two groups have that are all new, with their signatures.
 * All but one may stay unused.
 */
#define GPU_LOG_GRAB 66u
#define GPU_BLOCKS_MAX 1024u /* for which there is room in arrays that have something for each block */
#define GPU_NAMES_BLOCK 128u /* names of shifted duplicates under one summary */

struct gpu_buffer {
	const uint8_t *p;
	uint64_t len, off;
};

/* Both in one place: an access that the cache does not have takes its time, and most look at both. */
struct gpu_slot {
	uint64_t value; /* version << 32 | chunk; 0: empty, 1: was dropped */
	struct digest key; /* if a committed version has entered it */
};

struct gpu_table {
	uint8_t *tags; /* a part of the digest, or what the value is if it is none */
	struct gpu_slot *slots;
	uint64_t nr_slots; /* a multiple of GPU_BUCKET, below 2^32 - 2 */
};
#define GPU_BUCKET 16u /* slots */
#define GPU_SLOT_EMPTY 0u
#define GPU_SLOT_DROPPED 1u

/* Names of a run of shifted duplicates, as in delta_record.c. */
enum gpu_names {
	GPU_OWN_ADVANCING = 1 << 0,
	GPU_NEWEST_ADVANCING = 1 << 1,
	GPU_OWN_REPEATED = 1 << 2,
	GPU_NEWEST_REPEATED = 1 << 3,
};
#define GPU_IN_NEWEST (UINT32_C(1) << 31) /* in `src` */
struct gpu_shift {
	uint32_t dst, version, src;
};

/* Chunks that are not the parent's, and where in the log their digests are; if `sparse` behind the group's
 * signature. */
struct gpu_group {
	uint32_t mask, log;
};

struct gpu_entry {
	uint32_t chunk, at; /* where in the log its digest is */
};

/* Of the version being taken, up to and with a segment. */
struct gpu_totals {
	uint64_t changed, pages, rest; /* chunks; pages: those of whole pages; the others are shifted */
};

/* In device memory, zeroed before each attempt. */
struct gpu_counts {
	uint32_t shift_starts; /* shifted duplicates where a run must begin */
	uint32_t overflow; /* of the log; then what kernels do from there on is for nothing */
	uint32_t log_used;
	uint32_t arrived[GPU_SEGMENTS_MAX], tables_arrived; /* blocks at where they wait for each other */
	uint32_t guessed[GPU_SEGMENTS_MAX]; /* blocks that have gathered before they know what is new */
	uint32_t tabled; /* blocks that have written their part of the tables */
	uint32_t unknown[GPU_SEGMENTS_MAX]; /* per segment */
	uint32_t flags[GPU_SEGMENTS_MAX]; /* set by a block of a segment for the others */
	uint64_t entered, reclaimed; /* slots; the second: of dropped ones */
	uint64_t kept; /* by a sweep */
	struct gpu_totals before[GPU_SEGMENTS_MAX + 1];
};

/*
 * In host memory that the device can write to. `done` is the attempt's number once the segment's figures are there, and
 * `guessed` before that, if its payload is in staging as it is if all that has changed is new and in no whole page.
 */
struct gpu_report {
	struct gpu_totals upto[GPU_SEGMENTS_MAX];
	uint32_t unknown[GPU_SEGMENTS_MAX]; /* of each */
	uint32_t placed[GPU_SEGMENTS_MAX]; /* not 0: its payload is in staging already, as guessed */
	uint32_t guessed[GPU_SEGMENTS_MAX], guessed_nr[GPU_SEGMENTS_MAX]; /* the second: chunks */
	uint64_t entered, reclaimed;
	uint32_t last_is_first; /* a first occurrence: the last chunk */
	uint32_t overflow, done[GPU_SEGMENTS_MAX];
	uint32_t tabled, topped; /* the attempt, too: the tables are there, and the top of the fingerprint is */
	struct digest top; /* of the fingerprint's tree */
	uint64_t first_len, shifted_len; /* of tables */
	uint32_t first_encoding, shifted_encoding;
	uint32_t first_crc[GPU_BLOCKS_MAX], shifted_crc[GPU_BLOCKS_MAX]; /* what each block has added */
};

struct gpu_keys {
	struct xxh3_key leaf, group;
};

/* Argument of most kernels. Pointers are to device memory where nothing else is said. */
struct gpu_take {
	const struct gpu_buffer *buffers; /* sorted by off */
	uint32_t nr_buffers, chunk_len;
	uint64_t len, nr_chunks, nr_whole, nr_groups, nr_units;
	uint32_t number, attempt;

	uint32_t newest; /* 0: none */
	uint64_t newest_chunks, newest_whole;
	const struct digest *digests, *newest_signatures; /* of the newest version */
	struct digest zero; /* digest of a chunk of zeros */

	struct digest *signatures; /* of this version, as all below; if `whole` or not `sparse` */
	uint32_t sparse; /* as many chunks as the newest version */
	struct digest *second; /* level of the fingerprint */
	struct gpu_group *groups; /* zeros before */
	uint32_t *first; /* per group: first occurrences; zeros before */
	struct digest *log;
	uint64_t log_room;
	uint32_t whole; /* the log has the digests of all chunks, each at its number */
	uint32_t all; /* every chunk counts as changed: method Full */
	uint32_t dedup, compare; /* use the table; compare bytes */
	uint64_t room; /* in the table */
	struct gpu_table table;

	uint32_t *unit_changed; /* per unit */
	uint32_t *block_unknown, *block_pages, *block_rest; /* per block of gpu_segment() */
	struct gpu_entry *entries; /* of a segment: changed chunks */
	uint64_t *results; /* of a segment: what became of each */
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
	uint64_t staging_off; /* where its payload goes, behind what `append` says */
	uint32_t append; /* behind the payload of the segments before */
	uint32_t last;
};

/*
 * How much the hashing has under way: as much as it can use, or somewhat less, so that what others ask the memory for
 * comes sooner.
 */
enum gpu_pace { GPU_FAST, GPU_GENTLE, GPU_NR_PACES };
#define GPU_HASH_WARPS 4u /* of a block */
struct gpu_shape {
	uint32_t blocks, shared; /* the second: bytes of memory for each */
};

/* Argument of the kernel that makes tables. */
struct gpu_tables {
	uint32_t method; /* enum delta_method */
	uint32_t height; /* delta_tree_height() */
	uint32_t nr_segments;
	uint32_t *run_starts, *run_ends; /* of first occurrences */
	uint64_t runs_room;
	uint32_t *run_sums, *chunk_sums, *node_sums, *shift_run_sums, *shift_node_sums; /* per block */
	uint8_t *names, *names_summary, *starts; /* per shifted duplicate; per GPU_NAMES_BLOCK of them */
	uint32_t *shift_runs; /* numbers of the shifted duplicates that begin one */
	const struct crc_powers *powers;
	uint32_t *first_out, *shifted_out; /* host memory */
};

#ifdef __cplusplus
extern "C" {
#endif

/* All only launch. */
/* Once per device: the shapes of gpu_hash(), and how many blocks gpu_segment() takes. */
cudaError_t gpu_prepare(uint32_t chunk_len, struct gpu_shape ret_shapes[GPU_NR_PACES], uint32_t *ret_blocks);
cudaError_t gpu_hash(const struct gpu_take *t, const struct gpu_keys *k, const struct gpu_segment *s,
		     struct gpu_shape shape, cudaStream_t stream);
/* As many blocks as multiprocessors, at most. */
cudaError_t gpu_segment(const struct gpu_take *t, const struct gpu_segment *s, uint32_t blocks, cudaStream_t stream);
/* The next level of the fingerprint for the signatures of some units, into t->second. */
cudaError_t gpu_second(const struct gpu_take *t, const struct gpu_keys *k, uint64_t unit, uint64_t end,
		       cudaStream_t stream);
/* From t->second, which it spoils, to report->top. */
cudaError_t gpu_fingerprint(const struct gpu_take *t, const struct gpu_keys *k, cudaStream_t stream);
/* Behind the last segment. At most four blocks for each multiprocessor. */
cudaError_t gpu_tables(const struct gpu_take *t, const struct gpu_tables *tables, uint32_t blocks, cudaStream_t stream);

/* What has changed becomes the newest version's: digests and the table's keys, unless t->whole, signatures, if
 * t->sparse. */
cudaError_t gpu_commit(const struct gpu_take *t, struct digest *digests, struct digest *signatures, cudaStream_t stream);
/* Entries of version `number`: drop them, or if the newest version has them, too, let them be its own. Counts
 * `kept`. */
cudaError_t gpu_forget(const struct gpu_take *t, uint32_t number, uint32_t newest, cudaStream_t stream);
/* Only what the newest version has at its place stays. `versions`: room for 4 bytes per chunk. Counts `kept`. */
cudaError_t gpu_sweep(const struct gpu_take *t, uint32_t *versions, cudaStream_t stream);
/* All entries of t->table into another one, empty. */
cudaError_t gpu_rehash(const struct gpu_take *t, const struct gpu_table *to, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
