/*
 * The record behind delta_gpu.h, and what its files have for each other: delta_gpu.c makes one and takes versions,
 * delta_gpu_segments.c runs the kernels of a take and copies payload, delta_gpu_object.c makes tables and the object,
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
 * What a version is like, seen from the one before: little is other; much, but known from elsewhere; so much is new
 * that copying it takes as long as hashing; or longer.
 */
enum likeness { LIKE_SAME, LIKE_MOVED, LIKE_NEW, LIKE_OTHER };

struct version {
	uint32_t number; /* 0: there is none */
	uint64_t len, nr_chunks, nr_whole;
};

struct delta_gpu {
	struct delta_record_params params; /* constant, as the next ones */
	struct gpu_keys keys;
	struct digest zero;
	struct crc_powers powers, *gpu_powers; /* the second: device */
	int device;
	struct gpu_shape shapes[GPU_NR_PACES]; /* of gpu_hash() */
	uint32_t blocks; /* of other kernels */
	cudaStream_t streams[NR_STREAMS];
	cudaEvent_t given, clean;
	cudaEvent_t hashed[GPU_SEGMENTS_MAX][2], gathered[GPU_SEGMENTS_MAX], copied[GPU_SEGMENTS_MAX];

	uint32_t last_number, attempt;
	struct version newest, pending;
	struct gpu_room room;
	uint64_t nr_entries, nr_dropped; /* in the table */
	bool is_clean; /* counts are zero, or will be */
	enum likeness likeness; /* of the version before to the one before that */
	bool guess; /* most segments of the version before were all new, and in no whole page */
	bool much_changed; /* in the version before: more than a half, so the next may begin as a whole one */
	struct delta_buffer *buffers;
	struct gpu_buffer *gpu_buffers; /* device */
	size_t nr_buffers, buffers_room;

	/* Of what is pending. */
	enum delta_method method;
	bool finished, whole, dedup;
	struct gpu_take take;
	struct gpu_segment segments[GPU_SEGMENTS_MAX];
	uint32_t nr_segments, nr_pieces, nr_copied; /* the second: that hashing is launched in */
	uint64_t guessed_len; /* of the segment behind those copied: what has been copied of it on a guess */
	struct gpu_counts *counts; /* device */
	struct gpu_report *report; /* host */
	struct pinned pages, rest;
	uint32_t *tables; /* host, page-locked */
	uint64_t tables_room, shifted_at; /* bytes; where the table of shifted duplicates begins */
	uint8_t head[DELTA_PAGE];
	struct iovec *parts;
};

#define SPIN_CHECK 4096 /* polls between two checks of the device for errors */

int delta_gpu_wait(struct delta_gpu *g, enum stream stream);
/* For a flag of the report, which something on that stream sets to the number of the attempt. */
int delta_gpu_wait_flag(struct delta_gpu *g, const uint32_t *flag, enum stream stream);
void delta_gpu_drain(struct delta_gpu *g); /* waits for all, whatever has failed */
/* Host memory for so many bytes of tables. */
int delta_gpu_ensure_tables(struct delta_gpu *g, uint64_t len);

/* Launches all of a take, with more room as long as there is not enough. */
int delta_gpu_run_segments(struct delta_gpu *g);
/* The same for method Full. */
int delta_gpu_run_full(struct delta_gpu *g);
/* entries of the log that may stay unused */
uint64_t delta_gpu_log_slack(const struct delta_gpu *g, uint64_t nr_chunks);

/* Behind the last segment. Of a whole version the sizes must be known. */
int delta_gpu_launch_tables(struct delta_gpu *g);

/* What is counted begins at zero. Done when a version is over, so that the next need not wait for it. */
int delta_gpu_clean(struct delta_gpu *g);
/* What the version being taken has entered goes. Nothing may be running. */
int delta_gpu_drop_entered(struct delta_gpu *g);
uint64_t delta_gpu_entries_max(const struct delta_gpu *g); /* in the table, by its limit */
/* Slots for all that the next version may enter, as far as the limit allows; then for twice as much. */
int delta_gpu_ensure_table(struct delta_gpu *g);
