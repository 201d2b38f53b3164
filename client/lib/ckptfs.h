/*
 * libckptfs: checkpoints of a program's memory, written behind its back. A running program says which memory matters
 * and now and then asks for a checkpoint; it goes on at once, while what has changed since the last one is written to a
 * file, in the order that disturbs it least. Every checkpoint is a complete, ordinary file all the same: in a ckptfs
 * mount it begins as a clone of the last one.
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
 * Functions return 0 or a negative errno, which ckptfs_strerror() explains; the cause, with its facts, is a line on
 * stderr. Any thread may call them; calls wait for each other. A handler of signals that has interrupted one of them
 * gets -EDEADLK. A checkpoint has the memory as it is while ckptfs_checkpoint() runs: other threads must leave it alone
 * meanwhile. There is one set of regions per process. A child of fork(2) is not tracked: its memory is its own, its
 * calls return -ENODEV until it calls ckptfs_init() itself.
 *
 * Environment: each of these stands for an option that ckptfs_init() was not given (0).
 *	CKPTFS_MODE      sync, async, adaptive or predictive
 *	CKPTFS_TRACKING  userfaultfd or mprotect
 *	CKPTFS_COW       bytes for copies, with K, M or G behind it, or N% of the protected memory
 *	CKPTFS_RATE      bytes per second to write at most, likewise
 *	CKPTFS_KEPT      checkpoints to keep
 *
 * Programs that are not written for it: LD_PRELOAD=libckptfs-preload.so, see ckptfs(3). There -EOPNOTSUPP is what
 * ckptfs_restart() returns.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the program and the writer of a checkpoint get along. */
enum ckptfs_mode {
	CKPTFS_MODE_DEFAULT, /* CKPTFS_MODE_ADAPTIVE */
	CKPTFS_MODE_SYNC, /* ckptfs_checkpoint() returns when the checkpoint is complete */
	CKPTFS_MODE_ASYNC, /* pages are written by address */
	CKPTFS_MODE_ADAPTIVE, /* in the order in which the last epoch had trouble with them */
	CKPTFS_MODE_PREDICTIVE, /* in the order in which the last epoch wanted them, from where the program is now */
};

/* How it is known which pages have changed. */
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
	uint32_t keep; /* checkpoints that are kept, older ones are removed unless they are sealed; 0: all */
	/*
	 * Memory for copies of pages that are changed before they have been written; 0: 5 % of the protected memory;
	 * CKPTFS_COW_NONE: none, the program waits.
	 */
	uint64_t cow_bytes;
	uint64_t write_rate; /* bytes per second that are written at most, until ckptfs_finish(); 0: no limit */
	/*
	 * NULL: a checkpoint is DIR/NNNNNN. Else it is DIR/NNNNNN/MEMBER: of several processes that take checkpoints
	 * together, each has a name of its own, and a step is a directory, for ckptfs-seal.
	 */
	const char *member;
};
#define CKPTFS_COW_NONE UINT64_MAX

/*
 * `dir` is made if it is not there; its parent has to be. `options` may be NULL. Whatever was being written there by a
 * process that has died is removed. -EBUSY: this has been called before, or another process takes checkpoints there, of
 * the same member; -EINVAL: an option. On a filesystem that cannot clone, each checkpoint copies the last one first,
 * which a line on stderr and ckptfs_status() say.
 */
int ckptfs_init(const char *dir, const struct ckptfs_options *options);
/* Waits for the last checkpoint and returns what ckptfs_wait() would. The program's own memory stays as it is; what
 * ckptfs_malloc() gave is gone. */
int ckptfs_finish(void);

/*
 * Memory that checkpoints have, zeroed, page-aligned. `name`, of 1 to 255 bytes, tells it from all others and is how a
 * restart finds it. After ckptfs_restart(), a name that was restored and not asked for yet is given with its content;
 * then `len` has to be what it was (ERANGE). NULL and errno: EEXIST: there is such a region; ENOMEM; EINVAL; ENODEV: no
 * ckptfs_init(). Waits for a checkpoint that is under way if page tables have to grow.
 */
void *ckptfs_malloc(const char *name, size_t len);
/* Of another length: the same name, the same bytes as far as they fit, perhaps another place; written as a whole by the
 * next checkpoint. `p` is of ckptfs_malloc(). Waits for the checkpoint under way. */
void *ckptfs_realloc(void *p, size_t len);
/* Later checkpoints do not have it. Waits for the one under way. NULL is fine. -EINVAL: not of ckptfs_malloc(). */
int ckptfs_free(void *p);

/*
 * The program's own memory, of any alignment. Pages that lie in it as a whole are tracked; what is before and behind
 * them is copied at each checkpoint. It must stay mapped and readable and writable until ckptfs_unprotect(). -EINVAL
 * also: tracked pages would be on the calling thread's stack, where a handler may have to run; -EEXIST: the name is
 * taken, or some of it is protected already; -ENOMEM also: some of it is not mapped; -EACCES: some of it cannot be read
 * and written.
 */
int ckptfs_protect(const char *name, void *p, size_t len);
int ckptfs_unprotect(void *p);

/* A region by its name: address and length (may be NULL). -ENOENT. */
int ckptfs_find(const char *name, void **ret, size_t *ret_len);

/*
 * Takes a checkpoint of all regions. It waits for the last one to be complete; if that has failed this returns why,
 * once, and takes none: call again. What it is about is the memory at this moment, the program may change it as soon as
 * this returns.
 */
int ckptfs_checkpoint(void);
/* Waits for the last checkpoint. If it has failed and nobody has been told yet: why. */
int ckptfs_wait(void);

#define CKPTFS_RESTART_ADDRESSES 1u /* flag: regions of ckptfs_malloc() get the addresses they had; -EEXIST: taken */

/*
 * Brings memory back as checkpoint `number` has it, 0: the newest that is valid. Regions that are there get their
 * content by name; others are made, for ckptfs_malloc(), ckptfs_protect() (which copies it to where the program wants
 * it) or ckptfs_find() of the same name. Later checkpoints have higher numbers than any that is there. -ENOENT: there
 * is no (such) checkpoint; -EBADMSG: that file is none, or damaged; -EIO: what is in it cannot be read, and with 0 no
 * older one is left: memory may have some of it; -ERANGE: a region is of another length: then nothing has changed.
 */
int ckptfs_restart(uint32_t number, uint32_t flags, uint32_t *ret_number);

/* Before a system call that is not known to libckptfs (see ckptfs(3)) writes to protected memory: it is made
 * writable. */
void ckptfs_touch(const void *p, size_t len);

enum ckptfs_clone_kind {
	CKPTFS_CLONE_MOUNT, /* a ckptfs mount shares what has not changed */
	CKPTFS_CLONE_REFLINK, /* another filesystem does */
	CKPTFS_CLONE_COPY, /* it is copied */
};

struct ckptfs_status {
	size_t size; /* of this struct: set by the caller */
	uint32_t mode, tracking; /* in use */
	uint32_t clone; /* enum ckptfs_clone_kind */
	uint32_t last; /* the newest checkpoint that is complete; 0: none */
	uint32_t under_way; /* the one that is being written; 0: none */
	int32_t error; /* of the last one, 0: it is complete or under way; else a negative errno */
	uint32_t regions, regions_userfaultfd; /* all; those of them that userfaultfd tracks */
	uint64_t bytes, cow_bytes; /* of all regions; for copies, in use from the next checkpoint on */
};
int ckptfs_status(struct ckptfs_status *ret);

/* Of one checkpoint, and of the epoch that it began: until the next one. */
struct ckptfs_stats {
	size_t size; /* of this struct: set by the caller */
	uint32_t number;
	int32_t error; /* 0: complete, or under way */
	uint64_t pages; /* that were dirty */
	/* Pages that were first written to: copied, waited for, written already; `after` it was complete, with those
	 * that were opened because the program came near. */
	uint64_t cow, wait, avoided, after;
	uint64_t phases; /* CKPTFS_MODE_PREDICTIVE: times that the program was found elsewhere than predicted */
	uint64_t begin_ns; /* that ckptfs_checkpoint() took, without waiting for the one before */
	uint64_t wait_ns; /* that the program waited for pages */
	uint64_t write_ns; /* from the request until it was durable */
	uint64_t written_bytes, writes; /* pages that were written, in so many requests */
};
#define CKPTFS_STATS_KEPT 64u
/* Of checkpoint `number` (0: the last one), if it is one of the last CKPTFS_STATS_KEPT of this process; else
 * -ENOENT. */
int ckptfs_stats(uint32_t number, struct ckptfs_stats *ret);

/* What an error (negative or not) means here, and what to do. */
const char *ckptfs_strerror(int error);

#ifdef __cplusplus
}
#endif
