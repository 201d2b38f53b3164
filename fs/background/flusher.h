/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Flushes sealed checkpoints to a tier beneath the store (tier=). Users take turns (fs/background/flush_queue.h).
 *
 *	CONNECTING ── opened, probed ──▶ IDLE ── a directory is sealed ──▶ FLUSHING ── manifest is put ──▶ IDLE
 *	    ▲  └─────────── failed ──────┐                                    │
 *	    └── some time ── RETRYING ◀──┴────────────── failed ──────────────┘
 *	Probe failed, or another machine writes for this store: STOPPED until the next mount.
 *
 * The manifests in the tier are the list of flushed checkpoints: after a restart the flusher continues with the missing
 * ones. One thread chooses the next checkpoint and reads it from the store. Another one (store/tier/tier_worker.h)
 * calls the back end. No request of a program waits for either. If the tier does not answer at an unmount, the second
 * thread is left behind.
 *
 * A flush of a directory that is unsealed or removed meanwhile is abandoned. A directory that cannot be read, for
 * example because it is damaged, is retried later, after the others.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct flusher;
struct fs;

struct flusher_conf {
	const char *url, *config_file; /* copied; the latter of tier_open(), or NULL */
	uint64_t rate; /* bytes per second sent; 0: no limit */
	uint64_t memory; /* for fingerprints of chunks in the tier */
	unsigned parallel; /* requests in flight; 0: defaults */
	bool takes_over; /* continue behind manifests that another machine has put for this store */
};

enum flusher_state { FLUSHER_CONNECTING, FLUSHER_IDLE, FLUSHER_FLUSHING, FLUSHER_RETRYING, FLUSHER_STOPPED };

#define FLUSHER_REASON_MAX 256
struct flusher_status {
	enum flusher_state state;
	int error; /* of RETRYING and STOPPED, negative; of others, if a checkpoint cannot be read */
	char reason[FLUSHER_REASON_MAX]; /* why checkpoints are not flushed, without paths; "": no problem */
	/* Own sealed directories, except those removed from the tier by retention; those known to be in the tier. */
	uint64_t nr_sealed, nr_in_tier;
	uint64_t nr_dropped; /* sealed directories whose bytes were dropped here */
	bool is_known; /* the tier was listed since the mount */
	uint64_t waiting_bytes; /* of files of the missing directories, without flushed bytes */
	uint64_t left_ns; /* for waiting_bytes, at the mean rate; 0: unknown */
	uint64_t waiting_since_ns; /* time of the oldest seal that is not in the tier; 0: none */
	uint64_t nr_flushed, nr_failures; /* since the mount, as below */
	uint64_t sent_bytes, sent_chunks, nr_packs; /* put: with tables and manifests */
};

/* One sealed directory. */
struct flusher_checkpoint {
	bool is_in_tier;
	bool is_removed; /* from the tier, by retention there: it is not flushed again */
	uint64_t bytes, flushed_bytes; /* of its files */
	uint64_t left_ns; /* with the directories flushed before it; 0: unknown */
	int error; /* of the last attempt to read it; 0: none */
};

/* Starts no thread and sends no request. */
int flusher_new(struct fs *fs, const struct flusher_conf *conf, struct flusher **ret);
int flusher_start(struct flusher *f); /* NULL is fine, here and below: there is no tier */
/* Stops within some seconds. false: a thread that waits for the tier was left behind; end with _exit(2). */
bool flusher_stop(struct flusher *f);
void flusher_free(struct flusher *f); /* once nothing seals any more */

void flusher_wake(struct flusher *f); /* a directory was sealed, unsealed or removed. Returns at once; any locks */
const char *flusher_where(const struct flusher *f); /* "dir:/lustre/me/ckpt" */
const char *flusher_state_name(enum flusher_state state);
/* Takes time proportional to the number of seals. Counts all that were sealed before. */
void flusher_status(struct flusher *f, struct flusher_status *ret);
/*
 * Requests a read of the tier's log, which records the checkpoints that collections have removed. *check is UINT64_MAX
 * in the first call, and is updated for further ones. false: the log has been read, or cannot be read now.
 */
bool flusher_check(struct flusher *f, uint64_t *check);
/* -ENODATA: not sealed. Waits for nothing. */
int flusher_find(struct flusher *f, uint64_t ino, struct flusher_checkpoint *ret);
