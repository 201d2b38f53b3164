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

#define COMPACTED_MAX 65536u /* beyond this the directory that was sealed first is dropped */

struct compacted_dir {
	uint64_t ino; /* first: search_u64() */
	uint64_t sealed_ns; /* a directory that was unsealed and sealed again is a different one */
	bool seen; /* looked up by compacted_has(); not stored */
};

/* Initially all zeros. */
struct compacted {
	struct compacted_dir *v; /* sorted by ino */
	size_t nr, room;
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
