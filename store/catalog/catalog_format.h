/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A catalog: a sealed directory encoded as bytes, from which a node with the same cluster key can recreate it. It
 * contains every name with its attributes, and each file as the fingerprints of its chunks. docs/format.md changes with
 * this.
 *
 *   header, then records, each: type (1), varint length of the payload, at most CATALOG_RECORD_MAX
 *     INODE   directory, name, attributes; a symlink's target, a file's size. The first is the sealed directory,
 *             without a name; others follow the directory that contains them
 *     LINK    directory, another name, and the file it refers to
 *     XATTR   of the preceding inode
 *     PIECES  of the preceding file: consecutive up to its size, in any number of records
 *     END     number of INODEs and LINKs, and a checksum
 * Directories are numbered in order from 0, and so are all other INODEs, as files.
 *
 * Records are small, so that neither writing nor reading a catalog needs memory for all of it. The encoding of each
 * record is unique. Decoding trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"
#include "index/namespace_table.h"
#include "store/engine.h"

#define CATALOG_MAGIC "CKPTCAT\n"
#define CATALOG_VERSION 1u
#define CATALOG_RECORD_MAX (128u << 10)
#define CATALOG_PIECES_MAX 1024u /* per record; each takes up to 33 bytes */
#define CATALOG_VALUE_MAX 65536u /* value of an extended attribute */
#define CATALOG_TARGET_MAX 4095u

struct catalog_head_disk {
	uint8_t magic[8];
	struct le32 version, incompat; /* unknown bits: refuse */
	uint8_t store[NS_STORE_ID_LEN];
	struct le64 ino, sealed_ns;
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct catalog_head_disk) == 56, "in a catalog");

enum catalog_type {
	CATALOG_HEAD = 0, /* not a record */
	CATALOG_INODE = 1,
	CATALOG_LINK = 2,
	CATALOG_XATTR = 3,
	CATALOG_PIECES = 4,
	CATALOG_END = 5,
};

struct catalog_head {
	uint8_t store[NS_STORE_ID_LEN]; /* id of the owning node */
	uint64_t ino;
	int64_t sealed_ns;
};

/* One record. Pointers are borrowed from the decoded bytes, or from the caller that encodes. */
struct catalog_record {
	enum catalog_type type;
	struct catalog_head head;
	uint64_t dir; /* INODE, LINK: number of the parent directory */
	char name[NS_NAME_MAX + 1]; /* also XATTR; "" in the first INODE */
	struct ns_inode in; /* INODE: mode, uid, gid, rdev, times */
	uint64_t size; /* of a file */
	const void *data; /* symlink target, attribute value, or pieces */
	size_t len; /* of data */
	uint64_t file; /* LINK: the number of the file */
};

/* --- encoding --- */

struct catalog_writer {
	uint64_t nr_entries;
	uint32_t crc;
};
/*
 * Each appends to *ret, which may be emptied at any time. Records come in the order above. The writer starts as zeros
 * and is passed to all calls.
 */
void catalog_head_encode(const struct catalog_head *h, struct buf *ret);
/* all but END */
void catalog_record_encode(struct catalog_writer *w, const struct catalog_record *rec, struct buf *ret);
void catalog_end_encode(struct catalog_writer *w, struct buf *ret);
/* Append to the `data` of a PIECES record. */
void catalog_piece_encode(const struct content_piece *p, struct buf *ret);

/* --- decoding --- */

/* Initialized with zeros. */
struct catalog_reader {
	bool is_without_pieces; /* set by the caller: files have none, and the checksum in END is not compared */
	bool has_head, at_end, has_inode;
	uint64_t nr_dirs, nr_files, nr_entries;
	uint64_t left; /* bytes of the preceding file not covered by pieces yet */
	uint32_t crc;
};
/*
 * Decode the next record from the `len` bytes at `p`, which are all the remaining ones or part of them. 1: decoded,
 * used *ret_used bytes; 0: needs more bytes (a header or record always fits into CATALOG_RECORD_MAX + 16), or with
 * at_end, complete.
 */
int catalog_reader_next(struct catalog_reader *r, const void *p, size_t len, size_t *ret_used,
			struct catalog_record *ret);
/* Iterate over the pieces of a decoded record: 1/0. */
int catalog_piece_next(struct cursor *c, struct content_piece *ret);
