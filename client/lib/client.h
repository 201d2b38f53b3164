/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State shared by the modules of libckptfs; there is one instance per process.
 *
 *   ckptfs.c   public functions             region.c   protected memory, and its place in the file
 *   faults.c   writes to closed pages       track.h    detection of such writes
 *   writer.c   the writer thread            pages.h    what it writes next
 *   image.c    checkpoint files             restart.c  restoring memory from them
 *   streams.h  prediction of sequential writes
 *
 * A page is closed while writes to it are intercepted, else open.
 *
 * Locks: `call`, held for the duration of a public function; inside it `job_lock`, and inside that `lock`, which signal
 * handlers take, too. Code that holds `lock` does not write to protected memory, does not allocate and does no I/O but
 * mprotect(2) and ioctl(2) on a userfaultfd. A handler may wait for the writer, and the writer for `job_lock`.
 * Therefore a thread of the program blocks signals while it holds `job_lock` (client_job_lock()), and from the time at
 * which pages are scheduled until the job has been passed to the writer. In a program whose memory is captured, signals
 * are blocked while `call` is held: a handler that maps memory would wait for a thread that unmaps some, which waits
 * for `call`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "client/lib/ckptfs.h"
#include "client/lib/image_format.h"
#include "client/lib/pages.h"
#include "client/lib/siglock.h"

struct image_dir;
struct track;

struct region {
	char name[IMAGE_NAME_MAX + 1];
	uint8_t *p; /* constant, as all but `claimed`, `gone` and `unit` */
	size_t len;
	bool ours; /* mapped by libckptfs */
	bool captured; /* whole pages of an unmodified program (client/preload) */
	bool claimed; /* by the program; false: restored, and not yet claimed */
	/* removed: the memory may be unmapped, and all that the checkpoint in progress needs of it has been copied or
	 * written. Under client.lock */
	bool gone;
	/* the first checkpoint that can contain it: earlier files have another region's bytes in its place */
	uint32_t since;
	uint32_t slot, nr_slot; /* its pages in the file: first, count */
	uint8_t *start; /* the tracked pages, which are whole */
	uint32_t first, nr_pages; /* their numbers in the file */
	uint32_t unit; /* pages that are opened and closed together; a power of two; under client.lock */
	const struct track *track;
};

/* Bytes outside whole pages, or a hole; `at` is the offset of the bytes in a buffer. */
struct extra {
	uint64_t off;
	size_t at, len;
};

struct job {
	uint32_t number; /* 0: none */
	uint64_t asked_ns;
	uint64_t kept_len; /* of the last file: the regions, without its table */
	struct image_header header;
	struct buf table;
	struct buf extras, extra_bytes; /* struct extra; their bytes */
	struct buf holes; /* struct extra without bytes: ranges to be zeroed */
};

struct client {
	struct mutex call;
	sigset_t call_signals; /* the signal mask of its holder before, if memory is captured */
	/* NULL: ckptfs_init() was not called. A page that is zeroed in a child of fork(2), but not of vfork(2) */
	_Atomic(uint32_t) *alive;
	/* this and all up to `lock`: guarded by `call` */
	struct ckptfs_options options; /* with defaults filled in */
	uint32_t cow_percent; /* of the protected memory; 0: options.cow_bytes */
	struct image_dir *dir;
	uint32_t page_size;
	uint32_t number; /* of the last checkpoint that was requested, or exists */
	/* the first checkpoint without the region removed last: earlier files contain its bytes */
	uint32_t holes_since;

	struct siglock lock;
	struct pages pages GUARDED_BY(lock);
	size_t pages_len; /* bytes of its arrays */
	uint32_t pages_size; /* page numbers that fit */
	uint8_t *copies; /* slots of a page each */
	size_t copies_len;
	struct region **by_address, **by_slot GUARDED_BY(lock); /* each region is in both */
	uint32_t nr_regions, regions_size;
	uint64_t waiting_since_ns, wait_ns; /* since when the program waits (0: it does not); its waits in this interval */
	_Atomic(uint64_t) epoch_ns; /* time of the last checkpoint request */
	_Atomic(uint32_t) progress; /* a futex: changes when pages that a thread waits for have been written */
	_Atomic(uint32_t) nr_ended; /* jobs; a futex, too */

	_Atomic(uint32_t) nr_gone; /* regions removed, ever */
	_Atomic(bool) hurry; /* the program waits for the end: ignore the write rate */
	struct mutex job_lock;
	struct cond job_changed;
	pthread_t thread;
	bool has_thread;
	bool stop GUARDED_BY(job_lock);
	struct job job GUARDED_BY(job_lock); /* while there is one, its content belongs to the writer thread */
	uint32_t last GUARDED_BY(job_lock); /* the last complete checkpoint, which the next one clones; 0: none */
	uint64_t last_end GUARDED_BY(job_lock); /* where its regions end */
	bool last_lost GUARDED_BY(job_lock); /* it was removed by another process */
	int error GUARDED_BY(job_lock); /* of the last one */
	bool error_reported GUARDED_BY(job_lock); /* to the program */
	struct ckptfs_stats stats[CKPTFS_STATS_KEPT] GUARDED_BY(job_lock); /* by number modulo that */
};

extern struct client client;

/*
 * Hooks of the module that captures the memory of unmodified programs (client/preload). ckptfs_checkpoint() calls them
 * in this order; every enter() is followed by leave().
 */
struct capture_hooks {
	void (*enter)(void); /* before `call` is taken */
	/* With `call` held and no checkpoint in progress: adds regions; the set is then fixed until leave(). 1: another
	 * thread may be waiting for a lock of this one: release all and retry. */
	int (*gather)(void);
	void (*leave)(void);
	bool (*has)(const void *p, size_t len); /* any part of the range is captured; after enter() */
};
extern const struct capture_hooks *client_capture; /* NULL: no memory is captured */

/* false: ckptfs_init() was not called, or was called by the parent process. */
static inline bool client_alive(void)
{
	return client.alive && *client.alive != 0;
}

/* The parent process has called ckptfs_init(), this one has not. */
static inline bool client_is_child(void)
{
	return client.alive && *client.alive == 0;
}

/* Takes `lock`, with signals blocked. Does nothing in a child, where a thread of the parent may hold it forever. */
static inline void client_lock(void) ACQUIRE(client.lock) NO_THREAD_SAFETY_ANALYSIS
{
	if (!client_is_child())
		siglock_lock(&client.lock);
}

static inline void client_unlock(void) RELEASE(client.lock) NO_THREAD_SAFETY_ANALYSIS
{
	if (!client_is_child())
		siglock_unlock(&client.lock);
}

/* `job_lock`, for all threads but the writer. */
static inline void client_job_lock(sigset_t *before) ACQUIRE(client.job_lock)
{
	signals_block(before);
	mutex_lock(&client.job_lock);
}

static inline void client_job_unlock(const sigset_t *before) RELEASE(client.job_lock)
{
	mutex_unlock(&client.job_lock);
	signals_restore(before);
}

/* Microseconds since the last checkpoint was requested. */
uint32_t client_epoch_us(uint64_t now_ns);

/* --- region.c: with `call` held and, except for lookups, without `lock` --- */

/* Registers a region, without tracking it. Its slot is `slot` if that is not 0 and free, else the first that fits. The
 * caller frees the region after region_remove(). */
int region_add(struct region *r, uint32_t slot);
void region_remove(struct region *r);
struct region *region_by_name(const char *name);
struct region *region_at(const void *p); /* that begins there */
bool region_overlaps(const void *p, size_t len);
/* The region with this address on a tracked page, or with this page of the file; with `lock`. NULL: none. Lookups by
 * address or name skip regions that are gone. */
struct region *region_of_address(uintptr_t address);
struct region *region_of_page(uint32_t page);
/* the start of the first run of tracked pages at or after the address; UINTPTR_MAX: none */
uintptr_t region_next_address(uintptr_t address);
uint64_t region_bytes(void); /* of all regions */
uint64_t region_copies_bytes(void); /* of the copy buffer, by the options */
/* Resizes the copy buffer by the options; no checkpoint may be in progress. */
int region_size_copies(void);
static inline uint8_t *region_address(const struct region *r, uint32_t page)
{
	return r->start + (size_t)(page - r->first) * client.page_size;
}
static inline uint64_t region_off(const struct region *r)
{
	return (uint64_t)r->slot * client.page_size + (uintptr_t)r->p % client.page_size;
}

/* --- faults.c --- */

/* Handles a write to a closed page. false: the address is not on a tracked page. With `wait` the page is open on
 * return; without it, the page is opened at once or when it has been written. Async-signal-safe. */
bool fault_touch(uintptr_t address, bool wait);
/* Wakes the threads that wait for these pages, which have been written or copied. */
void fault_done(const uint32_t *p, uint32_t nr) REQUIRES(client.lock);
/* Likewise for all pages of the checkpoint. */
void fault_release_all(void) REQUIRES(client.lock);

/* --- writer.c --- */

int writer_start(void);
void writer_stop(void); /* after the current job */
void writer_wait(void); /* until there is no job */

bool client_is_writing(void); /* there is a job */

void client_job_clear(struct job *job);

/* --- ckptfs.c, with `call` held --- */

/* Starts a public function: takes `call`. false: *ret is the error. */
bool client_enter(int *ret) TRY_ACQUIRE(true, client.call);
void client_leave(void) RELEASE(client.call); /* before client_capture->leave() */

enum client_region_kind {
	REGION_ZEROED, /* mapped by libckptfs, all zeros */
	REGION_OURS, /* mapped by libckptfs */
	REGION_PROGRAMS, /* of ckptfs_protect() */
	REGION_CAPTURED, /* of an unmodified program */
	REGION_RESTORED, /* mapped by libckptfs; the caller fills it and calls client_pages_restored() */
};
/* On success takes ownership of the mapping, except for REGION_PROGRAMS and REGION_CAPTURED. `slot`: its place in the
 * last file; 0: none. */
int client_add_region(const char *name, void *p, size_t len, enum client_region_kind kind, uint32_t slot,
		      struct region **ret) REQUIRES(client.call);
/* Removes a region, and unmaps it if it is ours. Waits until the checkpoint in progress has copied or written its
 * pages, but not for the end of the checkpoint. */
void client_drop_region(struct region *r) REQUIRES(client.call);
void client_free_gone_regions(void) REQUIRES(client.call); /* no checkpoint may be in progress */
void client_open_region(struct region *r); /* all of it, whatever the page manager has recorded */
/* The region has been filled; `clean`: with the content that the last file has at its place. */
void client_pages_restored(struct region *r, bool clean) REQUIRES(client.call);
void *client_map(void *at, size_t len); /* NULL: anywhere; MAP_FAILED and errno */
