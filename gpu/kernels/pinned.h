/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-locked host memory that grows in slabs, for copies from a device. Bytes are appended in order, and returned as a
 * list of parts. Slabs are reused: locking pages takes far longer than copying to them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <cuda_runtime_api.h>

#define PINNED_SLAB ((uint64_t)64 << 20)

struct pinned {
	uint8_t **slabs;
	size_t nr_slabs;
	uint64_t len;
};

/* A CUDA error as a negative errno, logged; 0 for none. */
int cuda_errno(cudaError_t e, const char *what);

void pinned_release(struct pinned *p); /* leaves `p` empty */
/* Queues a copy of device memory that appends it. */
int pinned_copy(struct pinned *p, const void *device, uint64_t len, cudaStream_t stream);
int pinned_zeros(struct pinned *p, uint64_t len);
/* The parts of the first `len` bytes: returns their number, and writes at most `room` of them. */
size_t pinned_parts(const struct pinned *p, uint64_t len, struct iovec *ret, size_t room);
