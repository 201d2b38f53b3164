/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks known in memory, and the frames that are being filled. For the files of store/dedup alone. */
#pragma once

#include <stdatomic.h>
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
#define NR_SHARED_MAX 16u

/* A frame that jobs share. */
struct open_frame {
	struct pack_frame *f; /* NULL: none */
	struct fp tweak; /* of the first chunk in it */
};

/*
 * Where a job with a few new chunks puts them: a frame for pages, and one for chunks cut by content. There are as many
 * of these as bulk streams. A job takes the first whose lock is free, so few writers keep to few frames.
 *
 * The fields belong to a thread that holds the lock and append_lock shared, or append_lock alone.
 */
struct shared_frames {
	_Alignas(64) struct mutex lock; /* after append_lock, before part[].lock */
	struct open_frame pages, varied GUARDED_BY(lock);
};

/* Shared frames that are not open any more. */
struct full_frames {
	struct mutex lock; /* leaf */
	struct cond written; /* a write has ended */
	unsigned nr_filling GUARDED_BY(lock); /* being written */
	/* Writes of these have failed. Each job that finds room may add two; a commit adds all that are open. */
	struct pack_frame *unwritten[NR_UNWRITTEN_MAX + 4 * NR_SHARED_MAX] GUARDED_BY(lock);
	unsigned nr_unwritten GUARDED_BY(lock);
	int error GUARDED_BY(lock); /* of the last write that failed */
	atomic_uint nr; /* of both; changed under the lock */
};

struct dedup {
	struct mutex absorb_lock; /* before append_lock; held while `frozen` and `kept` are read without append_lock */
	/* Before the locks of the packs. Taken by batches that share chunks with concurrent ones, and in stores of a
	 * cluster; held while chunks are copied into a frame. */
	struct mutex append_lock;
	/*
	 * A thread that holds append_lock holds this exclusively too, unless it waits. Batches hold it shared instead of
	 * append_lock, side by side: they take the lock of a part to look up a page in it and, if it is absent, to insert
	 * it in the same step.
	 */
	struct rwlock tables_lock;
	struct part_lock part[FPTABLE_PARTS];
	struct fptable recent, frozen, kept GUARDED_BY(append_lock); /* not yet absorbed; being absorbed; absorbed */
	struct pack_marks frozen_marks GUARDED_BY(append_lock);
	struct {
		size_t nr; /* entries of `recent` at the last check */
		uint64_t since_ns; /* unchanged since */
	} quiet; /* used by the background thread only */
	uint64_t absorb_generation GUARDED_BY(append_lock);
	struct {
		/* Held to add keys, which batches look up meanwhile, and to install filters: in_use with append_lock too.
		 * A key that a batch misses is in `frozen` until append_lock is held. Leaf. */
		struct mutex lock;
		struct fingerprint_filter in_use, next;
		uint64_t nr_good, scan_from; /* used by the background thread only */
	} filter;
	struct cond absorbed; /* with append_lock */
	struct shared_frames shared[NR_SHARED_MAX];
	unsigned nr_shared; /* constant */
	struct full_frames full;
};
