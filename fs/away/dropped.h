/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Sealed checkpoints whose bytes were dropped from this store, because the tier beneath it has them. They keep names,
 * inodes, attributes, sizes and roots; a read gets the bytes from the tier. Promises:
 *
 *   - Only checkpoints that the tier has are dropped. Their manifest was read back, and the root computed from it and
 *     from the tables of its packs is that of the seal.
 *   - The newest checkpoint of a user in a directory is never dropped.
 *   - At any moment, also after a crash, each file is read from here or from the tier, whole. A read returns the bytes
 *     that were sealed, or fails with EIO and a message: the record of a file has the digest of the manifest.
 *   - A tier that does not answer delays readers of dropped files only, for a limited time, and never an unmount.
 *   - A dropped checkpoint cannot be unsealed. To change its files, copy them.
 *
 * The tier's own retention may remove a checkpoint that was dropped here: the store does not hold it there. Its names
 * stay, reads fail with EIO, and ckptfs-stat reports it as removed from the tier.
 *
 * Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "index/namespace_table.h"

struct away;
struct away_file;
struct cred;
struct fs;
struct options;
struct tier_recall;
struct tier_waiter;

/* Sends no request, and starts no thread. Without a tier *ret is NULL, which is fine below: reads fail. */
int away_new(struct fs *fs, const struct options *o, struct away **ret);
/* Ends waiting reads. false: a thread that waits for the tier was left behind; away_free() then frees nothing. */
bool away_stop(struct away *a);
void away_free(struct away *a);

/* At mount: erase the bytes of files whose drop a crash has interrupted. Needs no tier. Logs failures. */
void away_finish_all(struct fs *fs);

/*
 * Read bytes of a file that is away, into `p`. Their number, at most 1 MiB; -EIO, with a message; -EINTR: cancelled;
 * -EINPROGRESS: they have to be read from the tier, and the caller must not wait. *state belongs to the open file:
 * initially NULL, freed by away_file_free().
 */
ssize_t away_read(struct fs *fs, uint64_t ino, struct away_file *_Atomic *state, void *p, size_t len, uint64_t off,
		  bool may_wait);
void away_file_free(struct away_file *f); /* NULL is fine */

/*
 * Drop the bytes of a sealed directory here. Allowed for root and the user that sealed it. -ENODATA: not sealed;
 * -ESTALE: sealed at another time than sealed_ns (0: any); -EALREADY: dropped before; -EOPNOTSUPP: the mount has no
 * tier, or the store belongs to a cluster; -EAGAIN: it is not in the tier; -EBUSY: it is the newest one, or is being
 * sealed or unsealed; -EBADMSG: what the tier has is not what was sealed; -EPERM; -EROFS; -EINTR, -EIO: some files may
 * be dropped, and the next call continues. Durable on success. Garbage collection frees the space.
 */
int away_drop(struct fs *fs, uint64_t dir, int64_t sealed_ns, const struct cred *cred);

/*
 * The root of a dropped checkpoint, from its manifest and tables in the tier. -EIO, -EINTR. It says nothing about the
 * names and attributes here, nor about the bytes of files that stayed here.
 */
int away_root(struct fs *fs, uint64_t dir, const struct ns_away *at, const struct ns_seal *seal,
	      uint8_t ret[NS_SEAL_ROOT_LEN]);

/* Is (part of) this sealed directory dropped? 1/0/<0. */
int away_is_dropped(struct fs *fs, uint64_t dir);

/* For the files of this folder. */
struct tier_recall *away_recall(struct away *a);
struct tier_waiter away_waiter(void); /* a request with a place: until it is cancelled */
const char *away_where(const struct away *a);
