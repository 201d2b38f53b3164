/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The format of a delta object, from which the filesystem creates the next version of a lineage. The producer is a
 * process with a GPU. docs/format.md ("Delta objects") changes with this.
 *
 *   header     256 bytes
 *   payload    whole pages of first occurrences, if there are any from byte 4096 of the object on; then the rest of them;
 *              then literals; each in ascending order
 *   tables     FIRST, SHIFTED, LITERALS: sources of the content
 *
 * A page of the content that is entirely new is also a page of the object: the staging file stores it like any other
 * file would, and the new version can share it.
 *
 * FIRST lists chunks with bytes in the payload, SHIFTED chunks that some version has at another place, LITERALS byte
 * ranges (not chunks) that are in the payload. All else equals the parent at the same place, and is zero behind the
 * parent's end. Each table has the smallest encoding and is sorted by the place in the content; no place is listed
 * twice.
 *
 * All decoders are pure functions of (bytes, length) that trust nothing: -EBADMSG for damaged bytes and inconsistent
 * tables, -EOPNOTSUPP for intact bytes of a later version. They allocate nothing, and take time linear in the number of
 * bytes (times its logarithm).
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "gpu/format/leaf_hash.h"

#define DELTA_MAGIC "ckptDELT"
#define DELTA_VERSION 1u
#define DELTA_INCOMPAT_KNOWN 0u
#define DELTA_LINEAGE_LEN 16
#define DELTA_CHUNKS_MAX (UINT64_C(1) << 31) /* nodes of their tree have 32-bit numbers */
#define DELTA_NO_PARENT 0u
#define DELTA_PAGE 4096u

/*
 * Encodings of sets of chunks. Nodes are those of a complete binary tree over the chunks, padded to a power of two: the
 * root is 1, the children of k are 2k and 2k + 1. A node stands for all chunks below it.
 */
enum delta_encoding {
	DELTA_BITMAP = 1, /* a bit for each chunk of the content; FIRST only */
	DELTA_LIST = 2, /* chunks, one by one */
	DELTA_NODES = 3, /* nodes, as few as possible */
	DELTA_RUNS = 4, /* first chunk and count */
};

struct delta_header_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat; /* unknown bit in incompat: refuse; in compat: ignore */
	struct le32 chunk_len;
	uint8_t lineage[DELTA_LINEAGE_LEN];
	struct le32 number, parent;
	struct le64 content_len;
	uint8_t fingerprint[DIGEST_LEN]; /* content_hash_finish() of the whole content */
	struct le64 payload_len;
	uint8_t first_encoding, shifted_encoding, reserved0[6];
	struct le64 first_len, shifted_len, literals_len; /* bytes of the tables */
	struct le32 tables_crc32c; /* over all three */
	struct le64 pages_len; /* of the payload: whole pages, in bytes */
	uint8_t reserved[128];
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct delta_header_disk) == 256, "on the wire");
static_assert(offsetof(struct delta_header_disk, content_len) == 48, "on the wire");
static_assert(offsetof(struct delta_header_disk, first_len) == 88, "on the wire");
static_assert(offsetof(struct delta_header_disk, crc32c) == 252, "on the wire");

/* FIRST: DELTA_LIST and DELTA_NODES are plain le32. */
struct delta_run_disk {
	struct le32 chunk, count;
};
/* SHIFTED as DELTA_LIST and DELTA_NODES: to a chunk, or to the chunks of a node, from `src` of `version` on. */
struct delta_shifted_disk {
	struct le32 dst, version, src;
};
/* SHIFTED as DELTA_RUNS. */
struct delta_shifted_run_disk {
	struct le32 dst, count, version, src;
};
#define DELTA_SRC_REPEATED (UINT32_C(1) << 31) /* in `src` of a run: all are equal to that one chunk */
struct delta_literal_disk {
	struct le64 off, len;
};
static_assert(sizeof(struct delta_run_disk) == 8 && sizeof(struct delta_shifted_disk) == 12, "on the wire");
static_assert(sizeof(struct delta_shifted_run_disk) == 16 && sizeof(struct delta_literal_disk) == 16, "on the wire");

struct delta_header {
	uint32_t compat, chunk_len;
	uint8_t lineage[DELTA_LINEAGE_LEN];
	uint32_t number; /* of this version, never 0 */
	uint32_t parent; /* lower; DELTA_NO_PARENT: as if an empty one */
	uint64_t content_len;
	struct digest fingerprint;
	uint64_t payload_len, pages_len; /* the second is a part of the first */
	enum delta_encoding first_encoding, shifted_encoding;
	uint64_t first_len, shifted_len, literals_len;
	uint32_t tables_crc;
};

static inline uint64_t delta_nr_chunks(const struct delta_header *h)
{
	return (h->content_len >> __builtin_ctz(h->chunk_len)) + ((h->content_len & (h->chunk_len - 1)) != 0);
}

static inline uint64_t delta_payload_off(const struct delta_header *h)
{
	return h->pages_len > 0 ? DELTA_PAGE : sizeof(struct delta_header_disk);
}

static inline uint64_t delta_tables_off(const struct delta_header *h)
{
	return delta_payload_off(h) + h->payload_len;
}

static inline uint64_t delta_tables_len(const struct delta_header *h)
{
	return h->first_len + h->shifted_len + h->literals_len;
}

/* Bytes of the whole object; no sum of a decoded header overflows. */
static inline uint64_t delta_object_len(const struct delta_header *h)
{
	return delta_tables_off(h) + delta_tables_len(h);
}

void delta_header_encode(const struct delta_header *h, struct delta_header_disk *ret);
int delta_header_decode(const void *p, size_t len, struct delta_header *ret);

/* Tables that have been checked. Borrows them; the payload need not be in memory. */
struct delta_tables {
	struct delta_header header;
	const uint8_t *first, *shifted, *literals;
	uint64_t nr_chunks; /* delta_nr_chunks(), cached because it is a division */
};

/* `p`: the tables alone, delta_tables_len() bytes from delta_tables_off() of the object on. */
int delta_tables_decode(const struct delta_header *h, const void *p, size_t len, struct delta_tables *ret);

enum delta_kind {
	DELTA_FIRST, /* bytes of the payload */
	DELTA_SHIFTED, /* bytes of a version, perhaps of this one, then first occurrences */
	DELTA_REPEATED, /* the same chunk of a version again and again */
	DELTA_LITERAL, /* bytes of the payload */
};

struct delta_region {
	enum delta_kind kind;
	uint64_t off, len; /* in the content; len > 0 */
	uint64_t payload_off; /* DELTA_FIRST, DELTA_LITERAL: from the beginning of the payload */
	uint32_t version; /* DELTA_SHIFTED, DELTA_REPEATED: where from */
	uint64_t src_off;
};

/* Holds the next entry of each table, read ahead to join it with the one before. */
struct delta_run {
	uint32_t chunk, count;
};
struct delta_shift {
	uint32_t dst, count, version, src;
	bool repeated; /* `src` does not advance */
};
struct delta_iter {
	const struct delta_tables *t;
	uint64_t end; /* of the last region given */
	struct {
		uint64_t at; /* entry, or bit */
		uint64_t pages_off, rest_off; /* in the payload: of what comes next */
		uint64_t off, end; /* what is left of the stretch that was read last */
		struct delta_run next;
		int r;
	} first;
	struct {
		uint64_t at;
		struct delta_shift next;
		int r;
	} shifted;
	struct {
		uint64_t at, payload_off;
	} literals;
	struct {
		struct delta_region region;
		int r;
	} heads[3];
};

/*
 * Regions in ascending order; adjacent entries are joined, so runs encoded by delta_encode.h are returned unchanged,
 * whatever the encoding. A run of first occurrences may be returned as up to three regions, because its whole pages are
 * in another part of the payload than the bytes before and behind them. Borrows `t`; nothing to release. 1: a region;
 * 0: the end; -EBADMSG: never for decoded tables.
 */
struct delta_iter delta_iter(const struct delta_tables *t);
int delta_iter_next(struct delta_iter *it, struct delta_region *ret);

/* Appends `next`, which begins behind `run`, to it if one entry can represent both. */
bool delta_shift_join(struct delta_shift *run, const struct delta_shift *next);
/* Levels of the tree below the root. */
unsigned delta_tree_height(uint64_t nr_chunks);
