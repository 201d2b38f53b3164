/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sealed checkpoints as a store would hand them to a writer, and what a machine that has nothing reads of them. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/fp.h"
#include "store/tier/flush/tier_flush.h"

#define POOL 400u

/* Chunks of which files are made; several checkpoints share them. */
struct pool {
	struct fp_key key;
	struct chunk {
		struct fp fp;
		uint32_t len;
		uint8_t *bytes;
	} v[POOL];
	unsigned nr;
	bool returns_others; /* reads are wrong */
	int read_fails;
	bool reads_late; /* bytes are there only after await() */
};
void pool_init(struct pool *p, uint64_t seed, unsigned nr);
/* All of one length. */
void pool_init_pages(struct pool *p, uint64_t seed, unsigned nr);
void pool_release(struct pool *p);

struct checkpoint {
	struct tier_checkpoint c; /* for tier_flush() */
	struct pool *pool;
	struct buf catalog;
	uint64_t seed;
	int catalog_fails;
	size_t sent; /* of the catalog */
	const struct tier_want *late; /* being read; NULL: none */
	size_t nr_late;
};
/* Files of chunks number `from` to `to` of the pool, in some order, with holes and parts of chunks; links and
 * attributes. Its inode is `ino`. */
void checkpoint_init(struct checkpoint *c, struct pool *pool, uint64_t seed, uint64_t ino, unsigned from, unsigned to);
/* One file of these chunks in order. */
void checkpoint_init_file(struct checkpoint *c, struct pool *pool, uint64_t ino, const unsigned *chunks, unsigned nr);
/* Empty files, each with an attribute of `len` bytes. */
void checkpoint_init_attributes(struct checkpoint *c, struct pool *pool, uint64_t ino, unsigned nr, size_t len);
void checkpoint_release(struct checkpoint *c);

extern const struct tier_writer_conf checkpoint_writer; /* of small packs */

/* The manifest of this name is that of one of these checkpoints, and all of it is read. */
void checkpoint_check(struct tier *t, const char *name, const struct checkpoint *const *v, unsigned nr);
/* Every manifest in the tier is that of one of these checkpoints, and all of it is read. Returns their number. */
unsigned checkpoints_check(struct tier *t, const struct checkpoint *const *v, unsigned nr);
