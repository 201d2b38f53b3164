/*
 * What the records of a journal group say. docs/format.md changes with this.
 *
 *   RECORD_MARKS       pack marks as of this commit; first record of every group
 *   RECORD_PUT         varint key length, key, value           a key of the view
 *   RECORD_DEL         key
 *   RECORD_DEL_PREFIX  prefix                                  all keys that start with it
 *   RECORD_DROP        varint inode                            its bytes, recipe and size are gone
 *   RECORD_REPLACE     struct replace                          a range of a file has new extents
 *
 * A replace says everything there is to say about bytes: a write (extents), a hole (none), a change of size or times
 * (an empty range). Ranges with extents are at most 1 MiB long. Replaying a record twice does no harm.
 */
#pragma once

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
};

struct replace {
	uint64_t ino;
	uint64_t size; /* of the file afterwards */
	int64_t mtime_ns, ctime_ns;
	uint64_t off, len;
	struct extent *x; /* offsets relative to off */
	size_t nr;
};

void replace_encode(const struct replace *rp, struct buf *ret);
/* Allocates ret->x (caller frees). -EBADMSG. */
int replace_decode(const void *p, size_t len, struct replace *ret);
void marks_encode(const struct pack_marks *m, struct buf *ret);
int marks_decode(const void *p, size_t len, struct pack_marks *ret);
