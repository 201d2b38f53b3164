/*
 * Which sealed directories have been compacted in the background, so that a mount goes on where the last one was. A
 * note in the view, 'M' "compacted"; docs/format.md section 5 changes with this. Nothing depends on it: without it they
 * are looked at once more. Belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct engine;

#define COMPACTED_MAX 65536u /* then the one that was sealed longest ago goes */

struct compacted_dir {
	uint64_t ino;
	uint64_t sealed_ns; /* one that was unsealed and sealed again is another one */
	bool seen; /* compacted_has() was asked of it; not in the note */
};

/* All zeros at first. */
struct compacted {
	struct compacted_dir *v; /* by ino */
	size_t nr, room;
};

void compacted_release(struct compacted *c);
bool compacted_has(struct compacted *c, uint64_t ino, uint64_t sealed_ns);
int compacted_add(struct compacted *c, uint64_t ino, uint64_t sealed_ns); /* -ENOMEM */
/* Those that nobody has asked about since the last call are sealed no more, and go. */
void compacted_drop_unseen(struct compacted *c);

void compacted_encode(const struct compacted *c, struct buf *ret); /* buf_error() tells of -ENOMEM */
int compacted_decode(const void *p, size_t len, struct compacted *ret); /* -EBADMSG, -ENOMEM */

int compacted_load(struct engine *e, struct compacted *ret); /* what cannot be read begins anew */
int compacted_save(struct engine *e, const struct compacted *c);
