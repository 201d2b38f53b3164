/* SPDX-License-Identifier: GPL-3.0-or-later */
/* State of the log and of its view in RocksDB. For the files of store/log alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "store/pack/pack.h"

struct engine_waiter;

/* All data that the log refers to up to `end` is durable in the packs; `marks` are the pack ends. */
struct packed {
	uint64_t end, since_ns;
	struct pack_marks marks;
};

/* Records that are not in the journal yet, and the commits of them. */
struct txlog {
	struct mutex lock; /* dropped during disk I/O */
	struct buf pending GUARDED_BY(lock);	/* records not yet in the journal */
	uint64_t end GUARDED_BY(lock);		/* bytes ever logged */
	uint64_t committed GUARDED_BY(lock);	/* durable part of `end` */
	uint64_t oldest_ns GUARDED_BY(lock);	/* arrival time of the oldest pending record */
	struct engine_waiter *waiters, **waiters_end GUARDED_BY(lock); /* sorted by target */
	unsigned nr_leaders GUARDED_BY(lock);	/* threads that run commits for all waiters */
	struct cond leader_cond;
	bool syncing_packs GUARDED_BY(lock);	/* a thread runs the first half of a commit */
	bool appending GUARDED_BY(lock);	/* a thread runs the second half */
	bool joins GUARDED_BY(lock);		/* the last commit was small enough to be a joint one */
	bool unconfirmed GUARDED_BY(lock);	/* the last group is that of a joint commit */
	struct packed packed GUARDED_BY(lock);	/* progress of the first half */
	int last_error GUARDED_BY(lock);	/* of the last commit */
	struct pack_marks marks GUARDED_BY(lock); /* of the last commit */
	uint64_t next_number, numbers_end GUARDED_BY(lock);
};

struct log_view {
	/* serializes writing the view out, by the background thread or a collection; before `lock` */
	struct mutex flush_lock;
	/*
	 * Shared: to change logged state. Exclusive: while the view is cut, which copies dirty recipes, and to start
	 * pointing new references to other copies (store/gc/repoint.h). Layer numbers and the frames of layers belong
	 * to a thread that holds it exclusively, or shared together with flush_lock.
	 */
	struct rwlock lock;
	/* lowest unused number; owned by the current writer of the view, see store/file/write_back.c */
	uint64_t next_layer;
};
