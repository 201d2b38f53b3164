/*
 * Deltas of device memory, computed on the GPU: the same algorithm as delta_record.h, and the same objects, byte for
 * byte. kernels.h describes the steps.
 *
 *        take ──▶ finish ──▶ commit: the newest version, which the next one is compared with
 *           └────────┴─────▶ abandon: as if it had never been taken
 *
 * A record belongs to one thread at a time, and to the device that is current when it is created. Calls busy-wait for
 * the GPU, for about a millisecond: use a separate thread if that matters. The blocks of the kernels wait for each
 * other, with one on each multiprocessor: they deadlock with kernels of the application that fill the device and wait
 * for the take.
 *
 * Device memory, for n chunks of content: 17.9 bytes each for the newest version; for the tenth of them that may change
 * at a time, the chunks themselves and some 55 bytes each; and the table. If more change: 16 bytes per chunk more,
 * until the version is committed or abandoned, or if it was more than half, until less changes again.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gpu/format/delta_format.h"
#include "gpu/format/delta_record.h"

struct delta_gpu;

/*
 * `params` as for delta_record_new(), but that the table takes 32 bytes per chunk. -ENODEV: there is no GPU that can be
 * used; -EINVAL: chunk_len; -ENOMEM: host or device memory.
 */
int delta_gpu_new(const struct delta_record_params *params, struct delta_gpu **ret);
void delta_gpu_free(struct delta_gpu *g); /* NULL is fine */
static inline void delta_gpu_freep(struct delta_gpu **g)
{
	delta_gpu_free(*g);
}

/* A stretch of the content. What no buffer has is zeros; the content ends where the last buffer does. */
struct delta_buffer {
	const void *p; /* device memory; loads are fast if it is a multiple of 16 */
	uint64_t len;
	uint64_t off; /* in the content: a multiple of DELTA_PAGE */
};

/*
 * Takes the next version, when all that `stream` (a cudaStream_t) has to do is done. Once it returns the buffers may be
 * written again. Errors as of delta_record_take(), and -EINVAL: buffers that overlap or are out of order, or literals,
 * of which there are none here; -ENOMEM: device or host memory; -EIO: the GPU has failed.
 */
int delta_gpu_take(struct delta_gpu *g, const struct delta_buffer *buffers, size_t nr, const struct delta_take *take,
		   void *stream);

struct delta_object {
	struct delta_header header;
	const struct iovec *parts; /* the object's bytes, in page-locked memory */
	size_t nr_parts;
};

/*
 * Waits for the rest of the object. Its memory is the record's, until the next call of delta_gpu_take(). -ENOMEM, -EIO:
 * it can only be abandoned.
 */
int delta_gpu_finish(struct delta_gpu *g, struct delta_object *ret);
/* What has been finished. After an error: -EIO or -ENOMEM, and nothing is known of any version any more. */
int delta_gpu_commit(struct delta_gpu *g);
void delta_gpu_abandon(struct delta_gpu *g); /* what is pending, if anything */
int delta_gpu_forget(struct delta_gpu *g, uint32_t number); /* as delta_record_forget() */

/* Bytes of device memory that the record has now, and the most it has had. */
void delta_gpu_memory(const struct delta_gpu *g, uint64_t *ret_now, uint64_t *ret_peak);
