/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manifest of a version: the buffers in the file, and their places. It is at the end of the file, so that a file
 * with one buffer starts with its bytes, for readers without support for manifests. docs/format.md ("Versions of a
 * lineage") changes with this.
 *
 *   buffers    each at a multiple of DELTA_PAGE, zeros between them
 *   entries    from a multiple of DELTA_PAGE on
 *   footer     64 bytes
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/le.h"

#define MANIFEST_MAGIC "ckptMANI"
#define MANIFEST_VERSION 1u
#define MANIFEST_INCOMPAT_KNOWN 0u
#define MANIFEST_NAME_MAX 4095u
#define MANIFEST_LEN_MAX (UINT64_C(1) << 30) /* of all entries: far more than needed */

/* Followed by name and info, and zeros up to a multiple of 8. */
struct manifest_entry_disk {
	struct le64 off, len;
	struct le32 name_len, info_len;
};
static_assert(sizeof(struct manifest_entry_disk) == 24, "on disk");

struct manifest_footer_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat; /* unknown bit in incompat: refuse; in compat: ignore */
	struct le32 entries_crc32c;
	struct le64 off, nr; /* where the entries begin in the file, and how many there are */
	uint8_t reserved[20];
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct manifest_footer_disk) == 64, "on disk");
static_assert(offsetof(struct manifest_footer_disk, crc32c) == 60, "on disk");

struct manifest_entry {
	uint64_t off, len;
	const char *name; /* without a NUL */
	const void *info;
	uint32_t name_len, info_len;
};

/* Appends entries one by one, then the footer for all of them. `off`: where `ret` will begin in the file. */
void manifest_add(struct buf *ret, const struct manifest_entry *entry);
void manifest_end(struct buf *ret, uint64_t off, uint64_t nr);

struct manifest_footer {
	uint64_t off, nr;
	uint32_t entries_crc;
};

/* The last bytes of a file of `file_len`. Then there are file_len - off - sizeof(footer) bytes of entries, and these
 * fit. */
int manifest_footer_decode(const void *p, size_t len, uint64_t file_len, struct manifest_footer *ret);

/* Iterates over entries, after checking all of them. Borrows them. -EBADMSG: damaged or inconsistent. */
struct manifest_iter {
	struct cursor cursor;
	uint64_t nr;
};
int manifest_decode(const struct manifest_footer *footer, const void *p, size_t len, struct manifest_iter *ret);
/* 1: an entry; 0: the end. */
int manifest_next(struct manifest_iter *it, struct manifest_entry *ret);
