/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libckptfs: asynchronous checkpoints of a program's memory. The program declares which memory matters and requests
 * checkpoints. It continues at once, while the pages that changed since the last checkpoint are written to a file, in
 * the order that delays the program least. Every checkpoint is a complete, ordinary file: on a ckptfs mount it starts
 * as a clone of the last one.
 *
 *	int r = ckptfs_init("/mnt/ckpt/run1", NULL);
 *	double *field = ckptfs_malloc("field", n * sizeof(*field));
 *	long step = 0;
 *	r = ckptfs_protect("step", &step, sizeof(step));
 *	r = ckptfs_restart(0, 0, NULL); // the newest valid checkpoint, or -ENOENT: begin at the beginning
 *	for (; step < steps; step++) {
 *		if (step % 100 == 0)
 *			r = ckptfs_checkpoint();
 *		compute(field);
 *	}
 *	r = ckptfs_finish();
 *
 * Functions return 0 or a negative errno, which ckptfs_strerror() explains; details are logged to stderr. All functions
 * are thread-safe and serialised. A signal handler that has interrupted one of them gets -EDEADLK. A checkpoint
 * contains the memory as it is while ckptfs_checkpoint() runs: other threads must not change it meanwhile. There is one
 * set of regions per process. A child of fork(2) is not tracked; its calls return -ENODEV until it calls ckptfs_init()
 * itself.
 *
 * Environment: default of an option that is 0 in ckptfs_init().
 *	CKPTFS_MODE      sync, async, adaptive or predictive
 *	CKPTFS_TRACKING  userfaultfd or mprotect
 *	CKPTFS_COW       bytes for copies, with suffix K, M or G, or N% of the protected memory
 *	CKPTFS_RATE      maximum bytes written per second, with the same suffixes
 *	CKPTFS_KEPT      checkpoints to keep
 *
 * Unmodified programs: LD_PRELOAD=libckptfs-preload.so, see ckptfs(3). There ckptfs_restart() returns -EOPNOTSUPP.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When and in which order the pages of a checkpoint are written. */
enum ckptfs_mode {
	CKPTFS_MODE_DEFAULT, /* CKPTFS_MODE_ADAPTIVE */
	CKPTFS_MODE_SYNC, /* ckptfs_checkpoint() returns when the checkpoint is complete */
	CKPTFS_MODE_ASYNC, /* pages are written by address */
	CKPTFS_MODE_ADAPTIVE, /* pages that the program waited for in the last interval come first, then those copied */
	/* in the order of the first writes in the last interval, starting at the program's current position in it */
	CKPTFS_MODE_PREDICTIVE,
};

/* How changed pages are detected. */
enum ckptfs_tracking {
	CKPTFS_TRACKING_DEFAULT, /* userfaultfd where the kernel grants it, else mprotect */
	CKPTFS_TRACKING_MPROTECT, /* mprotect(2) and SIGSEGV */
	CKPTFS_TRACKING_USERFAULTFD, /* write protection by userfaultfd(2); in CKPTFS_MODE_SYNC its asynchronous kind */
};

#define CKPTFS_REQUIRE_MOUNT 1u /* flag: -ENOTTY unless the directory is on a ckptfs mount */
#define CKPTFS_SEALED 2u /* flag: ckptfs_restart() takes sealed checkpoints only; with `member` */

struct ckptfs_options {
	size_t size; /* of this struct */
	uint32_t mode, tracking, flags;
	uint32_t keep; /* number of checkpoints to keep; older ones are removed unless they are sealed; 0: all */
	/*
	 * Memory for copies of pages that change before they have been written; 0: 5 % of the protected memory;
	 * CKPTFS_COW_NONE: none, the program waits.
	 */
	uint64_t cow_bytes;
	uint64_t write_rate; /* maximum bytes written per second, until ckptfs_finish(); 0: no limit */
	/*
	 * NULL: a checkpoint is DIR/NNNNNN. Else it is DIR/NNNNNN/MEMBER: processes that take checkpoints together have
	 * distinct member names, and a step is a directory that ckptfs-seal can seal.
	 */
	const char *member;
};
#define CKPTFS_COW_NONE UINT64_MAX

/*
 * Creates `dir` if it is missing; its parent must exist. `options` may be NULL. Incomplete checkpoints of a process
 * that has died are removed. -EBUSY: already called, or another process takes checkpoints of the same member there;
 * -EINVAL: invalid option. On a filesystem that cannot clone, each checkpoint copies the last one first, which is
 * logged to stderr and shown by ckptfs_status().
 */
int ckptfs_init(const char *dir, const struct ckptfs_options *options);
/* Waits for the last checkpoint and returns what ckptfs_wait() would. The program's own memory stays as it is; memory
 * from ckptfs_malloc() is unmapped. */
int ckptfs_finish(void);

/*
 * Allocates memory that checkpoints contain: zeroed, page-aligned. `name`, of 1 to 255 bytes, is unique and identifies
 * the region on restart. After ckptfs_restart(), a restored name that has not been claimed yet is returned with its
 * content; `len` must then be unchanged (ERANGE). NULL and errno: EEXIST: there is such a region; ENOMEM; EINVAL;
 * ENODEV: no ckptfs_init(). Waits for the checkpoint in progress if page tables have to grow.
 */
void *ckptfs_malloc(const char *name, size_t len);
/* Resizes a region of ckptfs_malloc(); it keeps its name and, as far as they fit, its bytes, and may move. The next
 * checkpoint writes all of it. Waits for the checkpoint in progress. */
void *ckptfs_realloc(void *p, size_t len);
/* Removes a region from later checkpoints. Waits for the one in progress. NULL is fine. -EINVAL: not from
 * ckptfs_malloc(). */
int ckptfs_free(void *p);

/*
 * Adds the program's own memory, of any alignment. Whole pages within it are tracked; the bytes before and behind them
 * are copied at each checkpoint. It must stay mapped, readable and writable until ckptfs_unprotect(). -EINVAL also:
 * tracked pages would be on the calling thread's stack, where a handler may have to run; -EEXIST: the name is in use,
 * or some of the range is protected already; -ENOMEM also: some of it is not mapped; -EACCES: some of it is not
 * readable and writable.
 */
int ckptfs_protect(const char *name, void *p, size_t len);
int ckptfs_unprotect(void *p);

/* Looks up a region by name: address and length (may be NULL). -ENOENT. */
int ckptfs_find(const char *name, void **ret, size_t *ret_len);

/*
 * Takes a checkpoint of all regions, as they are during this call; the program may change them as soon as it returns.
 * Waits for the last checkpoint to complete. If that one failed, its error is returned once and no checkpoint is
 * taken: call again.
 */
int ckptfs_checkpoint(void);
/* Waits for the last checkpoint. Returns its error unless an earlier call has. */
int ckptfs_wait(void);

#define CKPTFS_RESTART_ADDRESSES 1u /* flag: restore ckptfs_malloc() regions at their old addresses; -EEXIST: in use */

/*
 * Restores memory from checkpoint `number`; 0: the newest valid one. Existing regions are filled by name. The others
 * are created, and claimed by ckptfs_malloc(), ckptfs_protect() (which copies the content to the given address) or
 * ckptfs_find() of the same name. Later checkpoints get higher numbers than all existing ones. -ENOENT: no (such)
 * checkpoint; -EBADMSG: the file is not a checkpoint, or is damaged; -EIO: it cannot be read, and with 0 no older one
 * is left: memory may be partly restored; -ERANGE: a region has another length: nothing was changed.
 */
int ckptfs_restart(uint32_t number, uint32_t flags, uint32_t *ret_number);

/* Makes protected memory writable. Call it before a system call that libckptfs does not intercept (see ckptfs(3))
 * writes there. */
void ckptfs_touch(const void *p, size_t len);

enum ckptfs_clone_kind {
	CKPTFS_CLONE_MOUNT, /* a ckptfs mount: unchanged data is shared */
	CKPTFS_CLONE_REFLINK, /* another filesystem that can share it */
	CKPTFS_CLONE_COPY, /* the file is copied */
};

struct ckptfs_status {
	size_t size; /* of this struct: set by the caller */
	uint32_t mode, tracking; /* in use */
	uint32_t clone; /* enum ckptfs_clone_kind */
	uint32_t last; /* the newest complete checkpoint; 0: none */
	uint32_t under_way; /* the checkpoint in progress; 0: none */
	int32_t error; /* of the last one: a negative errno; 0: complete or in progress */
	uint32_t regions, regions_userfaultfd; /* all; those tracked by userfaultfd */
	uint64_t bytes, cow_bytes; /* of all regions; of the copy buffer from the next checkpoint on */
};
int ckptfs_status(struct ckptfs_status *ret);

/* One checkpoint, and the interval after it: the time until the next one. */
struct ckptfs_stats {
	size_t size; /* of this struct: set by the caller */
	uint32_t number;
	int32_t error; /* 0: complete, or in progress */
	uint64_t pages; /* dirty pages */
	/* first writes to pages in the interval: the page was copied; the program waited for it; it was written already;
	 * `after`: the checkpoint was complete, including pages that were opened ahead of the program */
	uint64_t cow, wait, avoided, after;
	uint64_t phases; /* CKPTFS_MODE_PREDICTIVE: times that the predicted position was corrected */
	uint64_t begin_ns; /* duration of ckptfs_checkpoint(), without waiting for the previous one */
	uint64_t wait_ns; /* time that the program waited for pages */
	uint64_t write_ns; /* from the request until the checkpoint was durable */
	uint64_t written_bytes, writes; /* bytes written, and write requests */
};
#define CKPTFS_STATS_KEPT 64u
/* Statistics of checkpoint `number` (0: the last one) if it is one of the last CKPTFS_STATS_KEPT of this process; else
 * -ENOENT. */
int ckptfs_stats(uint32_t number, struct ckptfs_stats *ret);

/* Explains an error (negative or not) of these functions, and what to do about it. */
const char *ckptfs_strerror(int error);

#ifdef __cplusplus
}
#endif
