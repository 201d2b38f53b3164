/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The objects of a tier as bytes: keys, packs and manifests. docs/format.md, section 16, changes with this. All are
 * immutable. Decoders are pure functions of (bytes, length) and trust nothing.
 *
 *   keys/<key id>               key of the fingerprints
 *   packs/<2 hex>/<pack id>     stored bytes of frames; their tables; a footer
 *   sealed/<store>/<number>     manifest: a sealed checkpoint
 *
 * The tables of a pack are those of the packs of a store. Writers put frames without compression, whatever they are in
 * the store, and readers refuse others. A manifest has the catalog of the directory (store/catalog) with runs of chunks
 * of packs in place of fingerprints: its size depends on the number of extents and not on that of chunks.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/fp.h"
#include "base/le.h"
#include "base/sha256.h"
#include "store/pack/pack_format.h"

#define TIER_ID_LEN 16u

/* --- names --- */

struct tier_object_name {
	char s[100];
};
struct tier_object_name tier_key_name(const uint8_t key_id[TIER_ID_LEN]);
struct tier_object_name tier_pack_name(const uint8_t pack_id[TIER_ID_LEN]);
struct tier_object_name tier_manifest_name(const uint8_t store[TIER_ID_LEN], uint64_t number);
#define TIER_SEALED_PREFIX "sealed/"
#define TIER_PACKS_PREFIX "packs/"
bool tier_manifest_name_parse(const char *name, uint8_t ret_store[TIER_ID_LEN], uint64_t *ret_number);

/* --- keys --- */

#define TIER_KEY_MAGIC "ckptTKEY"
#define TIER_VERSION 1u

struct tier_key_disk {
	uint8_t magic[8];
	struct le32 version, incompat; /* unknown bits: refuse */
	uint8_t id[TIER_ID_LEN]; /* derived from hash and secret */
	struct le32 hash; /* enum fp_kind */
	uint8_t secret[FP_KEY_LEN];
	struct le32 reserved, crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_key_disk) == 76, "in a tier");

struct tier_key {
	uint8_t id[TIER_ID_LEN];
	enum fp_kind hash;
	uint8_t secret[FP_KEY_LEN];
};
void tier_key_init(struct tier_key *k, enum fp_kind hash, const uint8_t secret[FP_KEY_LEN]);
void tier_key_encode(const struct tier_key *k, struct tier_key_disk *ret);
int tier_key_decode(const void *p, size_t len, struct tier_key *ret);

/* --- packs --- */

#define TIER_PACK_MAGIC "ckptTPCK"
#define TIER_PACK_FRAMES_MAX 4096u
/*
 * In the place of a pack's id in tables: this plus the number of the generation that the writer had read
 * (tier_collect.c). So the name of a pack that a collection deletes is never used again.
 */
#define TIER_PACK_NUMBER 1u

struct tier_footer_disk {
	uint8_t magic[8];
	struct le32 version, incompat;
	uint8_t id[TIER_ID_LEN]; /* the start of SHA-256 of the tables */
	uint8_t key_id[TIER_ID_LEN];
	struct le64 data_len; /* stored bytes of all frames; then follow the tables */
	struct le32 nr_frames;
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_footer_disk) == 64, "in a tier");

struct tier_footer {
	uint8_t id[TIER_ID_LEN], key_id[TIER_ID_LEN];
	uint64_t data_len;
	uint32_t nr_frames; /* 1 to TIER_PACK_FRAMES_MAX */
};
void tier_footer_encode(const struct tier_footer *f, struct tier_footer_disk *ret);
int tier_footer_decode(const void *p, size_t len, struct tier_footer *ret);

static inline uint64_t tier_pack_len(const struct tier_footer *f)
{
	return f->data_len + (uint64_t)f->nr_frames * PACK_BLOCK + sizeof(struct tier_footer_disk);
}

void tier_tables_id(const void *tables, size_t len, uint8_t ret[TIER_ID_LEN]);

/* The decoded tables of a pack. */
struct tier_frame {
	struct pack_table table;
	uint64_t off; /* of its stored bytes in the pack */
	uint32_t first; /* number of its first chunk in the pack */
};
struct tier_tables {
	struct tier_frame *frames;
	uint32_t nr_frames, nr_chunks;
};
/* Checks them against the pack's id and the length of its data. The caller releases *ret. */
int tier_tables_decode(const void *p, size_t len, const struct tier_footer *f, const struct fp_key *key,
		       struct tier_tables *ret);
void tier_tables_release(struct tier_tables *t);
/* The frame that has this chunk; NULL: there is none. */
const struct tier_frame *tier_tables_find(const struct tier_tables *t, uint32_t chunk, uint32_t *ret_in_frame);

/* --- manifests --- */

#define TIER_MANIFEST_MAGIC "ckptTMAN"
#define TIER_FENCE_MAGIC "ckptTFNC" /* in the place of a manifest: tier_log_format.h */
#define TIER_PATH_MAX 4095u
#define TIER_MANIFEST_PACKS_MAX (1u << 20)
#define TIER_MANIFEST_MAX (UINT64_C(256) << 20) /* writers, readers and collectors have a whole one in memory */

struct tier_manifest_disk {
	uint8_t magic[8];
	struct le32 version, incompat;
	uint8_t store[TIER_ID_LEN]; /* that sealed the directory */
	uint8_t key_id[TIER_ID_LEN];
	struct le64 number; /* the one in the name */
	struct le64 ino, sealed_ns; /* of the directory and the seal, in that store */
	uint8_t root[SHA256_LEN]; /* of the seal */
	uint8_t check[SHA256_LEN]; /* SHA-256 of all that follows this head */
	struct le64 files, directories, bytes; /* as in the seal */
	struct le64 catalog_len;
	struct le32 path_len, nr_packs;
	struct le32 uid; /* of the directory */
	struct le32 crc32c; /* over all bytes before it */
};
static_assert(sizeof(struct tier_manifest_disk) == 184, "in a tier");

struct tier_pack_ref_disk {
	uint8_t id[TIER_ID_LEN];
	struct le64 data_len;
	struct le32 nr_frames;
};
static_assert(sizeof(struct tier_pack_ref_disk) == 28, "in a tier");

struct tier_manifest {
	uint8_t store[TIER_ID_LEN], key_id[TIER_ID_LEN];
	uint64_t number, ino;
	int64_t sealed_ns;
	uint8_t root[SHA256_LEN];
	uint8_t check[SHA256_LEN]; /* of all that follows the head; set by the decoder, not needed to encode */
	uint64_t files, directories, bytes;
	uint32_t uid;
	/* Borrowed, from the decoded bytes or the caller that encodes. */
	const char *path; /* from the root of that store; names with a slash between them; no zero byte at the end */
	uint32_t path_len;
	const uint8_t *packs; /* struct tier_pack_ref_disk */
	uint32_t nr_packs;
	const uint8_t *catalog; /* with runs: tier_run_next() */
	uint64_t catalog_len;
};
void tier_manifest_encode(const struct tier_manifest *m, struct buf *ret); /* appends */
/* Only the head. The caller has the other parts of the manifest in memory behind it. */
void tier_manifest_head_encode(const struct tier_manifest *m, struct tier_manifest_disk *ret);
/*
 * The head and the path alone, from the first `len` bytes, TIER_MANIFEST_HEAD_MAX or all of them: enough to list
 * checkpoints. `packs` and `catalog` are NULL. The path is not checked against its digest, which needs all bytes.
 */
#define TIER_MANIFEST_HEAD_MAX (sizeof(struct tier_manifest_disk) + TIER_PATH_MAX)
/* -ENODATA: a fence of a collection is in the place of a manifest. tier_manifest_decode() returns it, too. */
int tier_manifest_head_decode(const void *p, size_t len, struct tier_manifest *ret);
bool tier_manifest_has_size(const struct tier_manifest *m, uint64_t size); /* by its head: is the object complete? */
/* Checks all but the records of the catalog, which tier_read.h checks when it expands them. */
int tier_manifest_decode(const void *p, size_t len, struct tier_manifest *ret);
/* Pack number i < nr_packs. -EBADMSG: impossible numbers. */
int tier_manifest_pack(const struct tier_manifest *m, uint32_t i, struct tier_footer *ret);
void tier_pack_ref_encode(const struct tier_footer *f, struct buf *ret);

/*
 * The content of a file, in the place of the pieces of a catalog: a record of this type for each record with pieces,
 * with runs that stand for the same pieces.
 */
#define TIER_RUNS_TYPE 6u /* beside those of store/catalog/catalog_format.h */
struct tier_run {
	uint32_t pack; /* index in the manifest, plus 1; 0: a hole of `len` bytes */
	uint32_t first; /* number of a chunk in the pack */
	uint32_t nr; /* whole chunks, `len` bytes together; 0: a part of one chunk, `len` bytes from `from` on */
	uint32_t from;
	uint64_t len; /* of the file: a reader finds an offset without the tables of packs */
};
void tier_run_encode(const struct tier_run *r, struct buf *ret);
int tier_run_next(struct cursor *c, struct tier_run *ret); /* 1/0/-EBADMSG */
