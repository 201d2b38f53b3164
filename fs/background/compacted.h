/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The set of sealed directories that automatic recoding has finished, so that a mount continues where the last one
 * stopped. Stored as a note in the view, 'M' "compacted"; docs/format.md section 5 changes with this. Nothing depends
 * on it: without it, the directories are examined once more. Belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct engine;

/*
 * Beyond this, directories that were sealed before the ones in the set count as recoded. Else each one that is dropped
 * would be recoded again and drop the next: a user with as many sealed directories would keep the mount busy for ever.
 */
#define COMPACTED_MAX 65536u

struct compacted_dir {
	uint64_t ino; /* first: search_u64() */
	uint64_t sealed_ns; /* a directory that was unsealed and sealed again is a different one */
	bool seen; /* looked up by compacted_has(); not stored */
};

/* Initially all zeros. */
struct compacted {
	struct compacted_dir *v; /* sorted by ino */
	size_t nr, room;
	uint64_t dropped_ns; /* directories sealed until then count as recoded while the set is full; not stored */
};

void compacted_release(struct compacted *c);
bool compacted_has(struct compacted *c, uint64_t ino, uint64_t sealed_ns);
int compacted_add(struct compacted *c, uint64_t ino, uint64_t sealed_ns); /* -ENOMEM */
/* Drop the directories that were not looked up since the last call: they are no longer sealed. */
void compacted_drop_unseen(struct compacted *c);

void compacted_encode(const struct compacted *c, struct buf *ret); /* check buf_error() for -ENOMEM */
int compacted_decode(const void *p, size_t len, struct compacted *ret); /* -EBADMSG, -ENOMEM */

int compacted_load(struct engine *e, struct compacted *ret); /* an unreadable note is replaced by an empty set */
int compacted_save(struct engine *e, const struct compacted *c);
