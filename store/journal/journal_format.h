/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The bytes of the journal's files. docs/format.md, "Journal", changes with this.
 *
 * Every file is a header block of 512 bytes followed by groups, each a multiple of 512 bytes: a header, a payload,
 * zeros. Both checksums of a group are in its header, and that of the header covers that of the payload, so a group is
 * accepted completely, padding included, or not at all. All decoders are pure functions of (bytes, length) and trust
 * nothing: -EBADMSG for damaged bytes, -EOPNOTSUPP for intact bytes of a later version.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "base/util.h"

#define JOURNAL_BLOCK 512u		/* written atomically by a disk; groups start at multiples of it */
#define JOURNAL_PAYLOAD_MAX MiB(256)	/* a longer payload is damage, not a commit */
#define JOURNAL_VERSION 1u
#define JOURNAL_ID_LEN 16

#define JOURNAL_LOG_MAGIC "ckptjlog"
#define JOURNAL_SNAP_MAGIC "ckptsnap"
#define JOURNAL_GROUP_MAGIC "ckjg"

/* Unknown bit in `incompat`: refuse; in `compat`: ignore. */
struct journal_file_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat, reserved;
	uint8_t store_id[JOURNAL_ID_LEN];
	struct le64 number; /* .log: first group; .snap: last commit included */
	uint8_t zero[460];
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct journal_file_disk) == JOURNAL_BLOCK && offsetof(struct journal_file_disk, crc32c) == 508,
	      "on disk");

enum journal_group_flags {
	JOURNAL_GROUP_SNAPSHOT = 1 << 0, /* part of a snapshot and not a commit */
	JOURNAL_GROUP_LAST = 1 << 1,	 /* the last part of the snapshot */
	JOURNAL_GROUP_ZSTD = 1 << 2,	 /* the payload is one zstd frame */
	JOURNAL_GROUP_JOINT = 1 << 3,	 /* synced together with what it depends on: see journal_append_joint() */
};

struct journal_group_disk {
	uint8_t magic[4];
	struct le16 version, flags;
	struct le64 number;
	uint8_t store_id[JOURNAL_ID_LEN];
	struct le32 part;	 /* snapshot: from 0, without gaps; commit: 0 */
	struct le32 payload_len; /* bytes of records, or of the zstd frame */
	struct le64 nr_records;	 /* snapshot: records in this part and all before it; commit: 0 */
	struct le32 records_len; /* compressed: bytes of records, more than payload_len; else ignored */
	struct le32 reserved;
	struct le32 payload_crc32c; /* over the payload and the zeros after it */
	struct le32 crc32c;	    /* over all bytes before it */
};
static_assert(sizeof(struct journal_group_disk) == 64 && offsetof(struct journal_group_disk, crc32c) == 60, "on disk");

enum journal_file_kind { JOURNAL_LOG, JOURNAL_SNAP };

struct journal_file {
	enum journal_file_kind kind;
	uint8_t store_id[JOURNAL_ID_LEN];
	uint64_t number; /* never 0 */
};

void journal_file_encode(const struct journal_file *f, struct journal_file_disk *ret);
int journal_file_decode(const void *p, size_t len, struct journal_file *ret);

struct journal_group {
	uint64_t number; /* never 0 */
	uint8_t store_id[JOURNAL_ID_LEN];
	uint16_t flags;
	uint32_t part;
	uint32_t payload_len; /* on disk */
	uint32_t records_len; /* equal to payload_len if uncompressed */
	uint64_t nr_records;
	uint32_t payload_crc;
};

/* Bytes of a group on disk. */
static inline uint64_t journal_group_bytes(uint64_t payload_len)
{
	return round_up(sizeof(struct journal_group_disk) + payload_len, JOURNAL_BLOCK);
}

/* Encode the header for `payload` and set the payload fields of `g`, except records_len of a compressed payload. The
 * caller writes zeros after the payload. */
void journal_group_encode(struct journal_group *g, const void *payload, size_t len, struct journal_group_disk *ret);
/* The header alone: 64 bytes are enough. */
int journal_group_header_decode(const void *p, size_t len, struct journal_group *ret);
/* The whole group; the payload is borrowed from `p`. -EBADMSG also if `len` does not hold all of it. */
int journal_group_decode(const void *p, size_t len, struct journal_group *ret, const void **ret_payload);
/* Decompress a payload to g->records_len bytes of records. -EBADMSG: not a frame of that length. */
int journal_payload_decompress(const struct journal_group *g, const void *payload, void *ret);
