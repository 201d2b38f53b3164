/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Deltas on the CPU: the same algorithm and objects as on a GPU, for tests and for machines without one.
 *
 * A record is the state that a process keeps for a lineage: the digests of its newest version, and a table of all known
 * chunks and their places. A checkpoint has two steps, since committing it to the filesystem may fail in between:
 *
 *        take ──▶ pending ──▶ commit: the newest version, which the next one is compared with
 *                       └───▶ abandon: as if it had never been taken
 *
 * A record belongs to one thread. Besides the table it takes 16.5 bytes per chunk of the newest version, twice that
 * while one is pending, and 16 bytes per changed chunk during a take.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/format/delta_encode.h"
#include "gpu/format/delta_format.h"
#include "gpu/format/leaf_hash.h"

struct buf;
struct delta_record;

enum delta_method {
	DELTA_METHOD_FULL, /* all bytes; needs no parent */
	DELTA_METHOD_BASIC, /* changed chunks, as a bitmap */
	DELTA_METHOD_LIST, /* each distinct chunk once, and where the others lie, chunk by chunk */
	DELTA_METHOD_TREE, /* the same as runs or nodes of a tree, whatever is smallest: never larger than any other */
};

struct delta_record_params {
	uint8_t key[LEAF_KEY_LEN]; /* random, of the lineage */
	uint8_t lineage[DELTA_LINEAGE_LEN];
	uint32_t chunk_len;
	/*
	 * Maximum bytes of the table, about 41 per chunk. If a version has more unknown chunks (counting duplicates)
	 * than fit, only the first of them are entered. If a committed version leaves less room than it has taken, or
	 * would have, entries that it does not have at their place are dropped. Deltas get larger then, never wrong.
	 */
	uint64_t table_limit;
};

/* -EINVAL: chunk_len is none. Copies `params`. */
int delta_record_new(const struct delta_record_params *params, struct delta_record **ret);
void delta_record_free(struct delta_record *rec); /* NULL is fine */

struct delta_take {
	enum delta_method method;
	uint32_t number; /* of the version: higher than any committed before */
	bool compare; /* bytes, where a chunk equals one of this buffer by its digest */
	/*
	 * Places, sorted and disjoint, that are sent as literals where they have changed, in whole chunks: on a GPU
	 * what the host has. Borrowed.
	 */
	const struct delta_span *literals;
	size_t nr_literals;
};

/*
 * Makes the object for the next version, `data`, in `ret`, which is replaced. -EBUSY: one is pending already; -EINVAL:
 * a number that is not higher, literals out of order or content of more than DELTA_CHUNKS_MAX chunks. After an error
 * nothing is pending.
 */
int delta_record_take(struct delta_record *rec, const void *data, size_t len, const struct delta_take *take,
		      struct buf *ret);
void delta_record_commit(struct delta_record *rec); /* what is pending */
void delta_record_abandon(struct delta_record *rec); /* what is pending, if anything */
/*
 * Removes a version that is being deleted from the record. If it was the newest, the next object has no parent. Not
 * while one is pending. Scans the table.
 */
void delta_record_forget(struct delta_record *rec, uint32_t number);
