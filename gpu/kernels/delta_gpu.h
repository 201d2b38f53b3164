/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deltas of device memory, computed on the GPU: the algorithm of delta_record.h, with byte-identical objects. kernels.h
 * describes the steps.
 *
 *        take ──▶ finish ──▶ commit: becomes the newest version, with which the next one is compared
 *           └────────┴─────▶ abandon: as if it had never been taken
 *
 * A record belongs to one thread at a time, and to the device that is current when it is created. Calls busy-wait for
 * the GPU, for about a millisecond: use a separate thread if that matters. The blocks of some kernels wait for each
 * other, with one block on each multiprocessor: they deadlock with kernels of the application that fill the device and
 * wait for the take.
 *
 * Device memory: 17.9 bytes per chunk of content for the newest version; for the tenth of the chunks that may change at
 * a time, the chunks themselves and some 55 bytes each; and the table. If more chunks change, 16 bytes per chunk more,
 * until the version is committed or abandoned; after changes of more than half, until fewer chunks change.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gpu/format/delta_format.h"
#include "gpu/format/delta_record.h"

struct delta_gpu;

/*
 * `params` as for delta_record_new(), except that the table takes 32 bytes per chunk. -ENODEV: no usable GPU; -EINVAL:
 * chunk_len; -ENOMEM: host or device memory.
 */
int delta_gpu_new(const struct delta_record_params *params, struct delta_gpu **ret);
void delta_gpu_free(struct delta_gpu *g); /* NULL is fine */
static inline void delta_gpu_freep(struct delta_gpu **g)
{
	delta_gpu_free(*g);
}

/* A range of the content. Gaps between buffers are zeros; the content ends with the last buffer. */
struct delta_buffer {
	const void *p; /* device memory; aligned to 16 bytes for fast loads */
	uint64_t len;
	uint64_t off; /* in the content; a multiple of DELTA_PAGE */
};

/*
 * Takes the next version, after all work queued in `stream` (a cudaStream_t). The buffers may be written again once it
 * returns. Errors of delta_record_take(), and -EINVAL: buffers overlap or are out of order, or literals, which are not
 * supported; -ENOMEM: device or host memory; -EIO: the GPU failed.
 */
int delta_gpu_take(struct delta_gpu *g, const struct delta_buffer *buffers, size_t nr, const struct delta_take *take,
		   void *stream);

struct delta_object {
	struct delta_header header;
	const struct iovec *parts; /* bytes of the object, in page-locked memory */
	size_t nr_parts;
};

/*
 * Waits for the rest of the object. Its memory belongs to the record and is valid until the next delta_gpu_take().
 * After -ENOMEM or -EIO the version can only be abandoned.
 */
int delta_gpu_finish(struct delta_gpu *g, struct delta_object *ret);
/* Commits the finished version. After an error, -EIO or -ENOMEM, the record is empty. */
int delta_gpu_commit(struct delta_gpu *g);
void delta_gpu_abandon(struct delta_gpu *g); /* the pending version, if any */
int delta_gpu_forget(struct delta_gpu *g, uint32_t number); /* as delta_record_forget() */

/* Bytes of device memory of the record, current and peak. */
void delta_gpu_memory(const struct delta_gpu *g, uint64_t *ret_now, uint64_t *ret_peak);
