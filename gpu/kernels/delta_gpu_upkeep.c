/* SPDX-License-Identifier: BSD-3-Clause */
/* State kept between versions: digests and the table, on commit, abandon and forget. */
#include "gpu/kernels/delta_gpu_record.h"

#include <assert.h>

#include "base/util.h"

#define TABLE_BYTES 32u /* per entry: a slot has 25, and a fifth of the slots stays empty */

int delta_gpu_clean(struct delta_gpu *g)
{
	uint64_t groups = g->room.nr_chunks / GPU_GROUP;
	cudaStream_t stream = g->streams[REST];
	cudaError_t e;

	e = cudaMemsetAsync(g->counts, 0, sizeof(*g->counts), stream);
	if (e == cudaSuccess)
		e = cudaMemsetAsync(g->room.unit_changed, 0, groups / GPU_UNIT * sizeof(*g->room.unit_changed), stream);
	if (e == cudaSuccess)
		e = cudaMemsetAsync(g->room.groups, 0, groups * sizeof(*g->room.groups), stream);
	if (e == cudaSuccess)
		e = cudaMemsetAsync(g->room.first, 0, groups * sizeof(*g->room.first), stream);
	if (e == cudaSuccess)
		e = cudaEventRecord(g->clean, stream);
	g->is_clean = e == cudaSuccess;
	return cuda_errno(e, "counts");
}

uint64_t delta_gpu_entries_max(const struct delta_gpu *g)
{
	return MIN(g->params.table_limit / TABLE_BYTES, DELTA_CHUNKS_MAX);
}

static uint64_t slots_for(uint64_t nr_entries)
{
	return nr_entries > 0 ? round_up(nr_entries + nr_entries / 4 + 1, GPU_BUCKET) : 0;
}

int delta_gpu_ensure_table(struct delta_gpu *g)
{
	uint64_t needed = g->nr_entries + g->pending.nr_chunks;
	int r;

	if (slots_for(MIN(needed, delta_gpu_entries_max(g))) <= g->room.table.nr_slots)
		return 0;
	r = gpu_room_set_table(&g->room, slots_for(MIN(2 * needed, delta_gpu_entries_max(g))), g->streams[REST]);
	if (r == 0)
		g->nr_dropped = 0;
	return r;
}

int delta_gpu_drop_entered(struct delta_gpu *g)
{
	struct gpu_counts counts;
	int r;

	if (!g->dedup)
		return 0;
	r = cuda_errno(cudaMemcpy(&counts, g->counts, sizeof(counts), cudaMemcpyDeviceToHost), "table");
	if (r == 0 && counts.entered > 0)
		r = cuda_errno(gpu_forget(&g->take, g->take.number, 0, g->streams[REST]), "table");
	if (r == 0) /* so that a later failure does not count these entries again */
		r = cuda_errno(cudaMemsetAsync(g->counts, 0, sizeof(*g->counts), g->streams[REST]), "table");
	if (r == 0)
		r = delta_gpu_wait(g, REST);
	if (r == 0)
		g->nr_dropped += counts.entered - counts.reclaimed;
	return r;
}

/* Clears the record after a failure. */
static void record_clear(struct delta_gpu *g)
{
	delta_gpu_drain(g);
	gpu_room_release(&g->room);
	g->newest = g->pending = (struct version){ 0 };
	g->nr_entries = g->nr_dropped = 0;
	g->is_clean = false;
}

/* The number of entries that gpu_forget() or gpu_sweep() kept. */
static int read_kept(struct delta_gpu *g, uint64_t *ret)
{
	int r = delta_gpu_wait(g, REST);

	return r < 0 ? r : cuda_errno(cudaMemcpy(ret, &g->counts->kept, sizeof(*ret), cudaMemcpyDeviceToHost), "table");
}

static int sweep(struct delta_gpu *g)
{
	struct gpu_take t = {
		.digests = g->room.digests,
		.newest_whole = g->newest.nr_whole,
		.table = g->room.table,
		.counts = g->counts,
	};
	int r;

	r = cuda_errno(gpu_sweep(&t, (uint32_t *)g->room.staging, g->streams[REST]), "table");
	if (r == 0)
		r = read_kept(g, &g->nr_entries);
	if (r == 0)
		g->nr_dropped = 0;
	return r;
}

static int commit_table(struct delta_gpu *g)
{
	uint64_t nr_unknown = 0;

	for (uint32_t i = 0; i < g->nr_segments; i++)
		nr_unknown += g->report->unknown[i];
	g->nr_entries += g->report->entered;
	g->nr_dropped -= g->report->reclaimed;
	return delta_gpu_entries_max(g) - g->nr_entries < nr_unknown ? sweep(g) : 0;
}

static int commit_digests(struct delta_gpu *g)
{
	struct digest *digests = g->room.digests, *signatures = g->room.signatures[0];
	int r = 0;

	if (!g->whole || g->take.sparse)
		r = cuda_errno(gpu_commit(&g->take, digests, signatures, g->streams[REST]), "commit");
	if (!g->take.sparse) {
		g->room.signatures[0] = g->room.signatures[1];
		g->room.signatures[1] = signatures;
	}
	if (g->whole && g->newest.number != 0) {
		g->room.digests = g->room.whole_log;
		g->room.whole_log = digests;
		if (!g->much_changed)
			gpu_room_drop_whole_log(&g->room);
	}
	return r;
}

int delta_gpu_commit(struct delta_gpu *g)
{
	int r;

	assert(g->pending.number != 0 && g->finished);
	r = cuda_errno(cudaSetDevice(g->device), "device");
	if (r == 0 && g->pending.nr_chunks > 0)
		r = commit_digests(g);
	g->newest = g->pending;
	g->last_number = g->newest.number;
	g->pending = (struct version){ 0 };
	if (r == 0 && g->newest.nr_chunks > 0 && g->dedup)
		r = commit_table(g);
	if (r == 0)
		r = delta_gpu_clean(g);
	if (r < 0)
		record_clear(g);
	return r;
}

/* Rebuilds a table with many dropped slots, which slow down every search. */
static void clean_table(struct delta_gpu *g)
{
	if (g->nr_dropped > g->room.table.nr_slots / 8 &&
	    gpu_room_set_table(&g->room, g->room.table.nr_slots, g->streams[REST]) == 0)
		g->nr_dropped = 0;
}

void delta_gpu_abandon(struct delta_gpu *g)
{
	if (g->pending.number == 0)
		return;
	cudaSetDevice(g->device);
	delta_gpu_drain(g);
	if (g->pending.nr_chunks > 0 && delta_gpu_drop_entered(g) < 0) {
		record_clear(g);
		return;
	}
	gpu_room_drop_whole_log(&g->room);
	g->pending = (struct version){ 0 };
	g->is_clean = false;
	clean_table(g);
}

int delta_gpu_forget(struct delta_gpu *g, uint32_t number)
{
	struct gpu_take t = {
		.digests = g->room.digests,
		.newest_whole = g->newest.nr_whole,
		.table = g->room.table,
		.counts = g->counts,
	};
	uint64_t kept = 0;
	int r;

	assert(g->pending.number == 0);
	r = cuda_errno(cudaSetDevice(g->device), "device");
	if (r == 0)
		r = delta_gpu_clean(g);
	if (r == 0)
		r = cuda_errno(gpu_forget(&t, number, g->newest.number != number ? g->newest.number : 0, g->streams[REST]),
			       "table");
	if (r == 0)
		r = read_kept(g, &kept);
	g->is_clean = false;
	if (r < 0) {
		record_clear(g);
		return r;
	}
	g->nr_dropped += g->nr_entries - kept;
	g->nr_entries = kept;
	if (g->newest.number == number)
		g->newest = (struct version){ 0 };
	clean_table(g);
	return 0;
}
