/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A common interface to the two producers of deltas: delta_record.h on the CPU and delta_gpu.h on a GPU, which document
 * steps and errors. Belongs to one thread at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/kernels/delta_gpu.h"
#include "gpu/format/delta_record.h"

#define PRODUCER_CPU (-1) /* a device */

struct producer {
	const struct producer_ops *ops;
	int device; /* PRODUCER_CPU: host memory only */
};

struct producer_ops {
	/* On return buffers may be overwritten. Host and device buffers may be mixed. */
	int (*take)(struct producer *p, const struct delta_buffer *buffers, size_t nr, const struct delta_take *take,
		    void *stream);
	int (*finish)(struct producer *p, struct delta_object *ret);
	int (*commit)(struct producer *p);
	void (*abandon)(struct producer *p);
	int (*forget)(struct producer *p, uint32_t number);
	void (*memory)(const struct producer *p, uint64_t *ret_now, uint64_t *ret_max); /* of the device */
	void (*free)(struct producer *p);
};

/* Bytes of table_limit per chunk. */
#define PRODUCER_CHUNK_BYTES 32u

int producer_new_cpu(const struct delta_record_params *params, struct producer **ret);

/* --- the GPU: producer_cuda.c, or producer_none.c, which has none --- */

/* Why no GPU can be used; NULL: one can. */
const char *gpu_missing(void);
/* The device that owns this memory, or PRODUCER_CPU. */
int gpu_device_of(const void *p);
int producer_new_gpu(int device, const struct delta_record_params *params, struct producer **ret);

/* Reads files into device memory; reads and copies overlap. */
struct gpu_reader;
int gpu_reader_new(int device, void *stream, struct gpu_reader **ret);
/* -EBADMSG: the file ends before */
int gpu_reader_read(struct gpu_reader *g, int fd, uint64_t off, void *p, uint64_t len);
int gpu_reader_free(struct gpu_reader *g); /* waits for all copies; NULL is fine */
