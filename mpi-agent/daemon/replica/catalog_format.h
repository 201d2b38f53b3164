/*
 * A catalog: a sealed directory told as bytes, for whoever has the same cluster's key and wants to make it anew: every
 * name with its attributes, and each file as the fingerprints of its chunks. docs/format.md changes with this.
 *
 *   head, then records one after the other, each: type (1), varint length of what follows, at most CATALOG_RECORD_MAX
 *     INODE   directory, name, attributes; a link's target, a file's size. The first is the sealed directory, without a
 *             name; others come behind the directory they lie in
 *     LINK    directory, name, and the file that has it, too
 *     XATTR   of the inode before
 *     PIECES  of the file before: one behind the other up to its size, in as many records as it takes
 *     END     how many INODEs and LINKs, and a checksum
 * Directories are known by their number, in order, from 0; all else that an INODE tells likewise: as a file.
 *
 * Records are small, so that neither who writes nor who reads one needs memory for all of it. There is one way to write
 * each record. Decoding trusts nothing: -EBADMSG.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"
#include "index/namespace.h"
#include "store/engine/cluster.h"

#define CATALOG_MAGIC "CKPTCAT\n"
#define CATALOG_VERSION 1u
#define CATALOG_RECORD_MAX (128u << 10)
#define CATALOG_PIECES_MAX 1024u /* of a record; each takes up to 33 bytes */
#define CATALOG_VALUE_MAX 65536u /* of an extended attribute */
#define CATALOG_TARGET_MAX 4095u

struct catalog_head_disk {
	uint8_t magic[8];
	struct le32 version, incompat; /* unknown bits: refuse */
	uint8_t store[CLUSTER_ID_LEN];
	struct le64 ino, sealed_ns;
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct catalog_head_disk) == 56, "in a catalog");

enum catalog_type {
	CATALOG_HEAD = 0, /* is no record */
	CATALOG_INODE = 1,
	CATALOG_LINK = 2,
	CATALOG_XATTR = 3,
	CATALOG_PIECES = 4,
	CATALOG_END = 5,
};

struct catalog_head {
	uint8_t store[CLUSTER_ID_LEN]; /* the node's */
	uint64_t ino;
	int64_t sealed_ns;
};

/* One record. What is pointed to is borrowed from the bytes, or from who encodes. */
struct catalog_record {
	enum catalog_type type;
	struct catalog_head head;
	uint64_t dir; /* INODE, LINK: the number of the directory that it lies in */
	char name[NS_NAME_MAX + 1]; /* and XATTR; of the first INODE "" */
	struct ns_inode in; /* INODE: mode, uid, gid, rdev, times */
	uint64_t size; /* of a file */
	const void *data; /* a link's target, an attribute's value, pieces */
	size_t len; /* of data */
	uint64_t file; /* LINK: the number of the file */
};

/* --- encoding --- */

struct catalog_writer {
	uint64_t nr_entries;
	uint32_t crc;
};
/* Each appends to *ret, from which it can be taken at any time. Records in the order above; the writer, zeros at first,
 * goes with all of them. */
void catalog_head_encode(const struct catalog_head *h, struct buf *ret);
/* all but END */
void catalog_record_encode(struct catalog_writer *w, const struct catalog_record *rec, struct buf *ret);
void catalog_end_encode(struct catalog_writer *w, struct buf *ret);
/* For a record's `data`. */
void catalog_piece_encode(const struct cluster_piece *p, struct buf *ret);

/* --- decoding --- */

/* Zeros at first. */
struct catalog_reader {
	bool has_head, at_end, has_inode;
	uint64_t nr_dirs, nr_files, nr_entries;
	uint64_t left; /* bytes of the file before that pieces are to tell of */
	uint32_t crc;
};
/*
 * The next of a catalog of which `len` bytes, or all that are left, are at `p`: 1, and *ret_used of them were it; 0:
 * more bytes are needed (a head and a record always fit into CATALOG_RECORD_MAX + 16), or with at_end that was all.
 */
int catalog_reader_next(struct catalog_reader *r, const void *p, size_t len, size_t *ret_used,
			struct catalog_record *ret);
/* Those of a record that has been read: 1/0 */
int catalog_piece_next(struct cursor *c, struct cluster_piece *ret);
