/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Records of a journal group. docs/format.md changes with this.
 *
 *   RECORD_MARKS       pack marks as of this commit; first record of every group
 *   RECORD_PUT         varint key length, key, value           set a key of the view
 *   RECORD_DEL         key                                     delete a key
 *   RECORD_DEL_PREFIX  prefix                                  delete all keys with this prefix
 *   RECORD_DROP        varint inode                            delete its bytes, recipe and size
 *   RECORD_REPLACE     struct replace                          a range of a file has new extents
 *   RECORD_PATCH       struct replace                          the same, but bytes between the extents stay
 *   RECORD_CLONE       struct clone                            a range of a file has the extents of another range
 *   RECORD_FRAMES      struct pack_written, without marks      frames that were synced together with this group
 *
 * A replace can express every change of bytes: a write (extents), a hole (none), a change of size or times (an empty
 * range). Ranges with extents are at most 1 MiB long, and no range ends beyond CONTENT_MAX_SIZE. The other two are more
 * compact for files that have much in common. A clone stands for the extents that the other range has at this point of
 * the log: records are applied in order, each exactly once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "index/recipes.h"
#include "store/pack/pack.h"

struct buf;

enum record_type {
	RECORD_MARKS = 1,
	RECORD_PUT = 2,
	RECORD_DEL = 3,
	RECORD_DEL_PREFIX = 4,
	RECORD_DROP = 5,
	RECORD_REPLACE = 6,
	RECORD_PATCH = 7,
	RECORD_CLONE = 8,
	RECORD_FRAMES = 9,
};

/* far above any disk; sums of offsets and lengths stay far from overflow */
#define CONTENT_MAX_SIZE ((uint64_t)1 << 60)

struct replace {
	uint64_t ino;
	uint64_t size; /* new size of the file */
	int64_t mtime_ns, ctime_ns;
	uint64_t off, len;
	struct extent *x; /* offsets relative to off */
	size_t nr;
	/* a patch of one segment: the first extent starts and the last ends with the range; bytes between them stay */
	bool keeps;
};

#define CLONE_MAX (64u << 20) /* bytes of one record; bounds how long the files are locked */

struct clone {
	uint64_t ino;
	uint64_t size; /* new size of the file */
	int64_t mtime_ns, ctime_ns;
	uint64_t off, len;
	uint64_t from, from_off; /* source inode, possibly the same file, and the offset in it */
};

/* The caller records the type: RECORD_REPLACE or RECORD_PATCH. */
void replace_encode(const struct replace *rp, struct buf *ret);
/* `type` is RECORD_REPLACE or RECORD_PATCH. Allocates ret->x (caller frees). -EBADMSG. */
int replace_decode(enum record_type type, const void *p, size_t len, struct replace *ret);
void clone_encode(const struct clone *cl, struct buf *ret);
int clone_decode(const void *p, size_t len, struct clone *ret); /* -EBADMSG */
void marks_encode(const struct pack_marks *m, struct buf *ret);
int marks_decode(const void *p, size_t len, struct pack_marks *ret);
void frames_encode(const struct pack_written *w, struct buf *ret);
int frames_decode(const void *p, size_t len, struct pack_written *ret); /* -EBADMSG; leaves the marks alone */
