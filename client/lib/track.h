/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How writes to closed pages are detected: a choice per region. Ranges are whole units of a region's pages.
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
	/* Starts tracking the region's pages, which stay open. < 0: this mechanism cannot track them. */
	int (*attach)(struct region *r);
	void (*detach)(struct region *r); /* opens the pages */
	int (*close)(void *p, size_t len); /* the next write is detected */
	/* Async-signal-safe. -ENOMEM: the process has too many mappings; retry with a larger range. */
	int (*open)(void *p, size_t len);
};

extern const struct track track_mprotect;

void track_mprotect_stop(void);
void track_mprotect_forget(void); /* in a child of fork(2), after all pages have been opened */
extern _Atomic(uint32_t) track_mprotect_regions; /* number of regions tracked by mprotect(2) */
extern _Atomic(bool) track_mprotect_installed; /* our handler of SIGSEGV */
static inline bool track_mprotect_used(void) /* by any region; may be called before initialisation */
{
	return atomic_load_explicit(&track_mprotect_regions, memory_order_relaxed) > 0;
}
/* bounds of all memory that is, or was, tracked by mprotect(2) */
extern _Atomic(uintptr_t) track_mprotect_low, track_mprotect_high;
/* Whether some of the range may be closed; may be true for untracked memory. May be called before initialisation. */
static inline bool track_mprotect_may_close(const void *p, size_t len)
{
	uintptr_t at = (uintptr_t)p;

	return track_mprotect_used() && at < atomic_load_explicit(&track_mprotect_high, memory_order_relaxed) &&
	       len > 0 && at + len - 1 >= atomic_load_explicit(&track_mprotect_low, memory_order_relaxed);
}
/* the C library's functions are not interposed (interpose.h); constant after the library has been loaded */
extern bool track_mprotect_not_interposed;
bool track_mprotect_has(const void *p, size_t len); /* some of the range is tracked by mprotect(2) */
/* Replaces (action is not NULL) and returns the program's handler of SIGSEGV. false: ours is not installed. */
bool track_mprotect_action(const struct sigaction *action, struct sigaction *old);

/* Selects the mechanism by the options. -EOPNOTSUPP: the requested one is not available. */
int track_start(void);
void track_stop(void); /* with no regions left */
void track_forget_parent(void); /* in a child of fork(2) */
unsigned track_kind(void); /* enum ckptfs_tracking, of future regions */
/* Sets r->track to the best mechanism for this region, and attaches it. */
int track_attach(struct region *r);
/* Marks pages dirty after writes that the kernel has recorded but not reported; with client.lock. */
int track_collect(void);
