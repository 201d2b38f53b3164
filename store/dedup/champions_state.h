/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The previous versions of a file (champions), and what is known about them. For champions.c and shifted.c alone. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "store/engine.h"

struct shifted_map;

struct champion {
	struct content *c; /* holds a reference */
	bool is_useful; /* a lookup in it has succeeded */
	unsigned nr_useless; /* lookups without a match, while not yet useful */
};

/* Where moved bytes were last found: shifted.c. */
struct shift_hint {
	uint64_t ino; /* of the champion; 0: none */
	uint64_t at, from; /* the file's bytes before `at` equal those before `from` in the champion */
	unsigned nr_found, nr_vain; /* jobs with matches; jobs without matches since the last one */
	uint64_t vain_bytes; /* total bytes searched without a match */
};

struct champions {
	struct content *of; /* the file, which has this object; constant */
	struct mutex lock; /* before file_table.lock, after map_lock of another file */
	struct champion v[CHAMPIONS_MAX] GUARDED_BY(lock); /* in lookup order */
	unsigned nr GUARDED_BY(lock);
	unsigned nr_lookups GUARDED_BY(lock);
	struct shift_hint shift GUARDED_BY(lock);
	/* --- of the file as a champion itself --- */
	_Atomic unsigned nr_challengers; /* files that have it as a champion */
	/* Before the lock of any file; taken with no lock held. The first thread reads the file under it to build the map:
	 * the others need the same map. */
	struct mutex map_lock;
	struct shifted_map *map GUARDED_BY(map_lock); /* index of its bytes; NULL: not built yet */
};
