/*
 * The files of a directory of checkpoints: DIR/NNNNNN, or DIR/NNNNNN/MEMBER. One process at a time makes them: it has a
 * lock on DIR/.lock, or DIR/.MEMBER.lock, an empty file that stays.
 *
 * A checkpoint becomes a file like this; only the order makes it safe:
 *   1. .NAME.part is made, and is a clone of the last one      crash: that, which the next image_dir_open() removes
 *   2. what has changed is written, then table and header       crash: the same
 *   3. fsync                                                    crash: the same
 *   4. rename to NAME, sync the directory                        COMMIT POINT: before it nothing, after it everything
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/image_format.h"

struct image_dir;

/* Makes `path` if it is not there. `member` may be NULL. -ENOTTY: `require` and not a ckptfs mount; -EBUSY: another
 * process has it. */
int image_dir_open(const char *path, const char *member, bool require, struct image_dir **ret);
void image_dir_close(struct image_dir *d); /* NULL is fine */
const char *image_dir_path(const struct image_dir *d);
unsigned image_dir_clone_kind(const struct image_dir *d); /* enum ckptfs_clone_kind, as far as is known */

/* The highest number that is there at all; 0: none. */
int image_dir_highest(struct image_dir *d, uint32_t *ret);
/* The highest number below `below` that is there, complete or not. 0: none. `sealed`: of those that are sealed. */
int image_dir_next_below(struct image_dir *d, uint32_t below, bool sealed, uint32_t *ret);

/* An image that is valid, open for reading, with its table. Caller closes and releases. -ENOENT, -EBADMSG, -EOPNOTSUPP:
 * logged unless `quiet`. */
int image_open(struct image_dir *d, uint32_t number, bool quiet, struct image_header *ret, struct buf *ret_table);

/* A file to become checkpoint `number`: a clone of `parent` (0: empty), open for writing. Returns the descriptor.
 * -ESTALE: the parent is gone. */
int image_stage(struct image_dir *d, uint32_t number, uint32_t parent);
/* It is complete. Closes it. -errno: it is not, and gone. */
int image_commit(struct image_dir *d, uint32_t number, int fd);
void image_abandon(struct image_dir *d, uint32_t number, int fd);
/* Removes the oldest, so that `keep` are left. Failures are logged. */
void image_dir_prune(struct image_dir *d, uint32_t keep);
