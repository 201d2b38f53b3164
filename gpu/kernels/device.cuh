/* SPDX-License-Identifier: BSD-3-Clause */
/* Common device functions: digests computed by a warp, and access to bytes and digests of chunks. */
#pragma once

#include <stdint.h>

#include "gpu/kernels/kernels.h"

#define WARP 32u
#define ALL_LANES 0xffffffffu
#ifndef BLOCK
#define BLOCK 256u /* threads */
#endif
#define WARPS (BLOCK / WARP)

static __device__ __forceinline__ uint32_t lane_id()
{
	return threadIdx.x % WARP;
}

static __device__ __forceinline__ bool same_digest(struct digest a, struct digest b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

/* Loads a digest in one access. */
static __device__ __forceinline__ struct digest load_digest(const struct digest *p)
{
	ulonglong2 v = *(const ulonglong2 *)p;
	struct digest d = { v.x, v.y };

	return d;
}

static __device__ __forceinline__ void store_digest(struct digest *p, struct digest d)
{
	*(ulonglong2 *)p = make_ulonglong2(d.lo, d.hi);
}

/*
 * XXH3-128 of LANES digests, 16 or 32, one per lane: 4 of them are a stripe. A lane contributes to one pair of
 * accumulators only. So lanes first add up within each pair, and then over the four pairs. Half of the lanes of a pair
 * compute the low part of the digest, the others the high part.
 */
struct lane_key {
	ulonglong2 words; /* for the lane's two words */
	ulonglong2 start, merge; /* for its pair of accumulators */
};

template <int LANES> static __device__ __forceinline__ struct lane_key lane_key_of(const struct xxh3_key &k)
{
	uint32_t pair = lane_id() % 4, stripe = lane_id() % LANES / 4;
	const uint64_t *key = stripe < LANES / 4 - 1 ? k.word + stripe : k.last, *merge = stripe % 2 ? k.hi : k.lo;
	struct lane_key ret;
	uint64_t start[XXH3_STRIPE];

	xxh3_start(start);
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (pair == i)
			ret.start = make_ulonglong2(start[2 * i], start[2 * i + 1]);
	ret.words = make_ulonglong2(key[2 * pair], key[2 * pair + 1]);
	ret.merge = make_ulonglong2(merge[2 * pair], merge[2 * pair + 1]);
	return ret;
}

/* `k` may be in shared memory, since the hashing is short of registers. */
template <int LANES>
static __device__ __forceinline__ struct digest hash_lanes(const struct lane_key &k, struct digest d)
{
	ulonglong2 words = k.words, start, merge;
	uint64_t a = d.lo ^ words.x, b = d.hi ^ words.y, part, other;
	uint64_t even = (a & UINT32_MAX) * (a >> 32) + d.hi, odd = (b & UINT32_MAX) * (b >> 32) + d.lo;
	bool high = lane_id() & 4;
	struct digest ret;

#pragma unroll
	for (int step = 4; step < LANES; step *= 2) {
		even += __shfl_xor_sync(ALL_LANES, even, step);
		odd += __shfl_xor_sync(ALL_LANES, odd, step);
	}
	start = k.start;
	merge = k.merge;
	part = xxh3_fold((even + start.x) ^ merge.x, (odd + start.y) ^ merge.y);
	part += __shfl_xor_sync(ALL_LANES, part, 1);
	part += __shfl_xor_sync(ALL_LANES, part, 2);
	part = xxh3_avalanche(part + (high ? ~(16 * LANES * XXH3_P64_2) : 16 * LANES * XXH3_P64_1));
	other = __shfl_xor_sync(ALL_LANES, part, 4);
	ret.lo = high ? other : part;
	ret.hi = high ? part : other;
	return ret;
}

static __device__ __forceinline__ struct gpu_group load_group(const struct gpu_take &t, uint64_t group)
{
	uint2 v = *(const uint2 *)(t.groups + group);
	struct gpu_group g = { v.x, v.y };

	return g;
}

/* Signature of a changed group of this version. */
static __device__ __forceinline__ struct digest changed_signature(const struct gpu_take &t, uint64_t group)
{
	return load_digest(t.sparse && !t.whole ? t.log + load_group(t, group).log - 1 : t.signatures + group);
}

/* Digest of a changed chunk of this version. */
static __device__ __forceinline__ struct digest changed_digest(const struct gpu_take &t, uint32_t chunk)
{
	uint32_t group = chunk / GPU_GROUP, below = (1u << chunk % GPU_GROUP) - 1;

	if (t.whole)
		return load_digest(t.log + chunk);
	struct gpu_group g = load_group(t, group);

	return load_digest(t.log + g.log + __popc(g.mask & below));
}

/* Digest of any chunk of this version, once all of it has been hashed. */
static __device__ __forceinline__ struct digest any_digest(const struct gpu_take &t, uint32_t chunk)
{
	if (t.whole || t.groups[chunk / GPU_GROUP].mask >> chunk % GPU_GROUP & 1)
		return changed_digest(t, chunk);
	return chunk < t.newest_chunks ? load_digest(t.digests + chunk) : t.zero;
}

/* A range of tiles in one buffer, or of zeros. */
struct source {
	uint64_t tile, nr;
	const uint8_t *p; /* NULL: zeros */
	uint64_t len;
};

static __device__ __noinline__ struct source source_find(const struct gpu_take &t, uint64_t tile)
{
	uint32_t low = 0, high = t.nr_buffers; /* number of buffers that begin at or before the tile */
	struct source s = { 0, 0, NULL, 0 };

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (t.buffers[middle].off / GPU_TILE <= tile)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0) {
		struct gpu_buffer b = t.buffers[low - 1];

		s.tile = b.off / GPU_TILE;
		s.nr = (b.len + GPU_TILE - 1) / GPU_TILE;
		if (tile < s.tile + s.nr) {
			s.p = b.p;
			s.len = b.len;
			return s;
		}
		s.tile += s.nr;
	}
	s.nr = low < t.nr_buffers ? t.buffers[low].off / GPU_TILE - s.tile : UINT64_MAX - s.tile;
	return s;
}

/* Loads 16 bytes of a source, with zeros after its end. */
static __device__ __forceinline__ uint4 source_load(const struct source &s, uint64_t off)
{
	uint4 ret = make_uint4(0, 0, 0, 0);
	uint8_t *bytes = (uint8_t *)&ret;

	if (!s.p || off >= s.len)
		return ret;
	if (off + 16 <= s.len && (uintptr_t)s.p % 16 == 0)
		return *(const uint4 *)(s.p + off);
#pragma unroll
	for (int i = 0; i < 16; i++)
		if (off + i < s.len)
			bytes[i] = s.p[off + i];
	return ret;
}

/* The source of content that is a single aligned buffer; otherwise its length is 0. */
static __device__ __forceinline__ struct source only_source(const struct gpu_take &t)
{
	struct source s = { 0, 0, NULL, 0 };

	if (t.nr_buffers == 1 && t.buffers[0].off == 0 && (uintptr_t)t.buffers[0].p % 16 == 0) {
		s.p = t.buffers[0].p;
		s.len = t.buffers[0].len;
	}
	return s;
}

/* Loads 16 bytes of the content. */
static __device__ __noinline__ uint4 content_load(const struct gpu_take &t, uint64_t off)
{
	struct source s;

	if (t.nr_buffers == 1 && t.buffers[0].off == 0) {
		s.tile = 0;
		s.p = t.buffers[0].p;
		s.len = t.buffers[0].len;
	} else
		s = source_find(t, off / GPU_TILE);
	return source_load(s, off - s.tile * GPU_TILE);
}

/* The sum over all threads of a block, returned to each. All threads must call it. */
static __device__ __forceinline__ uint32_t block_sum(uint32_t n)
{
	__shared__ uint32_t sums[WARPS];
	uint32_t total = 0;

	n = __reduce_add_sync(ALL_LANES, n);
	__syncthreads(); /* protects the previous sum */
	if (lane_id() == 0)
		sums[threadIdx.x / WARP] = n;
	__syncthreads();
	for (uint32_t i = 0; i < WARPS; i++)
		total += sums[i];
	return total;
}

/* The sum over the threads before this one, and over all. All threads of a block must call it. */
static __device__ __forceinline__ uint32_t block_scan(uint32_t n, uint32_t *ret_total)
{
	__shared__ uint32_t sums[WARPS];
	uint32_t upto = n, before = 0, total = 0;

#pragma unroll
	for (uint32_t step = 1; step < WARP; step *= 2) {
		uint32_t other = __shfl_up_sync(ALL_LANES, upto, step);

		upto += lane_id() >= step ? other : 0;
	}
	__syncthreads();
	if (lane_id() == WARP - 1)
		sums[threadIdx.x / WARP] = upto;
	__syncthreads();
	for (uint32_t i = 0; i < WARPS; i++) {
		before += i < threadIdx.x / WARP ? sums[i] : 0;
		total += sums[i];
	}
	*ret_total = total;
	return before + upto - n;
}

/* The sum of numbers that other blocks have written. All threads of a block must call it. */
static __device__ __forceinline__ uint32_t sum_of(const uint32_t *numbers, uint64_t nr)
{
	uint32_t sum = 0;

	for (uint64_t i = threadIdx.x; i < nr; i += BLOCK)
		sum += __ldcg(numbers + i);
	return block_sum(sum);
}

/* Volatile: the compiler may assume that loops without side effects terminate. */
static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *p)
{
	uint32_t n;

	asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(p) : "memory");
	return n;
}

/*
 * Barrier for all blocks of a grid, which makes their earlier writes visible to each other. `phase`: 1 for the first
 * one. Only for grids whose blocks all run at the same time.
 */
static __device__ __forceinline__ void wait_for_all(uint32_t *arrived, uint32_t phase)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		atomicAdd(arrived, 1);
		while (load_acquire(arrived) < phase * gridDim.x)
			;
	}
	__syncthreads();
}

/* The range of a block in `nr` items, in multiples of `round`. */
struct part {
	uint64_t from, to;
};

static __device__ __forceinline__ struct part part_of(uint64_t nr, uint32_t round)
{
	uint64_t each = (nr + (uint64_t)gridDim.x * round - 1) / ((uint64_t)gridDim.x * round) * round;
	struct part p = { min(nr, each * blockIdx.x), min(nr, each * (blockIdx.x + 1)) };

	return p;
}
