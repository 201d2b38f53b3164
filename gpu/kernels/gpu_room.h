/*
 * Device memory of a record: arrays that each take uses as far as it needs them. They grow with the content and stay.
 * Nothing here waits for kernels that use them: that is the caller's.
 */
#pragma once

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "gpu/kernels/kernels.h"

struct gpu_room {
	uint64_t nr_chunks; /* that there is room for */
	uint64_t nr_changed; /* at a time: a tenth of them, and a little more */
	uint64_t nr_shifted, log_room, staging_len;
	struct digest *digests, *signatures[2], *second, *log;
	struct digest *whole_log; /* if there is one: as many as digests */
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
	uint64_t now, peak; /* bytes of device memory, and the most there have been */
};

int gpu_room_alloc(struct gpu_room *m, void *ret, uint64_t len); /* `ret`: address of a pointer */
void gpu_room_free(struct gpu_room *m, void *p, uint64_t len); /* likewise; leaves NULL */

void gpu_room_release(struct gpu_room *m);
/*
 * For so many chunks. `slack`: entries of the log that may stay unused. Digests and signatures[0] of the first `keep`
 * chunks and the table stay, anything else does not. 1: there are new arrays; 0: there was room; -ENOMEM: all is as
 * before, but that nothing is there if there was nothing to keep.
 */
int gpu_room_ensure(struct gpu_room *m, uint64_t nr_chunks, uint32_t chunk_len, uint64_t slack, uint64_t keep);
/* For so many shifted duplicates. -ENOMEM: there is room for none. */
int gpu_room_set_shifted(struct gpu_room *m, uint64_t nr);
int gpu_room_add_whole_log(struct gpu_room *m);
void gpu_room_drop_whole_log(struct gpu_room *m);
/* A table of so many slots with what the one before has. Meanwhile there are both. */
int gpu_room_set_table(struct gpu_room *m, uint64_t nr_slots, cudaStream_t stream);
