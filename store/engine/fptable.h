/*
 * Fingerprints in memory: open addressing, 24 bytes a slot, at most 7/8 full.
 *
 * Holds what RocksDB has not absorbed yet. Full fingerprints, so a hit needs no second look.
 * No lock inside: guarded by the engine's append lock.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/fp.h"

struct fptable_slot {
	struct fp fp;
	uint32_t pack; /* 0: free */
	uint32_t off;
};

struct fptable {
	struct fptable_slot *slots;
	size_t nr, size; /* used, slots (power of two) */
};

int fptable_init(struct fptable *t, size_t entries); /* room for that many before it grows */
void fptable_release(struct fptable *t);
/* The slot of fp, or NULL. Valid until the next insert or remove. */
struct fptable_slot *fptable_find(const struct fptable *t, struct fp fp);
void fptable_prefetch(const struct fptable *t, struct fp fp);
/* fp must be absent. Grows as needed; -ENOMEM leaves the table as it was. */
int fptable_insert(struct fptable *t, struct fp fp, struct addr a);
void fptable_remove(struct fptable *t, struct fp fp); /* absent is fine */
size_t fptable_memory(const struct fptable *t);
