/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the benchmark does to device memory: fills, changes and reads it. */
#include "tests/bench/gpu_kernels.h"

#define BLOCK 256u

static __device__ __forceinline__ uint64_t mix(uint64_t n) /* splitmix64 */
{
	n += 0x9e3779b97f4a7c15;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

static __global__ void fill_kernel(uint64_t *p, uint64_t nr, uint64_t seed)
{
	for (uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x; i < nr; i += (uint64_t)gridDim.x * BLOCK)
		p[i] = mix(i + (seed << 40));
}

static __global__ void change_kernel(uint64_t *p, uint64_t nr_chunks, uint32_t words, uint64_t below, uint64_t seed)
{
	uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x, n = mix(i + (seed << 40));

	if (i < nr_chunks && n >> 32 < below)
		p[i * words + n % words] ^= mix(n) | 1;
}

/* Of each 40960 chunks 4096 become equal to 4096 others, which no move has touched. */
static __global__ void move_kernel(uint4 *p, uint64_t nr_chunks, uint32_t vectors, uint64_t seed)
{
	uint64_t part = blockIdx.x, base = part * 40960, to = base + 1111,
		 from = base + 12001 + (seed * 911 + part * 17) % 20000;

	if (base + 40960 > nr_chunks)
		return;
	for (uint64_t i = threadIdx.x; i < 4096 * (uint64_t)vectors; i += BLOCK)
		p[to * vectors + i] = p[from * vectors + i];
}

static __global__ void read_kernel(const uint4 *p, uint64_t nr, uint32_t *ret)
{
	uint64_t stride = (uint64_t)gridDim.x * BLOCK, i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
	uint32_t sum = 0;

	for (; i + 7 * stride < nr; i += 8 * stride) {
		uint4 v[8];

#pragma unroll
		for (int k = 0; k < 8; k++)
			v[k] = p[i + k * stride];
#pragma unroll
		for (int k = 0; k < 8; k++)
			sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
	}
	for (; i < nr; i += stride)
		sum += p[i].x;
	if (sum == 0x12345678)
		*ret = sum;
}

cudaError_t bench_fill(void *p, uint64_t len, uint64_t seed)
{
	fill_kernel<<<4096, BLOCK>>>((uint64_t *)p, len / 8, seed);
	return cudaGetLastError();
}

cudaError_t bench_change(void *p, uint64_t len, uint32_t chunk_len, double fraction, uint64_t seed)
{
	uint64_t nr = len / chunk_len;

	change_kernel<<<(uint32_t)((nr + BLOCK - 1) / BLOCK), BLOCK>>>((uint64_t *)p, nr, chunk_len / 8,
								       (uint64_t)(fraction * 4294967296.0), seed);
	return cudaGetLastError();
}

cudaError_t bench_move(void *p, uint64_t len, uint32_t chunk_len, uint64_t seed)
{
	uint64_t nr = len / chunk_len;

	move_kernel<<<(uint32_t)(nr / 40960), BLOCK>>>((uint4 *)p, nr, chunk_len / 16, seed);
	return cudaGetLastError();
}

cudaError_t bench_read(const void *p, uint64_t len, uint32_t blocks, uint32_t *ret)
{
	read_kernel<<<blocks, BLOCK>>>((const uint4 *)p, len / 16, ret);
	return cudaGetLastError();
}
