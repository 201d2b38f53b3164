/*
 * What finds a lineage's deltas: delta_record.h on the CPU or delta_gpu.h on a GPU, for whoever does not care which.
 * The steps and errors are theirs. Belongs to one thread at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gpu/delta_gpu.h"
#include "gpu/delta_record.h"

#define PRODUCER_CPU (-1) /* a device */

struct producer {
	const struct producer_ops *ops;
	int device; /* PRODUCER_CPU: host memory only */
};

struct producer_ops {
	/* When it returns buffers may be written again. Those of the host may be anywhere between those of the
	 * device. */
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

/* Why none can be used; NULL: one can. */
const char *gpu_missing(void);
/* The device whose memory this is, or PRODUCER_CPU. */
int gpu_device_of(const void *p);
int producer_new_gpu(int device, const struct delta_record_params *params, struct producer **ret);

/* Reading files into device memory, one copy behind the other. */
struct gpu_reader;
int gpu_reader_new(int device, void *stream, struct gpu_reader **ret);
/* -EBADMSG: the file ends before */
int gpu_reader_read(struct gpu_reader *g, int fd, uint64_t off, void *p, uint64_t len);
int gpu_reader_free(struct gpu_reader *g); /* waits until all is there; NULL is fine */
