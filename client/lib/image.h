/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A directory of checkpoint files: DIR/NNNNNN, or DIR/NNNNNN/MEMBER. One process at a time writes them: it locks
 * DIR/.lock, or DIR/.MEMBER.lock, an empty file that is not removed.
 *
 * Writing a checkpoint. Only the order makes it safe:
 *   1. create .NAME.part as a clone of the last checkpoint     crash: a stray file; removed by image_dir_open()
 *   2. write changed pages, then table and header              crash: the same
 *   3. fsync                                                   crash: the same
 *   4. rename to NAME, sync the directory                      COMMIT POINT: before it nothing, after it everything
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/lib/image_format.h"

struct image_dir;

/* Creates `path` if it is missing. `member` may be NULL. -ENOTTY: `require` and not a ckptfs mount; -EBUSY: locked by
 * another process. */
int image_dir_open(const char *path, const char *member, bool require, struct image_dir **ret);
void image_dir_close(struct image_dir *d); /* NULL is fine */
const char *image_dir_path(const struct image_dir *d);
unsigned image_dir_clone_kind(const struct image_dir *d); /* enum ckptfs_clone_kind, as found so far */

/* The highest existing number; 0: none. */
int image_dir_highest(struct image_dir *d, uint32_t *ret);
/* The highest existing number below `below`, valid or not; 0: none. `sealed`: sealed checkpoints only. */
int image_dir_next_below(struct image_dir *d, uint32_t below, bool sealed, uint32_t *ret);

/* Opens a valid image for reading and reads its table. The caller closes and releases. -ENOENT, -EBADMSG, -EOPNOTSUPP;
 * with `quiet` logged as a warning only. */
int image_open(struct image_dir *d, uint32_t number, bool quiet, struct image_header *ret, struct buf *ret_table);

/* Creates the file that becomes checkpoint `number` as a clone of `parent` (0: empty). Returns a descriptor for
 * writing. -ESTALE: the parent does not exist any more. */
int image_stage(struct image_dir *d, uint32_t number, uint32_t parent);
/* Makes the file durable and visible, and closes it. On error it is removed. */
int image_commit(struct image_dir *d, uint32_t number, int fd);
void image_abandon(struct image_dir *d, uint32_t number, int fd);
/* Removes all but the newest `keep`. Failures are logged. */
void image_dir_prune(struct image_dir *d, uint32_t keep);
