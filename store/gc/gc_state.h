/* SPDX-License-Identifier: GPL-3.0-or-later */
/* State of garbage collection and of moves of chunks. For the files of store/gc alone. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mutex.h"
#include "index/freed.h"
#include "store/pack/pack.h"

struct gc_window;
struct move;

struct collector {
	_Atomic bool running; /* one collection at a time */
	/* Before all other locks. Held by a collection or a recoding, which wait for it; a background repair, a scrub that
	 * repairs a table, and pinning or releasing chunks for other nodes only try it. A release asks other nodes
	 * meanwhile, which take no lock of this one. */
	struct mutex lock;
	/* set with view_lock held exclusively; used under it or inside engine.users */
	struct gc_window *_Atomic window;
	struct mutex totals_lock; /* leaf */
	struct freed_totals totals GUARDED_BY(totals_lock);
	_Atomic bool any; /* chunks have been freed: check the freed table for each pack table read */
	_Atomic bool unpunched; /* moved chunks may not have been punched */

	struct {
		bool on; /* chunks may have two copies: absorb nothing; append_lock */
		/* marks of the note found at open; constant after loading, as are the other fields until `lock` is
		 * held */
		struct pack_marks marks;
		struct move *m; /* copies found */
		size_t nr, size;
	} moving;
	struct {
		const struct move *m; /* sorted; NULL: none */
		size_t nr;
	} repointed; /* view_lock: records entering the log are redirected to the new places of these */
};
