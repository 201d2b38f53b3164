/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The record of delta_gpu.h, and the functions shared by its files: delta_gpu.c creates records and takes versions,
 * delta_gpu_segments.c runs the kernels of a take and copies payload, delta_gpu_object.c builds tables and the object,
 * and delta_gpu_upkeep.c commits, abandons and forgets.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/kernels/delta_gpu.h"
#include "gpu/kernels/gpu_room.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/pinned.h"

enum stream { HASH_0, HASH_1, TOP, REST, COPY, NR_STREAMS };

/*
 * How a version differs from the one before. SAME: little has changed. MOVED: much has changed, but few chunks are new.
 * NEW: copying the new chunks takes about as long as hashing. OTHER: it takes longer.
 */
enum likeness { LIKE_SAME, LIKE_MOVED, LIKE_NEW, LIKE_OTHER };

struct version {
	uint32_t number; /* 0: no version */
	uint64_t len, nr_chunks, nr_whole;
};

struct delta_gpu {
	struct delta_record_params params; /* constant, as are the members up to `copied` */
	struct gpu_keys keys;
	struct digest zero;
	struct crc_powers powers, *gpu_powers; /* gpu_powers: device */
	int device;
	struct gpu_shape shapes[GPU_NR_PACES]; /* of gpu_hash() */
	uint32_t blocks; /* for the other kernels */
	cudaStream_t streams[NR_STREAMS];
	cudaEvent_t given, clean;
	cudaEvent_t hashed[GPU_SEGMENTS_MAX][2], gathered[GPU_SEGMENTS_MAX], copied[GPU_SEGMENTS_MAX];

	uint32_t last_number, attempt;
	struct version newest, pending;
	struct gpu_room room;
	uint64_t nr_entries, nr_dropped; /* in the table */
	bool is_clean; /* counts are zero, or are being cleared */
	enum likeness likeness; /* of the previous version */
	bool guess; /* most changed segments of the previous version: all chunks new, none in a whole page */
	bool much_changed; /* more than half of the previous version; the next take may begin as a whole one */
	struct delta_buffer *buffers;
	struct gpu_buffer *gpu_buffers; /* device */
	size_t nr_buffers, buffers_room;

	/* The pending version. */
	enum delta_method method;
	bool finished, whole, dedup;
	struct gpu_take take;
	struct gpu_segment segments[GPU_SEGMENTS_MAX];
	uint32_t nr_segments, nr_pieces, nr_copied; /* nr_pieces: launches of the hashing */
	uint64_t guessed_len; /* bytes copied on a guess of the first segment that is not copied */
	struct gpu_counts *counts; /* device */
	struct gpu_report *report; /* host */
	struct pinned pages, rest;
	uint32_t *tables; /* host, page-locked */
	uint64_t tables_room, shifted_at; /* bytes; shifted_at: offset of the table of shifted duplicates */
	uint8_t head[DELTA_PAGE];
	struct iovec *parts;
};

#define SPIN_CHECK 4096 /* polls per check of the device for errors */

int delta_gpu_wait(struct delta_gpu *g, enum stream stream);
/* Waits until a kernel on that stream sets a flag of the report to the number of the attempt. */
int delta_gpu_wait_flag(struct delta_gpu *g, const uint32_t *flag, enum stream stream);
void delta_gpu_drain(struct delta_gpu *g); /* waits for all streams, also after errors */
/* Ensures host memory for `len` bytes of tables. */
int delta_gpu_ensure_tables(struct delta_gpu *g, uint64_t len);

/* Runs all segments of a take. Restarts as a whole version if there is not enough room. */
int delta_gpu_run_segments(struct delta_gpu *g);
/* The same for method Full: copies all bytes, and the kernels only compute digests. */
int delta_gpu_run_full(struct delta_gpu *g);
/* Entries of the log that may stay unused. */
uint64_t delta_gpu_log_slack(const struct delta_gpu *g, uint64_t nr_chunks);

/* Launches the tables after the last segment. For a whole version, all sizes must be known. */
int delta_gpu_launch_tables(struct delta_gpu *g);

/* Clears the counts. Called at the end of a version, so that the next one need not wait for it. */
int delta_gpu_clean(struct delta_gpu *g);
/* Drops the table entries of the version being taken. No kernel may be running. */
int delta_gpu_drop_entered(struct delta_gpu *g);
uint64_t delta_gpu_entries_max(const struct delta_gpu *g); /* limit of the table */
/* Ensures slots for all entries that the next version may add, within the limit. Grows to twice as many. */
int delta_gpu_ensure_table(struct delta_gpu *g);
