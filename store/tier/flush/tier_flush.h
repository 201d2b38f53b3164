/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Flushing sealed checkpoints to a tier. A writer does so for one store; chunks that it has found in the tier are not
 * sent again.
 *
 * A writer belongs to one thread, which waits for the back end: none that serves requests of programs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "store/tier/tier_format.h"

struct tier;
struct tier_writer;

struct tier_writer_conf {
	struct tier_key key; /* of the store's fingerprints */
	uint8_t store[TIER_ID_LEN];
	uint64_t pack_bytes; /* stored bytes after which a pack is full; 0: 64 MiB */
	unsigned packs_in_flight; /* up to TIER_PARALLEL_MAX; each takes memory for a pack; 0: 4 */
	/* Chunks of the tier to remember, 43 to 110 bytes of memory each; 0: 16 Mi. Beyond this, the least recently used
	 * ones are dropped, and sent again when needed. */
	uint64_t known_max;
	uint64_t manifest_max; /* bytes; 0: TIER_MANIFEST_MAX */
	/*
	 * With a store: an index in it (store/tier/index) has the chunks that are not in memory, so own chunks are not
	 * sent again. It takes up to 16 bytes more for each of known_max chunks. The descriptor is borrowed.
	 */
	bool has_store;
	int store_dirfd;
};

/*
 * Opens the index, if there is one. Puts the key, and reads the manifests of stores with this key, first those of the
 * own store, the last ones first, until known_max chunks are known. Later flushes of other stores are read when a flush
 * begins. Memory: the known chunks, packs_in_flight + 1 packs, and one manifest.
 */
int tier_writer_open(struct tier *t, const struct tier_writer_conf *conf, struct tier_writer **ret);
void tier_writer_close(struct tier_writer *w); /* NULL is fine */
void tier_writer_closep(struct tier_writer **w);

/*
 * Reads the entries that were appended to the log of the tier: one request, if there are none. A transient failure
 * leaves the writer usable.
 */
int tier_writer_follow(struct tier_writer *w);
uint64_t tier_writer_generation(const struct tier_writer *w); /* the last one that was read; 0: none */

/* A manifest of this store in the tier. */
struct tier_written {
	uint64_t number; /* 0: no manifest */
	uint64_t ino; /* 0: the manifest is damaged, or of a newer version */
	int64_t sealed_ns;
	bool lacks_packs; /* some were missing or damaged when the writer was opened: it does not count as flushed */
};
/*
 * Returns the manifest with the largest number, also if retention has removed it. A caller that has saved the number of
 * its last manifest detects whether another machine has put later ones.
 */
void tier_writer_last(const struct tier_writer *w, struct tier_written *ret);
/* Is this seal in the tier? Takes time proportional to the number of seals in it. */
bool tier_writer_has(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns);
/* Has retention removed this seal from the tier? It is not in the tier, and should not be flushed again. */
bool tier_writer_was_removed(const struct tier_writer *w, uint64_t ino, int64_t sealed_ns);

/* Receives the bytes of a catalog in order, whole records. A negative result ends it. */
struct tier_sink {
	int (*put)(void *userdata, const void *p, size_t len);
	void *userdata;
};
/* A chunk, and where its bytes go. */
struct tier_want {
	struct fp fp;
	uint32_t len;
	void *buf;
};

/* A sealed directory of the store, which does not change meanwhile. */
struct tier_checkpoint {
	uint64_t ino;
	int64_t sealed_ns;
	uint8_t root[SHA256_LEN];
	uint64_t files, directories, bytes;
	const char *path; /* from the root of the store */
	/* Writes its catalog (store/catalog) to the sink. */
	int (*catalog)(void *userdata, const struct tier_sink *to);
	/* Reads chunks of the record that the sink has received last. They need not be checked. */
	int (*read)(void *userdata, const struct tier_want *wants, size_t nr);
	/* Waits until the chunks of the last read() are in memory. NULL: read() itself waits. */
	int (*await)(void *userdata);
	void *userdata;
};
struct tier_flushed {
	uint64_t number; /* of its manifest */
	uint64_t chunks, chunk_bytes; /* sent */
	uint64_t packs, bytes; /* put, with tables and manifest */
	bool was_there; /* a manifest of this seal existed */
};
/*
 * Durable in the tier on success. If the checkpoint could not be read, or memory was short, the writer forgets what
 * this flush has put, and may be used again. After a failure of the tier it flushes no more (-ESTALE) and is closed; a
 * new one continues with what is there: see tier_writer_has_failed(). -ESTALE is also returned if a collection has
 * deleted packs that the flush needed: a new writer sends their chunks again. -ENOENT: the key, the last manifest or
 * packs of earlier flushes were deleted from the tier, so the manifest was not put, and others may be incomplete.
 * -EEXIST: something that is not an object has the name of the manifest. -EFBIG: the manifest would be too large; the
 * flush fails as soon as this is known. -ENOTUNIQ: another machine has put a manifest for this store. Then no new
 * writer must be opened until an administrator has decided which machine goes on: it would continue with the next
 * number, and both would commit in turn.
 */
int tier_flush(struct tier_writer *w, const struct tier_checkpoint *c, struct tier_flushed *ret);
/*
 * After a flush, successful or not: writes its chunks to the index, and releases memory. Nothing depends on it, so a flush
 * need not wait for it; closing the writer does it, too.
 */
void tier_writer_save(struct tier_writer *w);
/* Has the tier failed in a flush? Then the writer is to be closed. */
bool tier_writer_has_failed(const struct tier_writer *w);
