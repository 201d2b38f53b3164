/* SPDX-License-Identifier: BSD-3-Clause */
/* Updates the digests of the newest version and the table between versions. */
#include <cuda_runtime_api.h>

#include "gpu/kernels/kernels.h"
#include "gpu/kernels/table.cuh"

/* Sets the key of the entry, if it is of this chunk. */
static __device__ void put_key(const struct gpu_take &t, struct digest d, uint32_t chunk)
{
	uint64_t slot = find_own(t, d);

	if (slot != 0 && chunk_of(value_at(t.table, slot - 1)) == chunk)
		t.table.slots[slot - 1].key = d;
}

/* One thread per chunk. Unchanged chunks beyond the end of the previous version are zeros. */
static __global__ void __launch_bounds__(BLOCK)
	commit_kernel(const __grid_constant__ struct gpu_take t, struct digest *digests, struct digest *signatures)
{
	uint64_t chunk = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
	uint32_t mask = chunk < t.nr_chunks ? t.groups[chunk / GPU_GROUP].mask : 0;

	if (chunk >= t.nr_chunks)
		return;
	if (t.sparse && mask && lane_id() == 0)
		store_digest(signatures + chunk / GPU_GROUP, changed_signature(t, chunk / GPU_GROUP));
	if (t.whole)
		return;
	if (mask >> chunk % GPU_GROUP & 1) {
		struct digest d = changed_digest(t, (uint32_t)chunk);

		store_digest(digests + chunk, d);
		if (t.dedup && chunk < t.nr_whole)
			put_key(t, d, (uint32_t)chunk);
	} else if (chunk >= t.newest_chunks)
		store_digest(digests + chunk, t.zero);
}

static uint32_t blocks_for(uint64_t nr)
{
	return (uint32_t)((nr + BLOCK - 1) / BLOCK);
}

cudaError_t gpu_commit(const struct gpu_take *t, struct digest *digests, struct digest *signatures, cudaStream_t stream)
{
	commit_kernel<<<blocks_for(t->nr_chunks), BLOCK, 0, stream>>>(*t, digests, signatures);
	return cudaGetLastError();
}

/* Whether the newest version has the digest of this slot at the same place. */
static __device__ bool in_newest(const struct gpu_take &t, uint64_t slot)
{
	uint32_t chunk = chunk_of(t.table.slots[slot].value);

	return chunk < t.newest_whole && same_digest(load_digest(t.digests + chunk), t.table.slots[slot].key);
}

static __global__ void __launch_bounds__(BLOCK)
	forget_kernel(const __grid_constant__ struct gpu_take t, uint32_t number, uint32_t newest)
{
	uint64_t slot = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
	uint32_t kept = 0;

	if (slot < t.table.nr_slots && version_of(t.table.slots[slot].value) != 0) {
		kept = 1;
		if (version_of(t.table.slots[slot].value) == number) {
			kept = newest != 0 && in_newest(t, slot);
			t.table.slots[slot].value =
				kept ? value_of(newest, chunk_of(t.table.slots[slot].value)) : GPU_SLOT_DROPPED;
			if (!kept)
				t.table.tags[slot] = GPU_SLOT_DROPPED;
		}
	}
	kept = block_sum(kept);
	if (threadIdx.x == 0 && kept > 0)
		atomicAdd((unsigned long long *)&t.counts->kept, kept);
}

cudaError_t gpu_forget(const struct gpu_take *t, uint32_t number, uint32_t newest, cudaStream_t stream)
{
	if (t->table.nr_slots > 0)
		forget_kernel<<<blocks_for(t->table.nr_slots), BLOCK, 0, stream>>>(*t, number, newest);
	return cudaGetLastError();
}

/* Digests are unique in the table, so at most one entry per chunk of the newest version stays: 4 bytes suffice. */
static __global__ void __launch_bounds__(BLOCK)
	sweep_kernel(const __grid_constant__ struct gpu_take t, uint32_t *versions)
{
	uint64_t slot = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (slot < t.table.nr_slots && version_of(t.table.slots[slot].value) != 0 && in_newest(t, slot))
		versions[chunk_of(t.table.slots[slot].value)] = version_of(t.table.slots[slot].value);
}

static __global__ void __launch_bounds__(BLOCK)
	refill_kernel(const __grid_constant__ struct gpu_take t, const uint32_t *versions)
{
	uint64_t chunk = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
	uint32_t kept = chunk < t.newest_whole && versions[chunk] != 0;

	if (kept)
		put_back(t.table, load_digest(t.digests + chunk), value_of(versions[chunk], (uint32_t)chunk));
	kept = block_sum(kept);
	if (threadIdx.x == 0 && kept > 0)
		atomicAdd((unsigned long long *)&t.counts->kept, kept);
}

cudaError_t gpu_sweep(const struct gpu_take *t, uint32_t *versions, cudaStream_t stream)
{
	cudaError_t e;

	if (t->table.nr_slots == 0)
		return cudaSuccess;
	e = cudaMemsetAsync(versions, 0, t->newest_whole * sizeof(*versions), stream);
	if (e != cudaSuccess)
		return e;
	sweep_kernel<<<blocks_for(t->table.nr_slots), BLOCK, 0, stream>>>(*t, versions);
	e = cudaMemsetAsync(t->table.slots, 0, t->table.nr_slots * sizeof(*t->table.slots), stream);
	if (e == cudaSuccess)
		e = cudaMemsetAsync(t->table.tags, 0, t->table.nr_slots, stream);
	if (e != cudaSuccess)
		return e;
	if (t->newest_whole > 0)
		refill_kernel<<<blocks_for(t->newest_whole), BLOCK, 0, stream>>>(*t, versions);
	return cudaGetLastError();
}

static __global__ void __launch_bounds__(BLOCK)
	rehash_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_table to)
{
	uint64_t slot = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	if (slot < t.table.nr_slots && version_of(t.table.slots[slot].value) != 0)
		put_back(to, t.table.slots[slot].key, t.table.slots[slot].value);
}

cudaError_t gpu_rehash(const struct gpu_take *t, const struct gpu_table *to, cudaStream_t stream)
{
	if (t->table.nr_slots > 0)
		rehash_kernel<<<blocks_for(t->table.nr_slots), BLOCK, 0, stream>>>(*t, *to);
	return cudaGetLastError();
}
