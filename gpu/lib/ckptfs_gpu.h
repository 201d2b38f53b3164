/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libckptfs-gpu: checkpoints of GPU memory into a directory of a ckptfs mount. Changes are detected on the GPU and only
 * they are copied; nevertheless every version is a complete, ordinary file, LINEAGE/NNNNNN.
 *
 *	struct ckptfs_gpu_buffer state[] = {
 *		{ .name = "weights", .p = weights, .len = weights_len },
 *		{ .name = "momentum", .p = momentum, .len = momentum_len },
 *	};
 *	struct ckptfs_gpu *g;
 *	int r = ckptfs_gpu_open("/mnt/ckpt/run1/gpu0", NULL, &g);
 *	...
 *	r = ckptfs_gpu_checkpoint(g, step, state, 2, stream, NULL, NULL); // now `state` may be overwritten
 *	...
 *	r = ckptfs_gpu_wait(g); // all so far are files, or this says why not
 *	...
 *	r = ckptfs_gpu_restore(g, step, state, 2, stream);
 *	r = ckptfs_gpu_close(g);
 *
 * Functions return 0 or a negative errno, which ckptfs_gpu_strerror() explains; details are logged to stderr. A handle
 * may be used by any thread; its calls are serialised. One process at a time may create versions of a lineage: use one
 * lineage per GPU and process. Handles do not survive fork(). They survive a restart of the mount's daemon: calls
 * return -ENOTCONN (one in progress: -ECONNABORTED) until it is mounted again, and work from then on.
 *
 * Without a GPU, changes in host buffers are detected on the CPU, which is logged. That keeps a copy of all content in
 * host memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckptfs_gpu; /* a lineage, open */

enum ckptfs_gpu_method {
	CKPTFS_GPU_TREE, /* what is new and what has moved, in the smallest of all encodings */
	CKPTFS_GPU_LIST, /* the same chunk by chunk */
	CKPTFS_GPU_BASIC, /* changed chunks, as a bitmap */
	CKPTFS_GPU_FULL, /* all bytes */
};

#define CKPTFS_GPU_DURABLE 1u /* a checkpoint is complete when it is durable, not already when it is visible */
#define CKPTFS_GPU_VERIFY 2u /* the mount reads the new file and compares it with the GPU's fingerprint of its buffers */
#define CKPTFS_GPU_COMPARE 4u /* compare bytes, not only digests, of chunks that equal one of the same checkpoint */
#define CKPTFS_GPU_REQUIRE 8u /* -ENODEV instead of using the CPU */

struct ckptfs_gpu_options {
	size_t size; /* of this struct */
	uint32_t method, flags;
	uint32_t chunk_size; /* 32 to 4096, a power of two; 0: 128 */
	uint32_t reserved; /* 0 */
	/*
	 * Bytes of GPU memory for the table of known chunks, 32 per chunk; 0: as much as all chunks of the first
	 * checkpoint need, a quarter of its size with chunks of 128. When it is full, entries are dropped that the
	 * newest version does not have at their place: deltas get larger, never wrong. Other needs are about 0.3 times
	 * the content with chunks of 128 and 0.2 times with 256.
	 */
	uint64_t table_limit;
};

/*
 * Creates `dir` if it is missing; its parent must exist. `options` may be NULL: Tree, durable, chunks of 128 bytes.
 * Restoring needs read permission only. -ENOTTY: not on a ckptfs mount; -EINVAL: invalid option.
 */
int ckptfs_gpu_open(const char *dir, const struct ckptfs_gpu_options *options, struct ckptfs_gpu **ret);
/* Waits for the last checkpoint and frees the handle; no other call may be in progress. Returns what ckptfs_gpu_wait()
 * would. NULL is fine. */
int ckptfs_gpu_close(struct ckptfs_gpu *g);

/* The set of names, and the lengths, may change from one checkpoint to the next. */
struct ckptfs_gpu_buffer {
	const char *name; /* unique, 1 to 4095 bytes */
	void *p; /* memory of one GPU, or of the host: then it is copied to the GPU first */
	uint64_t len;
	const void *info; /* opaque application data, stored with the buffer */
	size_t info_len;
};

/* Called when a checkpoint is complete or has failed (a negative errno). Runs on a thread of the library, where waiting
 * calls return -EDEADLK. */
typedef void (*ckptfs_gpu_done)(void *arg, uint32_t number, int error);

/*
 * Takes a checkpoint as version `number`, which must be higher than those this handle has created. Work queued on
 * `stream` (a cudaStream_t, NULL is the default one) is completed before; when this returns, buffers and arguments may
 * be overwritten. The rest is done asynchronously; the next checkpoint waits for it. `done` may be NULL. -EEXIST: the
 * version exists; -ENOMEM: host or GPU memory; -EIO: the GPU has failed; -EINVAL: arguments. After an error nothing is
 * in progress, nothing has changed, and a later checkpoint may succeed.
 */
int ckptfs_gpu_checkpoint(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
			  void *stream, ckptfs_gpu_done done, void *arg);
/* Waits for the last checkpoint. Returns the first error since the last call. */
int ckptfs_gpu_wait(struct ckptfs_gpu *g);
/* An eventfd that counts completed and failed checkpoints, for poll(2). Owned by the handle. */
int ckptfs_gpu_event_fd(struct ckptfs_gpu *g);

/*
 * Reads buffers of a version into `p`, device or host memory; on return they are complete. Other buffers of the version
 * are ignored. -ENOENT: no such version, or no such buffer in it; -ERANGE: a buffer has another length; -EBADMSG: the
 * file is not a version, or is damaged.
 */
int ckptfs_gpu_restore(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		       void *stream);

/* The content of a version. `p` of its buffers is NULL; `offs` are their offsets in the file. Freed by
 * ckptfs_gpu_version_free(). */
struct ckptfs_gpu_version {
	size_t nr;
	const struct ckptfs_gpu_buffer *buffers;
	const uint64_t *offs;
};
int ckptfs_gpu_version_read(struct ckptfs_gpu *g, uint32_t number, struct ckptfs_gpu_version **ret);
void ckptfs_gpu_version_free(struct ckptfs_gpu_version *v); /* NULL is fine */

/* Numbers of all versions, ascending. The caller frees the array with free(3). */
int ckptfs_gpu_versions(struct ckptfs_gpu *g, uint32_t **ret, size_t *ret_nr);
/* Deletes a version; the others do not depend on it. rm(1) works as well, but a checkpoint in progress may then
 * fail. */
int ckptfs_gpu_delete(struct ckptfs_gpu *g, uint32_t number);

/* Statistics of the last completed checkpoint, and memory use. */
struct ckptfs_gpu_stats {
	size_t size; /* of this struct: set by the caller */
	uint32_t number; /* 0: there was none */
	uint32_t on_gpu; /* 1: changes were detected by a GPU */
	uint64_t content_bytes; /* of the file */
	uint64_t delta_bytes, payload_bytes; /* copied to the host; the same without tables */
	uint64_t take_ns; /* time that the caller waited */
	uint64_t finish_ns, write_ns, commit_ns; /* then: copying to host memory, writing to the mount, committing */
	uint64_t gpu_bytes, gpu_bytes_max; /* GPU memory beyond the buffers: now, and at most */
};
int ckptfs_gpu_stats(struct ckptfs_gpu *g, struct ckptfs_gpu_stats *ret);

/* Explains an error (negative or not) of these functions, and what to do about it. */
const char *ckptfs_gpu_strerror(int error);

#ifdef __cplusplus
}
#endif
