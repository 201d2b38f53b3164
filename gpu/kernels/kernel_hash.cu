/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Digests. This is the only kernel that reads all of the data, so it must be bound by memory bandwidth only:
 *
 *   - each warp has its own pipeline, HASH_STAGES tiles deep, filled by asynchronous copies of 16 bytes per lane;
 *   - a tile is swizzled in shared memory, so that lanes reading rows have no bank conflicts. Then each lane has its
 *     128 bytes in registers. A stage is refilled after the tile is finished: earlier would be no faster, and would
 *     delay the memory accesses of other kernels;
 *   - tiles are assigned in ascending order over the whole grid, without atomics;
 *   - of the previous version, only one signature per group is loaded, with the tile. Its digests are read only if the
 *     signature differs, and new ones are written only if they differ. These reads cause no wait: they are loaded
 *     together with the next tile of the stage, and compared when it has arrived.
 */
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime_api.h>

#include "gpu/kernels/device.cuh"
#include "gpu/kernels/kernels.h"

#define HASH_STAGES 2
#define HASH_BLOCK (GPU_HASH_WARPS * WARP) /* threads */
/* Four blocks on a multiprocessor leave registers for the other kernels. */
#if CUDART_VERSION >= 12040
#define HASH_BOUNDS __maxnreg__(80)
#else
#define HASH_BOUNDS __launch_bounds__(HASH_BLOCK, 6)
#endif
#define SLICE 128u /* LEAF_SLICE */

struct stage {
	uint4 data[GPU_TILE / 16];
	struct digest signatures[4]; /* of the previous version, one for each group of the tile */
};

/* Position of vector `i` of the tile in shared memory. */
static __device__ __forceinline__ uint32_t swizzle(uint32_t i)
{
	return i ^ (i / 8 % 8);
}

/* The data is read once, and must not evict the data of other kernels from the L2 cache. */
static __device__ __forceinline__ uint64_t once_policy()
{
	uint64_t policy;

	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ void copy_async(void *to, const void *from, uint64_t policy)
{
	uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);

	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "l"(policy)
		     : "memory");
}

/* Loads a tile that is not completely in one buffer, or not aligned to 16 bytes. */
static __device__ __noinline__ void load_odd_tile(struct source s, uint64_t off, uint4 *to)
{
	for (uint32_t i = lane_id(); i < GPU_TILE / 16; i += WARP)
		to[swizzle(i)] = source_load(s, off + 16 * i);
}

/* Loads a tile; called by all lanes of a warp. */
static __device__ __forceinline__ void load_tile(const struct gpu_take &t, struct source *s, uint64_t tile,
						 uint64_t policy, uint4 *to)
{
	uint64_t off;

	if (tile - s->tile >= s->nr)
		*s = source_find(t, tile);
	off = (tile - s->tile) * GPU_TILE;
	if (s->p && off + GPU_TILE <= s->len && (uintptr_t)s->p % 16 == 0) {
#pragma unroll
		for (uint32_t i = lane_id(); i < GPU_TILE / 16; i += WARP)
			copy_async(to + swizzle(i), s->p + off + 16 * i, policy);
		return;
	}
	load_odd_tile(*s, off, to);
}

/* Entries of the log reserved for a warp. */
struct log_room {
	uint32_t at, left;
};

/* Logs the changed digests of a group; called by all lanes of a warp. False: the log is full. */
static __device__ __forceinline__ bool log_changed(const struct gpu_take &t, uint64_t group, struct digest d,
						   struct digest signature, uint32_t mask, struct log_room *room)
{
	uint32_t nr = __popc(mask) + t.sparse, rank = __popc(mask & ((1u << lane_id()) - 1)) + t.sparse;

	if (nr > room->left) {
		room->at = lane_id() == 0 ? atomicAdd(&t.counts->log_used, GPU_LOG_GRAB) : 0;
		room->at = __shfl_sync(ALL_LANES, room->at, 0);
		room->left = GPU_LOG_GRAB;
	}
	if (room->at + (uint64_t)nr > t.log_room) {
		t.counts->overflow = 1;
		return false;
	}
	if (lane_id() == 0)
		*(uint2 *)(t.groups + group) = make_uint2(mask, room->at + t.sparse);
	if (lane_id() == 0 && t.sparse)
		store_digest(t.log + room->at, signature);
	if (mask >> lane_id() & 1)
		store_digest(t.log + room->at + rank, d);
	room->at += nr;
	room->left -= nr;
	return true;
}

/* Finds and logs the digests of a group that differ from the parent's; called by all lanes of a warp. */
static __device__ __forceinline__ void compare_group(const struct gpu_take &t, uint64_t group, struct digest d,
						     struct digest old, struct digest signature, struct log_room *room)
{
	bool valid = group * GPU_GROUP + lane_id() < t.nr_chunks;
	uint32_t mask = __ballot_sync(ALL_LANES, valid && (t.all || !same_digest(d, old)));

	if (!mask || (!t.whole && !log_changed(t, group, d, signature, mask, room)))
		return; /* log full: the take restarts */
	if (lane_id() == 0) {
		if (t.whole)
			t.groups[group].mask = mask;
		atomicAdd(&t.unit_changed[group / GPU_UNIT], __popc(mask));
	}
}

/* A changed group: its new digests, and those of the parent, which may still be loading. */
struct changed_group {
	struct digest own[GPU_GROUP], old[GPU_GROUP], signature;
	uint64_t group, reserved;
};

static __device__ __forceinline__ void settle_changed(const struct gpu_take &t, const struct changed_group *c,
						      struct log_room *room)
{
	compare_group(t, c->group, load_digest(c->own + lane_id()), load_digest(c->old + lane_id()), c->signature, room);
	__syncwarp();
}

/*
 * Completes a group from its digests; called by all lanes of a warp. True: the group has changed, and the parent's
 * digests are being copied to `to`. Without `to`, a changed group is compared immediately.
 */
static __device__ __forceinline__ bool finish_group(const struct gpu_take &t, uint64_t group, struct digest d,
						    struct digest newest_signature, const struct lane_key &key,
						    uint64_t policy, struct changed_group *to, struct log_room *room)
{
	uint64_t chunk = group * GPU_GROUP + lane_id();
	struct digest signature;

	if (chunk >= t.nr_chunks)
		d.lo = d.hi = 0;
	signature = hash_lanes<WARP>(key, d);
	if (t.whole && chunk < t.nr_chunks)
		store_digest(t.log + chunk, d);
	if ((t.whole || !t.sparse) && lane_id() == 0)
		store_digest(t.signatures + group, signature);
	if (!t.all && group * GPU_GROUP < t.newest_chunks && same_digest(signature, newest_signature))
		return false;
	if (!to) {
		compare_group(t, group, d, chunk < t.newest_chunks ? load_digest(t.digests + chunk) : t.zero, signature,
			      room);
		return false;
	}
	store_digest(to->own + lane_id(), d);
	if (chunk < t.newest_chunks)
		copy_async(to->old + lane_id(), t.digests + chunk, policy);
	else
		store_digest(to->old + lane_id(), t.zero);
	if (lane_id() == 0) {
		to->signature = signature;
		to->group = group;
	}
	return true;
}

template <uint32_t CHUNK> struct shape {
	static const uint32_t SLICES = CHUNK > SLICE ? CHUNK / SLICE : 1; /* slices per chunk, and tiles per group */
	static const uint32_t GROUPS = CHUNK < SLICE ? SLICE / CHUNK : 1; /* groups per tile */
};

/*
 * Combines the digests of slices into those of chunks. Both are in the warp's scratch memory: the 32 slices of the
 * current tile, and the 32 chunks of the group that contains `tile`.
 */
#define SCRATCH (2 * WARP)

template <uint32_t SLICES>
static __device__ __forceinline__ void add_leaves(const struct gpu_keys &k, const struct lane_key &slices_key,
						  struct digest slice, uint32_t tile, struct digest *scratch)
{
	const uint32_t leaves = WARP / SLICES; /* chunks in this tile */
	struct digest *to = scratch + WARP + tile * leaves;

	if (SLICES <= 8) {
		store_digest(scratch + lane_id(), slice);
		__syncwarp();
		if (lane_id() < leaves) {
			uint64_t words[2 * (SLICES <= 8 ? SLICES : 1)];

#pragma unroll
			for (uint32_t i = 0; i < (SLICES <= 8 ? SLICES : 1); i++) {
				struct digest d = load_digest(scratch + lane_id() * SLICES + i);

				words[2 * i] = d.lo;
				words[2 * i + 1] = d.hi;
			}
			store_digest(to + lane_id(), xxh3_short(&k.group, words, 16 * SLICES));
		}
	} else {
		slice = hash_lanes<(SLICES > 16 ? 32 : 16)>(slices_key, slice);
		if (lane_id() % SLICES == 0)
			store_digest(to + lane_id() / SLICES, slice);
	}
	__syncwarp();
}

/* Shared memory of a block. */
struct hash_shared {
	struct stage stages[GPU_HASH_WARPS][HASH_STAGES];
	struct changed_group changed[GPU_HASH_WARPS][HASH_STAGES]; /* loaded with the next tile of the stage */
	struct digest scratch[GPU_HASH_WARPS][SCRATCH];
	struct lane_key lane_keys[2 * WARP];
};

template <uint32_t CHUNK>
static __global__ void HASH_BOUNDS hash_kernel(const __grid_constant__ struct gpu_take t,
					       const __grid_constant__ struct gpu_keys k, uint64_t first, uint64_t end)
{
	const uint32_t SLICES = shape<CHUNK>::SLICES, GROUPS = shape<CHUNK>::GROUPS;
	extern __shared__ uint4 memory[];
	struct hash_shared *shared = (struct hash_shared *)memory;
	const uint32_t warp = threadIdx.x / WARP;
	struct stage *stages = shared->stages[warp];
	struct changed_group *changed = shared->changed[warp];
	struct digest *scratch = shared->scratch[warp];
	struct lane_key *lane_keys = shared->lane_keys;
	struct lane_key &group_key = lane_keys[lane_id()], &slices_key = lane_keys[WARP + lane_id()];
	uint64_t stride = (uint64_t)gridDim.x * GPU_HASH_WARPS, item = first + blockIdx.x * GPU_HASH_WARPS + warp;
	uint64_t next = item; /* next to load: a group, or a tile with several groups */
	uint64_t policy = once_policy();
	struct source source = { 0, 0, NULL, 0 };
	struct log_room room = { 0, 0 };
	uint32_t next_slice = 0, at = 0, waiting = 0; /* waiting: bit mask of stages with a changed group */

	if (threadIdx.x < WARP) {
		group_key = lane_key_of<32>(k.group);
		slices_key = lane_key_of<(SLICES > 16 ? 32 : 16)>(k.group);
	}
	if (__syncthreads_or(threadIdx.x == 0 && __ldcg(&t.counts->overflow)))
		return; /* the take restarts; these groups count as unchanged until then */
	auto load_next = [&](struct stage *to) {
		if (next < end) {
			load_tile(t, &source, next * SLICES + next_slice, policy, to->data);
			if (lane_id() < GROUPS && (next * GROUPS + lane_id()) * GPU_GROUP < t.newest_chunks)
				copy_async(to->signatures + lane_id(), t.newest_signatures + next * GROUPS + lane_id(),
					   policy);
			if (++next_slice == SLICES) {
				next_slice = 0;
				next += stride;
			}
		}
		__pipeline_commit();
	};

	for (uint32_t i = 0; i < HASH_STAGES; i++)
		load_next(stages + i);
	for (; item < end; item += stride) {
		struct digest leaves[GROUPS], signatures[GROUPS];

#pragma unroll 1
		for (uint32_t slice = 0; slice < SLICES; slice++) {
			uint64_t words[SLICE / 8];

			__pipeline_wait_prior(HASH_STAGES - 1);
			__syncwarp();
			if (waiting >> at & 1)
				settle_changed(t, changed + at, &room);
			waiting &= ~(1u << at);
#pragma unroll
			for (uint32_t i = 0; i < SLICE / 16; i++) {
				const uint32_t per_row = SLICE / 16 / GROUPS; /* vectors per chunk or slice */
				uint32_t row = i / per_row * WARP + lane_id();
				ulonglong2 v =
					((const ulonglong2 *)stages[at].data)[swizzle(row * per_row + i % per_row)];

				words[2 * i] = v.x;
				words[2 * i + 1] = v.y;
			}
#pragma unroll
			for (uint32_t i = 0; i < GROUPS; i++)
				if (slice == SLICES - 1)
					signatures[i] = load_digest(stages[at].signatures + i);
			__syncwarp();
			if (SLICES > 1)
				add_leaves<SLICES>(k, slices_key, xxh3_short(&k.leaf, words, SLICE), slice, scratch);
			else
#pragma unroll
				for (uint32_t i = 0; i < GROUPS; i++)
					leaves[i] = xxh3_short(&k.leaf, words + i * (CHUNK / 8),
							       CHUNK < SLICE ? CHUNK : SLICE);
			if (slice + 1 < SLICES) {
				load_next(stages + at);
				at = at + 1 == HASH_STAGES ? 0 : at + 1;
			}
		}
		if (SLICES > 1)
			leaves[0] = load_digest(scratch + WARP + lane_id());
#pragma unroll
		for (uint32_t i = 0; i < GROUPS; i++)
			if (item * GROUPS + i < t.nr_groups &&
			    finish_group(t, item * GROUPS + i, leaves[i], signatures[i], group_key, policy,
					 GROUPS == 1 ? changed + at : NULL, &room))
				waiting |= 1u << at;
		load_next(stages + at);
		at = at + 1 == HASH_STAGES ? 0 : at + 1;
	}
	__pipeline_wait_prior(0);
	__syncwarp();
	for (uint32_t i = 0; i < HASH_STAGES; i++)
		if (waiting >> i & 1)
			settle_changed(t, changed + i, &room);
}

typedef void hash_fn(struct gpu_take t, struct gpu_keys k, uint64_t first, uint64_t end);

static hash_fn *hash_of(uint32_t chunk_len)
{
	switch (chunk_len) {
	case 32:
		return hash_kernel<32>;
	case 64:
		return hash_kernel<64>;
	case 128:
		return hash_kernel<128>;
	case 256:
		return hash_kernel<256>;
	case 512:
		return hash_kernel<512>;
	case 1024:
		return hash_kernel<1024>;
	case 2048:
		return hash_kernel<2048>;
	default:
		return hash_kernel<4096>;
	}
}

cudaError_t gpu_hash(const struct gpu_take *t, const struct gpu_keys *k, const struct gpu_segment *s,
		     struct gpu_shape shape, cudaStream_t stream)
{
	uint32_t groups = t->chunk_len < SLICE ? SLICE / t->chunk_len : 1; /* groups per item */
	uint64_t first = s->unit * GPU_UNIT / groups, end = s->end * GPU_UNIT / groups;
	uint64_t last = (t->nr_groups + groups - 1) / groups;

	end = end < last ? end : last;
	if ((end - first + GPU_HASH_WARPS - 1) / GPU_HASH_WARPS < shape.blocks)
		shape.blocks = (uint32_t)((end - first + GPU_HASH_WARPS - 1) / GPU_HASH_WARPS);
	hash_of(t->chunk_len)<<<shape.blocks, HASH_BLOCK, shape.shared, stream>>>(*t, *k, first, end);
	return cudaGetLastError();
}

/* Hashes 32 digests per warp. `to` must not be the input, which other warps may still read. */
static __device__ __forceinline__ void hash_group(const struct gpu_keys &k, uint64_t i, uint64_t nr, struct digest d,
						  struct digest *to)
{
	struct lane_key key = lane_key_of<32>(k.group);

	if (i >= nr)
		d.lo = d.hi = 0;
	d = hash_lanes<WARP>(key, d);
	if (lane_id() == 0 && i < nr)
		store_digest(to + i / WARP, d);
}

static __global__ void __launch_bounds__(BLOCK) level_kernel(const __grid_constant__ struct gpu_keys k,
							     const struct digest *from, uint64_t nr, struct digest *to)
{
	uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;

	hash_group(k, i, nr, load_digest(from + min(i, nr - 1)), to);
}

/* Second level, from signatures. Those of unchanged groups are the newest version's. */
static __global__ void __launch_bounds__(BLOCK)
	second_kernel(const __grid_constant__ struct gpu_take t, const __grid_constant__ struct gpu_keys k,
		      uint64_t from, uint64_t end)
{
	uint64_t i = from + (uint64_t)blockIdx.x * BLOCK + threadIdx.x, group = min(i, end - 1);
	bool old = t.sparse && t.groups[group].mask == 0;
	struct digest d = old ? load_digest(t.newest_signatures + group) : changed_signature(t, group);

	if (t.nr_groups == 1) { /* already the top */
		store_digest(t.second, d);
		return;
	}
	hash_group(k, i, end, d, t.second);
}

/* The remaining levels, in one block. */
static __global__ void __launch_bounds__(BLOCK) top_kernel(const __grid_constant__ struct gpu_keys k,
							   struct digest *digests, uint64_t nr,
							   struct gpu_report *report, uint32_t attempt)
{
	struct lane_key key = lane_key_of<32>(k.group);

	for (; nr > 1; nr = (nr + WARP - 1) / WARP) {
		for (uint64_t base = 0; base < nr; base += BLOCK) {
			uint64_t i = base + threadIdx.x;
			struct digest d = { 0, 0 };

			if (i < nr)
				d = load_digest(digests + i);
			d = hash_lanes<WARP>(key, d);
			__syncthreads(); /* the positions written now, which are lower, have been read */
			if (lane_id() == 0 && i < nr)
				store_digest(digests + i / WARP, d);
		}
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		report->top = digests[0];
		__threadfence_system();
		*(volatile uint32_t *)&report->topped = attempt;
	}
}

cudaError_t gpu_second(const struct gpu_take *t, const struct gpu_keys *k, uint64_t unit, uint64_t end,
		       cudaStream_t stream)
{
	uint64_t from = unit * GPU_UNIT, to = end * GPU_UNIT < t->nr_groups ? end * GPU_UNIT : t->nr_groups;

	if (to > from)
		second_kernel<<<(uint32_t)((to - from + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(*t, *k, from, to);
	return cudaGetLastError();
}

cudaError_t gpu_fingerprint(const struct gpu_take *t, const struct gpu_keys *k, cudaStream_t stream)
{
	uint64_t nr = (t->nr_groups + WARP - 1) / WARP;
	struct digest *from = t->second;

	while (nr > 4 * BLOCK) {
		level_kernel<<<(uint32_t)((nr + BLOCK - 1) / BLOCK), BLOCK, 0, stream>>>(*k, from, nr, from + nr);
		from += nr;
		nr = (nr + WARP - 1) / WARP;
	}
	top_kernel<<<1, BLOCK, 0, stream>>>(*k, from, nr, t->report, t->attempt);
	return cudaGetLastError();
}

cudaError_t gpu_prepare_segment(void);

/* Blocks of the hashing per multiprocessor, which has four quarters. */
static const uint32_t per_sm[GPU_NR_PACES] = { 4, 3 };

/* Gives each block so much shared memory that no more blocks fit, except one of gpu_segment(). */
static cudaError_t find_shape(hash_fn *fn, uint32_t nr_sms, uint32_t sm_shared, uint32_t reserved, uint32_t nr,
			      struct gpu_shape *ret)
{
	const uint32_t unit = 128;
	int fit = 0;
	cudaError_t e;

	ret->shared = sm_shared / (nr + 1) / unit * unit + unit - reserved;
	if (ret->shared < sizeof(struct hash_shared))
		ret->shared = sizeof(struct hash_shared);
	e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, fn, HASH_BLOCK, ret->shared);
	ret->blocks = nr_sms * ((uint32_t)fit < nr ? (uint32_t)fit : nr);
	return e == cudaSuccess && fit == 0 ? cudaErrorInvalidConfiguration : e;
}

/* Kernels share a multiprocessor only if they use the same split of its memory. */
cudaError_t gpu_prepare(uint32_t chunk_len, struct gpu_shape ret_shapes[GPU_NR_PACES], uint32_t *ret_blocks)
{
	int device, nr, shared, most, reserved;
	cudaError_t e;

	e = cudaFuncSetAttribute(hash_of(chunk_len), cudaFuncAttributePreferredSharedMemoryCarveout, 100);
	if (e == cudaSuccess)
		e = cudaFuncSetAttribute(second_kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
	if (e == cudaSuccess)
		e = gpu_prepare_segment();
	if (e == cudaSuccess)
		e = cudaGetDevice(&device);
	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&nr, cudaDevAttrMultiProcessorCount, device);
	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device);
	if (e == cudaSuccess)
		e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
	if (e == cudaSuccess)
		e = cudaFuncSetAttribute(hash_of(chunk_len), cudaFuncAttributeMaxDynamicSharedMemorySize, most);
	for (int i = 0; e == cudaSuccess && i < GPU_NR_PACES; i++)
		e = find_shape(hash_of(chunk_len), (uint32_t)nr, (uint32_t)shared, (uint32_t)reserved, per_sm[i],
			       &ret_shapes[i]);
	if (e == cudaSuccess)
		*ret_blocks = (uint32_t)nr;
	return e;
}
