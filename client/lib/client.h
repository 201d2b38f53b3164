/*
 * What the parts of libckptfs share: one of it per process.
 *
 *   ckptfs.c   what programs call           region.c   which memory it is about, and where in the file
 *   faults.c   a write to a closed page     track.h    how such a write is noticed
 *   writer.c   the thread that writes       pages.h    what it writes next
 *   image.c    the files                    restart.c  back from them
 *   streams.h  what will be written to next
 *
 * Locks: `call`, held by a call from beginning to end; inside it `job_lock`, and inside that `lock`, which handlers of
 * signals take, too. Who holds `lock` writes to no protected memory, allocates nothing and does no I/O but mprotect(2)
 * and ioctl(2) of a userfaultfd. A handler may wait for the writer, and the writer for `job_lock`: so a thread of the
 * program has signals blocked while it has that (client_job_lock()), and from the moment at which pages are scheduled
 * until the writer has been given the job. In a program whose memory is captured it has them blocked while it has
 * `call`: a handler that maps memory would wait for whoever takes some away, and that one for `call`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "client/ckptfs.h"
#include "client/image_format.h"
#include "client/pages.h"
#include "client/siglock.h"

struct image_dir;
struct track;

struct region {
	char name[IMAGE_NAME_MAX + 1];
	uint8_t *p; /* constant, as all but `claimed`, `gone` and `unit` */
	size_t len;
	bool ours; /* mapped by us */
	bool captured; /* the program's, of whole pages, and it does not know */
	bool claimed; /* by the program; false: restored, and not asked for yet */
	/* its memory is not ours any more; what the checkpoint under way has of it is copied or written. Under
	 * client.lock */
	bool gone;
	/* the first checkpoint that can have it: what an earlier file has in its place is somebody else's */
	uint32_t since;
	uint32_t slot, nr_slot; /* pages of the file that it has */
	uint8_t *start; /* whole pages: what is tracked */
	uint32_t first, nr_pages; /* numbers of these: pages of the file */
	uint32_t unit; /* pages that are protected together; a power of two; under client.lock */
	const struct track *track;
};

/* Bytes that are not pages: they lie in a buffer, in one piece. */
struct extra {
	uint64_t off;
	size_t at, len;
};

struct job {
	uint32_t number; /* 0: none */
	uint64_t asked_ns;
	uint64_t kept_len; /* of the last file: what is behind that was its table */
	struct image_header header;
	struct buf table;
	struct buf extras, extra_bytes; /* struct extra; what they are about */
	struct buf holes; /* struct extra without bytes: to be zeros */
};

struct client {
	struct mutex call;
	sigset_t call_signals; /* those that its holder had blocked before, if memory is captured */
	/* NULL: not begun. A page that is zeros in a child of fork(2), and not in one of vfork(2) */
	_Atomic(uint32_t) *alive;
	/* as all up to `lock`: of `call` */
	struct ckptfs_options options; /* with defaults filled in */
	uint32_t cow_percent; /* of the protected memory; 0: options.cow_bytes */
	struct image_dir *dir;
	uint32_t page_size;
	uint32_t number; /* of the last checkpoint that was asked for, or is there */
	/* the first checkpoint without the last region that has gone: earlier files have its bytes */
	uint32_t holes_since;

	struct siglock lock;
	struct pages pages GUARDED_BY(lock);
	size_t pages_len; /* bytes of its arrays */
	uint32_t pages_size; /* numbers there is room for */
	uint8_t *copies; /* slots of a page each */
	size_t copies_len;
	struct region **by_address, **by_slot GUARDED_BY(lock); /* each region is in both */
	uint32_t nr_regions, regions_size;
	uint64_t waiting_since_ns, wait_ns; /* the program waits (0: it does not); it has, in this epoch */
	_Atomic(uint64_t) epoch_ns; /* when the last checkpoint was asked for */
	_Atomic(uint32_t) progress; /* a futex: changes when somebody who waits should look again */
	_Atomic(uint32_t) nr_ended; /* jobs; a futex, too */

	_Atomic(uint32_t) nr_gone; /* regions, ever */
	_Atomic(bool) hurry; /* the program ends, and waits: nothing is limited any more */
	struct mutex job_lock;
	struct cond job_changed;
	pthread_t thread;
	bool has_thread;
	bool stop GUARDED_BY(job_lock);
	struct job job GUARDED_BY(job_lock); /* while there is one its content is the thread's */
	uint32_t last GUARDED_BY(job_lock); /* that is complete, and that the next one is a clone of; 0: none */
	uint64_t last_end GUARDED_BY(job_lock); /* where its regions end */
	bool last_lost GUARDED_BY(job_lock); /* there was one, and somebody has removed it */
	int error GUARDED_BY(job_lock); /* of the last one */
	bool told GUARDED_BY(job_lock); /* somebody knows */
	struct ckptfs_stats stats[CKPTFS_STATS_KEPT] GUARDED_BY(job_lock); /* by number modulo that */
};

extern struct client client;

/*
 * Who captures memory of a program that does not ask for it (client/preload). Called in this order by
 * ckptfs_checkpoint(); after enter(), leave() always comes.
 */
struct client_world {
	void (*enter)(void); /* `call` is not held yet */
	/* With `call`, and no checkpoint under way: adds regions; none comes or goes until leave(). 1: not now,
	 * somebody may wait for us: begin again. */
	int (*gather)(void);
	void (*leave)(void);
	bool (*has)(const void *p, size_t len); /* some of it is captured; after enter() */
};
extern const struct client_world *client_world; /* NULL: nobody */

/* false: nothing has begun, or this is a child of whoever began it. */
static inline bool client_alive(void)
{
	return client.alive && *client.alive != 0;
}

/* This is a child of whoever began it, and has not begun itself. */
static inline bool client_is_child(void)
{
	return client.alive && *client.alive == 0;
}

/* `lock`, with signals blocked; not in a child, where it may be held for ever by a thread that the child does not
 * have. */
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

/* Microseconds since the last checkpoint was asked for. */
uint32_t client_epoch_us(uint64_t now_ns);

/* --- region.c, all with `call` held and, but for look-ups, `lock` not --- */

/* Known from now on, but not tracked. Its slot is `slot`, if that is not 0 and free, else one is found. Caller frees it
 * after region_remove(). */
int region_add(struct region *r, uint32_t slot);
void region_remove(struct region *r);
struct region *region_by_name(const char *name);
struct region *region_at(const void *p); /* that begins there */
bool region_overlaps(const void *p, size_t len);
/* The region that has this address on a tracked page, or this page of the file; with `lock`. NULL: none. */
struct region *region_of_address(uintptr_t address); /* none that is gone, as all that go by address or name */
struct region *region_of_page(uint32_t page);
/* where tracked pages begin that are not before it; UINTPTR_MAX: nowhere */
uintptr_t region_next_address(uintptr_t address);
uint64_t region_bytes(void); /* of all */
uint64_t region_copies_bytes(void); /* for copies, as the options say */
/* Slots for copies as the options say; no checkpoint is under way. */
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

/* A write to a page that is closed. false: it is none of ours. When it returns with `wait`, the page is open; without,
 * it is, or will be when it has been written. May run in a signal handler. */
bool fault_touch(uintptr_t address, bool wait);
/* These pages are done: whoever waits for one of them goes on. */
void fault_done(const uint32_t *p, uint32_t nr) REQUIRES(client.lock);
/* All pages are. */
void fault_release_all(void) REQUIRES(client.lock);

/* --- writer.c --- */

int writer_start(void);
void writer_stop(void); /* when it has done what it has to do */
void writer_wait(void); /* until there is no job */

bool client_is_writing(void); /* there is a job */

void client_job_clear(struct job *job);

/* --- ckptfs.c, with `call` held --- */

/* A call begins. false: *ret says why not. */
bool client_enter(int *ret) TRY_ACQUIRE(true, client.call);
void client_leave(void) RELEASE(client.call); /* it ends; before client_world->leave() */

enum client_region_kind {
	REGION_ZEROED, /* mapped by us, and zeros */
	REGION_OURS, /* mapped by us */
	REGION_PROGRAMS,
	REGION_CAPTURED, /* the program's, which does not know */
	REGION_RESTORED, /* mapped by us; content is to come, then client_pages_restored() */
};
/* Takes over what is mapped, but for REGION_PROGRAMS and REGION_CAPTURED, if it succeeds. `slot`: where the last file
 * has it; 0: it does not. */
int client_add_region(const char *name, void *p, size_t len, enum client_region_kind kind, uint32_t slot,
		      struct region **ret) REQUIRES(client.call);
/* And unmaps it, if it is ours. Waits until the checkpoint under way does not need it any more; others of its pages are
 * written later. */
void client_drop_region(struct region *r) REQUIRES(client.call);
void client_forget_regions(void) REQUIRES(client.call); /* those that are gone; no checkpoint is under way */
void client_open_region(struct region *r); /* all of it, whatever the page manager says */
/* Its content is what the last file has; or something else. */
void client_pages_restored(struct region *r, bool as_the_file) REQUIRES(client.call);
void *client_map(void *at, size_t len); /* NULL: anywhere; MAP_FAILED and errno */
