/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The superblock: identity of a store and its fingerprint key. docs/format.md changes with this. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/le.h"

#define SUPERBLOCK_MAGIC "CKPTFS\r\n"
#define SUPERBLOCK_VERSION 1u
#define SUPERBLOCK_SIZE 4096u /* stored twice, back to back: without the key the store is lost */

/* Unknown bit in `incompat`: refuse; in `compat`: ignore. No bit has a meaning so far. */
#define SUPERBLOCK_INCOMPAT_KNOWN 0u

struct superblock_disk {
	uint8_t magic[8];
	struct le32 version, compat, incompat;
	struct le32 hash; /* enum fp_kind */
	uint8_t store_id[16];
	uint8_t secret[FP_KEY_LEN]; /* fingerprint key */
	struct le64 created_ns;
	struct le32 flags; /* SUPERBLOCK_CLUSTER, SUPERBLOCK_DOMAIN_KIND */
	uint8_t reserved[4092 - 84];
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct superblock_disk) == SUPERBLOCK_SIZE, "on disk");
static_assert(offsetof(struct superblock_disk, crc32c) == 4092, "on disk");

#define SUPERBLOCK_CLUSTER 1u /* the secret comes from a key file that other stores share */
#define SUPERBLOCK_DOMAIN_KIND 6u /* enum fp_domain_kind */
#define SUPERBLOCK_DOMAIN_SHIFT 1

struct superblock {
	enum fp_kind hash;
	uint8_t store_id[16];
	uint8_t secret[FP_KEY_LEN];
	uint64_t created_ns;
	uint32_t flags, incompat;
};

/* The scope within which chunks are shared: all, group or user. */
static inline enum fp_domain_kind superblock_domains(const struct superblock *sb)
{
	return (enum fp_domain_kind)((sb->flags & SUPERBLOCK_DOMAIN_KIND) >> SUPERBLOCK_DOMAIN_SHIFT);
}

/* -EBADMSG: not a superblock or damaged; -EOPNOTSUPP: another version or unknown features. */
int superblock_decode(const void *p, size_t len, struct superblock *ret);
void superblock_encode(const struct superblock *sb, struct superblock_disk *ret);
