/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A checkpoint of a process's memory, as a file. docs/format.md ("Images of memory") changes with this.
 *
 *   header    the first page: magic, and the place of the table
 *   regions   each starts in a page of its own, at the same offset within the page as in memory; bytes between regions
 *             are undefined
 *   table     behind all regions: their names, places and addresses; it ends with the file
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"

#define IMAGE_MAGIC "ckptIMAG"
#define IMAGE_VERSION 1u
#define IMAGE_INCOMPAT_KNOWN 0u
#define IMAGE_NAME_MAX 255u
#define IMAGE_TABLE_MAX (UINT64_C(1) << 30)

/* Followed by zeros up to the page size. Unknown bit in `incompat`: refuse; in `compat`: ignore. */
struct image_header_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat, page_size;
	struct le64 number; /* of the checkpoint */
	struct le64 table_off, table_len; /* of the file; table_off is a multiple of page_size */
	struct le32 nr_regions, table_crc32c;
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct image_header_disk) == 64 && offsetof(struct image_header_disk, crc32c) == 60, "on disk");

#define IMAGE_REGION_OURS 1u /* from ckptfs_malloc(), or captured: whole pages, restorable at their address */

/* Sorted by `off`, without overlap. Followed by the name. */
struct image_region_disk {
	struct le64 off; /* of its first byte in the file */
	struct le64 len;
	struct le64 address; /* in the process; equal to off modulo page_size */
	struct le32 flags, name_len;
};
static_assert(sizeof(struct image_region_disk) == 32, "on disk");

struct image_header {
	uint32_t page_size;
	uint64_t number;
	uint64_t table_off, table_len;
	uint32_t nr_regions, table_crc;
};

struct image_region {
	uint64_t off, len, address;
	uint32_t flags;
	uint32_t name_len; /* 1 to IMAGE_NAME_MAX, no NUL in it */
	const char *name; /* without a NUL; borrowed from the table */
};

/* Appends to a table, by ascending `off`. */
void image_region_encode(struct buf *table, const struct image_region *region);
/* table_len, table_crc: of this table. */
void image_header_encode(const struct image_header *header, struct image_header_disk *ret);

/* -EBADMSG: not an image, or damaged; -EOPNOTSUPP: of a later version. On success the table is within the file and ends
 * with it. */
int image_header_decode(const void *p, size_t len, uint64_t file_len, struct image_header *ret);

/* Iterates over the regions, after checking that names are unique and places do not overlap. Borrows the table. */
struct image_iter {
	const struct image_header *header;
	struct cursor cursor;
	uint32_t left;
	uint64_t end; /* of the last region, as pages */
};
int image_table_decode(const struct image_header *header, const void *p, size_t len, struct image_iter *ret);
/* 1: a region; 0: the end. */
int image_next(struct image_iter *it, struct image_region *ret);
