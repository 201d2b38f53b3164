/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks known in memory, and the frames that are being filled. For the files of store/dedup alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/mutex.h"
#include "index/fingerprint_filter.h"
#include "store/dedup/fptable.h"
#include "store/pack/pack.h"

/* One part of each table of fingerprints. A cache line of its own: threads take the locks of neighbours at once. */
struct part_lock {
	_Alignas(64) struct mutex lock; /* leaf */
};

#define NR_UNWRITTEN_MAX 8 /* frames kept in memory after a failed write */

struct dedup {
	struct mutex absorb_lock; /* before append_lock; held while `frozen` and `kept` are read without append_lock */
	struct mutex append_lock; /* before the locks of the packs */
	/*
	 * A thread that holds append_lock holds this exclusively too, unless it waits. Batches of new pages, each with a frame of
	 * its own, hold it shared instead of append_lock, side by side: they take the lock of a part to look up a page in
	 * it and, if it is absent, to insert it in the same step.
	 */
	struct rwlock tables_lock;
	struct part_lock part[FPTABLE_PARTS];
	struct fptable recent, frozen, kept GUARDED_BY(append_lock); /* not yet absorbed; being absorbed; absorbed */
	struct pack_marks frozen_marks GUARDED_BY(append_lock);
	struct {
		size_t nr; /* entries of `recent` at the last check */
		uint64_t since_ns; /* unchanged since */
	} quiet GUARDED_BY(append_lock);
	uint64_t absorb_generation GUARDED_BY(append_lock);
	struct {
		/* Held to add keys, which batches look up meanwhile, and to install filters: in_use with append_lock too.
		 * A key that a batch misses is in `frozen` until append_lock is held. Leaf. */
		struct mutex lock;
		struct fingerprint_filter in_use, next;
		uint64_t nr_good, scan_from; /* used by the background thread only */
	} filter;
	/* frames shared by jobs: for a few pages; for chunks cut by content */
	struct pack_frame *small, *varied GUARDED_BY(append_lock);
	struct fp small_tweak, varied_tweak GUARDED_BY(append_lock); /* tweak of the first chunk in each */
	/* a job may exceed the limit by two */
	struct pack_frame *unwritten[NR_UNWRITTEN_MAX + 4] GUARDED_BY(append_lock);
	unsigned nr_unwritten GUARDED_BY(append_lock);
	int unwritten_error GUARDED_BY(append_lock);
	unsigned nr_filling GUARDED_BY(append_lock); /* small frames that left `small` and are being written */
	struct cond filling_cond;
};
