/*
 * libckptfs-gpu: checkpoints of GPU memory into a directory of a ckptfs mount. What has changed is found on the GPU and
 * only that is moved; every version is a complete, ordinary file all the same, LINEAGE/NNNNNN.
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
 * Functions return 0 or a negative errno, which ckptfs_gpu_strerror() explains; the cause, with its facts, is a line on
 * stderr. A handle may be used by any thread; its calls wait for each other. One process at a time makes versions of a
 * lineage: one lineage per GPU and process. Handles do not survive fork(). They do survive the mount's daemon: calls
 * return -ENOTCONN (one that was under way -ECONNABORTED) until it is mounted again, and work from then on.
 *
 * Without a GPU the same is done on the CPU with buffers in host memory, and a line on stderr says so. That keeps a
 * copy of all content in host memory.
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

#define CKPTFS_GPU_DURABLE 1u /* a checkpoint is complete when it is durable, not when it is a file */
#define CKPTFS_GPU_VERIFY 2u /* the mount reads the new file and compares it with the GPU's fingerprint of its buffers */
#define CKPTFS_GPU_COMPARE 4u /* compare bytes, not digests alone, of chunks that equal one of the same checkpoint */
#define CKPTFS_GPU_REQUIRE 8u /* -ENODEV rather than doing it on the CPU */

struct ckptfs_gpu_options {
	size_t size; /* of this struct */
	uint32_t method, flags;
	uint32_t chunk_size; /* 32 to 4096, a power of two; 0: 128 */
	uint32_t reserved; /* 0 */
	/*
	 * Bytes of GPU memory for remembering where chunks have been met, 32 per chunk; 0: as much as all chunks of the
	 * first checkpoint take, a quarter of its size with chunks of 128. When it is full, chunks go that the newest
	 * version does not have at their place: then deltas are larger, never wrong. What else is needed is some 0.3
	 * times the content with chunks of 128 and 0.2 times with 256.
	 */
	uint64_t table_limit;
};

/*
 * `dir` is made if it is not there; its parent has to be. `options` may be NULL: Tree, durable, chunks of 128 bytes.
 * Who may only read it can restore. -ENOTTY: not on a ckptfs mount; -EINVAL: an option.
 */
int ckptfs_gpu_open(const char *dir, const struct ckptfs_gpu_options *options, struct ckptfs_gpu **ret);
/* Waits for the last checkpoint and releases all; no other call may be under way. Returns what ckptfs_gpu_wait() would.
 * NULL is fine. */
int ckptfs_gpu_close(struct ckptfs_gpu *g);

/* Names may come, go and be of another length from one checkpoint to the next. */
struct ckptfs_gpu_buffer {
	const char *name; /* of this buffer alone, 1 to 4095 bytes */
	void *p; /* memory of one GPU, or of the host: that is copied to the GPU first */
	uint64_t len;
	const void *info; /* kept with the buffer as it is: what the application wants to know of it later */
	size_t info_len;
};

/* A checkpoint is complete or has failed (a negative errno). On a thread of the library: calls that wait return
 * -EDEADLK there. */
typedef void (*ckptfs_gpu_done)(void *arg, uint32_t number, int error);

/*
 * Takes a checkpoint as version `number`, higher than those this handle has made. What `stream` (a cudaStream_t, NULL
 * is the default one) has been given so far is done before; when this returns, buffers and this call's arguments may be
 * overwritten. The rest happens behind; the next checkpoint waits for it. `done` may be NULL. -EEXIST: there is such a
 * version; -ENOMEM: host or GPU memory; -EIO: the GPU has failed; -EINVAL: arguments. After an error nothing is under
 * way, nothing has changed, and a later one can work.
 */
int ckptfs_gpu_checkpoint(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
			  void *stream, ckptfs_gpu_done done, void *arg);
/* Waits for the last checkpoint. The first error since it was asked for the last time, if there was one. */
int ckptfs_gpu_wait(struct ckptfs_gpu *g);
/* An eventfd that counts completed and failed checkpoints, to poll. The handle's: not to be closed. */
int ckptfs_gpu_event_fd(struct ckptfs_gpu *g);

/*
 * Reads buffers of a version back to where `p` says, device or host; when it returns they are there. What the version
 * has besides is left out. -ENOENT: there is no such version, or no such buffer in it; -ERANGE: it is of another
 * length; -EBADMSG: that file is no version, or damaged.
 */
int ckptfs_gpu_restore(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		       void *stream);

/* What is in a version. `p` of its buffers is NULL; the file has them from `offs` on. Freed by
 * ckptfs_gpu_version_free(). */
struct ckptfs_gpu_version {
	size_t nr;
	const struct ckptfs_gpu_buffer *buffers;
	const uint64_t *offs;
};
int ckptfs_gpu_version_read(struct ckptfs_gpu *g, uint32_t number, struct ckptfs_gpu_version **ret);
void ckptfs_gpu_version_free(struct ckptfs_gpu_version *v); /* NULL is fine */

/* Numbers of the versions there are, ascending, in memory that the caller frees with free(3). */
int ckptfs_gpu_versions(struct ckptfs_gpu *g, uint32_t **ret, size_t *ret_nr);
/* Deletes a version; others do not need it. rm(1) does as well, but then not while a checkpoint is under way: it may
 * fail. */
int ckptfs_gpu_delete(struct ckptfs_gpu *g, uint32_t number);

/* Of the last checkpoint that was completed, and memory. */
struct ckptfs_gpu_stats {
	size_t size; /* of this struct: set by the caller */
	uint32_t number; /* 0: there was none */
	uint32_t on_gpu; /* 1: found by a GPU */
	uint64_t content_bytes; /* of the file */
	uint64_t delta_bytes, payload_bytes; /* moved to the host; without tables */
	uint64_t take_ns; /* that the caller waited */
	uint64_t finish_ns, write_ns, commit_ns; /* then: until it was in host memory, given to the mount, a file */
	uint64_t gpu_bytes, gpu_bytes_max; /* memory beyond the buffers, now and the most there was */
};
int ckptfs_gpu_stats(struct ckptfs_gpu *g, struct ckptfs_gpu_stats *ret);

/* What an error (negative or not) means here, and what to do. */
const char *ckptfs_gpu_strerror(int error);

#ifdef __cplusplus
}
#endif
