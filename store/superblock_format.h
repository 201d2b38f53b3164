/* The first bytes of a store: who it is, how its chunks are fingerprinted. docs/format.md changes with this. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fp.h"
#include "base/le.h"

#define SUPERBLOCK_MAGIC "CKPTFS\r\n"
#define SUPERBLOCK_VERSION 1u
#define SUPERBLOCK_SIZE 4096u /* written twice, one copy after the other: losing the key would lose the store */

/* Unknown bit in `incompat`: refuse; in `compat`: ignore. */
#define SUPERBLOCK_RECIPES_2 1u /* recipes may be of version 2 */
#define SUPERBLOCK_CLONES 2u	/* the journal may have records of types 7 and 8 */
#define SUPERBLOCK_LAYERS 4u	/* recipes may name layers, in the view and in snapshots of the journal */
#define SUPERBLOCK_SHARES 8u	/* chunks that the tables of packs name may be on other nodes */
#define SUPERBLOCK_SEALS 16u	/* directories may be sealed */
#define SUPERBLOCK_ROOTS 32u	/* notes of seals may be of version 2 */
#define SUPERBLOCK_COPIES 64u	/* there may be copies of what other nodes have sealed */
#define SUPERBLOCK_STRIPES 128u	/* some of these may be stripes, or have slots; notes of who has a copy may be of version 2 */
#define SUPERBLOCK_CODED 256u	/* frames may be coded with what is known of their bytes */
#define SUPERBLOCK_DOMAINS 512u	/* fingerprints may be of a domain */
#define SUPERBLOCK_BASES 1024u	/* coded blocks may have a base in their frame */
#define SUPERBLOCK_LET_GO 2048u	/* chunks of compressed frames may be on other nodes; notes of who has a copy may be of state 3 */
#define SUPERBLOCK_LEVELS 4096u	/* coded blocks may be split by levels, and have those of another one as their base */
#define SUPERBLOCK_INCOMPAT_KNOWN                                                                              \
	(SUPERBLOCK_RECIPES_2 | SUPERBLOCK_CLONES | SUPERBLOCK_LAYERS | SUPERBLOCK_SHARES | SUPERBLOCK_SEALS | \
	 SUPERBLOCK_ROOTS | SUPERBLOCK_COPIES | SUPERBLOCK_STRIPES | SUPERBLOCK_CODED | SUPERBLOCK_DOMAINS | \
	 SUPERBLOCK_BASES | SUPERBLOCK_LET_GO | SUPERBLOCK_LEVELS)

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

#define SUPERBLOCK_CLUSTER 1u /* the secret came from a key file that other stores share */
#define SUPERBLOCK_DOMAIN_KIND 6u /* enum fp_domain_kind */
#define SUPERBLOCK_DOMAIN_SHIFT 1

struct superblock {
	enum fp_kind hash;
	uint8_t store_id[16];
	uint8_t secret[FP_KEY_LEN];
	uint64_t created_ns;
	uint32_t flags, incompat;
};

/* Whose chunks are shared with whose. */
static inline enum fp_domain_kind superblock_domains(const struct superblock *sb)
{
	return (enum fp_domain_kind)((sb->flags & SUPERBLOCK_DOMAIN_KIND) >> SUPERBLOCK_DOMAIN_SHIFT);
}

/* -EBADMSG: not a superblock or damaged; -EOPNOTSUPP: another version or unknown features. */
int superblock_decode(const void *p, size_t len, struct superblock *ret);
void superblock_encode(const struct superblock *sb, struct superblock_disk *ret);
