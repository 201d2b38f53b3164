/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Device memory for tests/bench/gpu.c. All only launch, on the default stream. */
#pragma once

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t bench_fill(void *p, uint64_t len, uint64_t seed);
/* Some bits in so many of the chunks. */
cudaError_t bench_change(void *p, uint64_t len, uint32_t chunk_len, double fraction, uint64_t seed);
/* A tenth of the chunks become equal to others, in runs of 4096, moved by any number of chunks. */
cudaError_t bench_move(void *p, uint64_t len, uint32_t chunk_len, uint64_t seed);
/* Reads all of it; `ret` is for the compiler to believe that somebody wants to know. */
cudaError_t bench_read(const void *p, uint64_t len, uint32_t blocks, uint32_t *ret);

#ifdef __cplusplus
}
#endif
