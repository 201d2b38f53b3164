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

/* Unknown bit in `incompat`: refuse; in `compat`: ignore. */
#define SUPERBLOCK_RECIPES_2 1u /* recipes may have version 2 */
#define SUPERBLOCK_CLONES 2u	/* the journal may contain records of types 7 and 8 */
#define SUPERBLOCK_LAYERS 4u	/* recipes may refer to layers, in the view and in journal snapshots */
#define SUPERBLOCK_SHARES 8u	/* chunks listed in pack tables may be on other nodes */
#define SUPERBLOCK_SEALS 16u	/* directories may be sealed */
#define SUPERBLOCK_ROOTS 32u	/* notes of seals may have version 2 */
#define SUPERBLOCK_COPIES 64u	/* replicas of other nodes' sealed directories may exist */
#define SUPERBLOCK_STRIPES 128u	/* replicas may be stripes or have slots; replica notes may have version 2 */
#define SUPERBLOCK_CODED 256u	/* frames may be coded by data type */
#define SUPERBLOCK_DOMAINS 512u	/* fingerprints may be specific to a domain */
#define SUPERBLOCK_BASES 1024u	/* coded blocks may have a base in their frame */
#define SUPERBLOCK_LET_GO 2048u	/* chunks of compressed frames may be remote; replica notes may have state 3 */
#define SUPERBLOCK_LEVELS 4096u	/* coded blocks may be split by levels, with those of another block as base */
#define SUPERBLOCK_COLUMNS 8192u /* coded blocks may have version 6 */
#define SUPERBLOCK_TREES 16384u /* unnamed directories may contain names; user.ckptfs.keep may have an author */
#define SUPERBLOCK_NEAR 32768u /* coded blocks may have version 7 */
#define SUPERBLOCK_INCOMPAT_KNOWN                                                                              \
	(SUPERBLOCK_RECIPES_2 | SUPERBLOCK_CLONES | SUPERBLOCK_LAYERS | SUPERBLOCK_SHARES | SUPERBLOCK_SEALS | \
	 SUPERBLOCK_ROOTS | SUPERBLOCK_COPIES | SUPERBLOCK_STRIPES | SUPERBLOCK_CODED | SUPERBLOCK_DOMAINS | \
	 SUPERBLOCK_BASES | SUPERBLOCK_LET_GO | SUPERBLOCK_LEVELS | SUPERBLOCK_COLUMNS | \
	 SUPERBLOCK_TREES | SUPERBLOCK_NEAR)

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
