/*
 * How writes to closed pages are noticed: a choice per region. Ranges are whole units of a region's pages.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region;
struct sigaction;

struct track {
	const char *name;
	/* The region's pages are tracked from now on; they are as they were: open. < 0: not this way. */
	int (*attach)(struct region *r);
	void (*detach)(struct region *r); /* and open */
	int (*close)(void *p, size_t len); /* the next write is noticed */
	int (*open)(void *p, size_t len); /* -ENOMEM: the kernel has too many pieces, try a larger one; in handlers */
};

extern const struct track track_mprotect;

void track_mprotect_stop(void);
void track_mprotect_forget(void); /* in a child of fork(2), when all is open */
extern _Atomic(uint32_t) track_mprotect_regions; /* that are tracked so */
extern _Atomic(bool) track_mprotect_installed; /* our handler of SIGSEGV */
static inline bool track_mprotect_used(void) /* by any region; may be asked before anything has been initialised */
{
	return atomic_load_explicit(&track_mprotect_regions, memory_order_relaxed) > 0;
}
/* all that is, or was, tracked so lies between these */
extern _Atomic(uintptr_t) track_mprotect_low, track_mprotect_high;
/* Some of it may be closed: then it is memory that can be written to, or lies between such memory. As little is needed
 * to ask. */
static inline bool track_mprotect_may_close(const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p;

	return track_mprotect_used() && at < atomic_load_explicit(&track_mprotect_high, memory_order_relaxed) &&
	       len > 0 && at + len - 1 >= atomic_load_explicit(&track_mprotect_low, memory_order_relaxed);
}
/* nothing is put before the C library's functions, though it should be; constant after the library has been loaded */
extern bool track_mprotect_unhelped;
bool track_mprotect_has(const void *p, size_t len); /* some of it is */
/* The program's handler of SIGSEGV: the next one (NULL: as it is), and the last. false: ours is not there. */
bool track_mprotect_action(const struct sigaction *action, struct sigaction *old);

/* As the options say. -EOPNOTSUPP: not what was asked for. */
int track_start(void);
void track_stop(void); /* with no regions left */
void track_forget_parent(void); /* in a child of fork(2) */
unsigned track_kind(void); /* enum ckptfs_tracking, of regions to come */
/* Sets r->track, the best that this region allows. */
int track_attach(struct region *r);
/* What has been written to and was not noticed at once is dirty now; with client.lock. */
int track_collect(void);
