/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory of a record: arrays that grow with the content and are reused by each take. The caller must wait for
 * kernels that use them.
 */
#pragma once

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "gpu/kernels/kernels.h"

struct gpu_room {
	uint64_t nr_chunks; /* capacity */
	uint64_t nr_changed; /* changed chunks per take: a little more than a tenth of nr_chunks */
	uint64_t nr_shifted, log_room, staging_len;
	struct digest *digests, *signatures[2], *second, *log;
	struct digest *whole_log; /* NULL, or as many as `digests` */
	struct gpu_group *groups;
	uint32_t *first, *unit_changed, *run_starts, *run_ends;
	struct gpu_entry *entries;
	uint64_t *results;
	uint32_t *block_unknown, *block_pages, *block_rest;
	uint32_t *run_sums, *chunk_sums, *node_sums, *shift_run_sums, *shift_node_sums;
	uint8_t *staging;
	struct gpu_shift *shifts;
	uint8_t *names, *names_summary, *starts;
	uint32_t *shift_runs;
	struct gpu_table table;
	uint64_t now, peak; /* bytes of device memory, current and peak */
};

int gpu_room_alloc(struct gpu_room *m, void *ret, uint64_t len); /* `ret`: address of a pointer */
void gpu_room_free(struct gpu_room *m, void *p, uint64_t len); /* likewise; sets NULL */

void gpu_room_release(struct gpu_room *m);
/*
 * Ensures room for `nr_chunks`. `slack`: entries of the log that may stay unused. Keeps the table, and digests and
 * signatures[0] of the first `keep` chunks, but no other contents. 1: new arrays; 0: unchanged; -ENOMEM: unchanged, or
 * all arrays are freed if `keep` is 0.
 */
int gpu_room_ensure(struct gpu_room *m, uint64_t nr_chunks, uint32_t chunk_len, uint64_t slack, uint64_t keep);
/* Sets the room for shifted duplicates. After -ENOMEM there is none. */
int gpu_room_set_shifted(struct gpu_room *m, uint64_t nr);
int gpu_room_add_whole_log(struct gpu_room *m);
void gpu_room_drop_whole_log(struct gpu_room *m);
/* Rebuilds the table with `nr_slots` slots. Needs memory for both meanwhile. */
int gpu_room_set_table(struct gpu_room *m, uint64_t nr_slots, cudaStream_t stream);
