/*
 * The threads of an analysis, one for each way of cutting: all work on the same piece while the next one is read.
 * All functions are for the thread that started them.
 */
#pragma once

#include <pthread.h>

#include "base/mutex.h"
#include "tools/analyze_cutting.h"

enum piece_kind { PIECE_BEGIN, PIECE_DATA, PIECE_ZEROS, PIECE_END, PIECE_FINISH };

struct piece {
	enum piece_kind kind;
	struct files *files; /* PIECE_BEGIN */
	uint32_t file;
	const uint8_t *window; /* PIECE_DATA: stays as it is until the piece after this one has been posted */
	uint64_t len;
};

struct crew {
	struct cutting_thread {
		struct crew *crew;
		struct cutting *cutting;
		size_t number;
		pthread_t thread;
	} member[NR_CUTTINGS_MAX];
	size_t nr;

	struct mutex lock; /* leaf; not held while a piece is worked on */
	struct cond posted, done;
	struct piece piece GUARDED_BY(lock);
	uint64_t nr_posted GUARDED_BY(lock);
	size_t nr_busy GUARDED_BY(lock); /* with the last one posted */
	int error GUARDED_BY(lock);	 /* the first */
};

/* Borrows the cuttings until crew_stop(). 0 or a negative errno: nothing to stop then. */
int crew_start(struct crew *crew, struct cutting *cutting, size_t nr);
/* Wait for the last piece, hand the next one out. The first error so far. */
int crew_post(struct crew *crew, struct piece piece);
/* Finish, wait and end the threads. The first error. */
int crew_stop(struct crew *crew);
