/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The flusher. For its files alone:
 *   flusher.c             the thread, and the interface
 *   flusher_seals.c       the seals, compared with the tier
 *   flusher_tier.c        connecting, retrying, stopping; reading the log of the tier
 *   flusher_checkpoint.c  flushing a directory
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "fs/background/flush_note.h"
#include "fs/background/flush_queue.h"
#include "fs/background/flusher.h"
#include "store/tier/tier_worker.h"

#define NS_PER_S UINT64_C(1000000000)

struct flusher {
	struct fs *fs; /* constant, as the fields up to the lock */
	char *url, *config_file;
	struct flusher_conf conf;
	struct tier_writer_conf writer;
	struct io_rate *rate; /* NULL: no limit */
	pthread_t thread;
	bool has_thread; /* used by the thread that starts and stops the flusher */

	/* Of the thread. */
	bool is_probed;
	bool has_note;
	struct flush_note note;
	uint64_t number; /* of the last manifest of this store in the tier */
	uint64_t generation; /* of the tier, with which the seals were compared */
	uint64_t checked_ns; /* monotonic: when the log of the tier was read last */
	uint64_t repeated_bytes; /* on this connection, and counted for the rate */
	uint64_t delay_ns;
	unsigned nr_taken;

	struct mutex lock; /* outside that of the worker */
	struct cond changed;
	struct tier_worker *worker GUARDED_BY(lock); /* set by the thread; NULL: not connected */
	bool stop GUARDED_BY(lock), left_behind GUARDED_BY(lock);
	struct flusher_status status GUARDED_BY(lock); /* without sums over the queue */
	struct flush_queue queue GUARDED_BY(lock);
	uint64_t nr_changes GUARDED_BY(lock); /* of seals */
	uint64_t nr_listed GUARDED_BY(lock); /* nr_changes when the seals in the queue were listed */
	uint64_t nr_seen GUARDED_BY(lock); /* nr_changes at the last list of the thread; others list, too */
	/* Counters of reads of the tier's log, for flusher_check(): begun; ended, with the seals updated; requested. */
	uint64_t check_begun GUARDED_BY(lock), check_done GUARDED_BY(lock), check_wanted GUARDED_BY(lock);
	uint64_t check_seen GUARDED_BY(lock); /* check_wanted when the thread last read it */
	uint64_t begun_ns GUARDED_BY(lock); /* monotonic: the flush of queue.current */
	uint64_t done_bytes GUARDED_BY(lock), done_ns GUARDED_BY(lock); /* flushed before it since the mount, and how long
									 * that took */
};

/* flusher.c */
bool flusher_is_running(void *flusher);
void flusher_set_state(struct flusher *f, enum flusher_state state, int error, const char *reason);
/* Waits until this time, a request to stop, a change of the seals or, while connected, a new request to read the log. */
void flusher_wait_until(struct flusher *f, uint64_t until);

/* flusher_seals.c */
void flusher_mark_uncompared(struct flusher *f) REQUIRES(f->lock); /* with the manifests in the tier */
/* Updates the queue from the store and, with an idle worker, from the manifests in the tier. Any thread. */
int flusher_update_seals(struct flusher *f, const struct tier_worker *idle);
int flusher_update_own_seals(struct flusher *f); /* the same, for the flusher's thread */
bool flusher_has_seal(struct flusher *f, uint64_t ino, int64_t sealed_ns);

/* flusher_tier.c. Called by the flusher's thread. */
extern const char flusher_another_machine[];
int flusher_connect(struct flusher *f); /* 1: connected; 0: not connected */
void flusher_disconnect(struct flusher *f);
/*
 * Disconnects, and waits before the next attempt. All users see `what`; only the log has `path`, if the failure is that
 * of a checkpoint: a directory above it may be private.
 */
void flusher_retry(struct flusher *f, int error, const char *what, const char *path, const char *reason);
void flusher_stop_flushing(struct flusher *f, int error, const char *reason); /* until the next mount */
/*
 * Reads the log, which records the checkpoints that a collection has removed. A failure changes nothing: the seals in
 * the tier were durable there, and the next flush reports the cause.
 */
void flusher_check_tier(struct flusher *f);

/* flusher_checkpoint.c */
void flusher_flush_seal(struct flusher *f, const struct flush_seal *s);
