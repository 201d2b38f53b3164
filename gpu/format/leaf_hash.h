/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Digests of a lineage's content: 128-bit keyed hashes of its chunks, of groups of chunks, and of all of it.
 *
 * The content is cut into chunks of one length, a power of two from 32 to 4096; a short last chunk is hashed as if
 * padded with zeros. All hashes are XXH3-128 with secrets derived from the lineage's key, 32 random bytes: without the
 * key collisions cannot be prepared. Chunks and groups have different secrets, so that the content of a chunk cannot
 * pass for a group of digests.
 *
 *   leaf         of a chunk; of one longer than 128 bytes, of the digests of its slices of 128 bytes
 *   signature    of the 32 leaves of a group, 16 bytes each; zeros stand for those behind the last
 *   fingerprint  signatures are grouped by 32 again, and so on, until one digest is left; it is hashed with the length
 *                of the content and of its chunks
 *
 * One signature shows whether any of 32 chunks has changed, and the fingerprint is a by-product of the hashing. It can
 * be recomputed from the bytes of the file and the key. It is derived from the leaves, so it does not distinguish
 * chunks with colliding leaves. docs/format.md ("Delta objects") specifies it, docs/decisions/fingerprints.md, "Digests
 * of delta chunks", explains the choice of XXH3 and of slices.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/format/xxh3.h"

#define CHUNK_LEN_MIN 32u
#define CHUNK_LEN_MAX 4096u
#define LEAF_KEY_LEN 32
#define LEAF_SLICE 128u /* bytes: what XXH3 keys well */
#define LEAF_GROUP 32 /* digests under one signature: a warp of chunks */
#define DIGEST_LEN 16 /* on the wire: lo, then hi, little-endian */

static inline bool chunk_len_valid(uint32_t chunk_len)
{
	return chunk_len >= CHUNK_LEN_MIN && chunk_len <= CHUNK_LEN_MAX && (chunk_len & (chunk_len - 1)) == 0;
}

/* The last one may be short. */
static inline uint64_t chunks_of(uint64_t content_len, uint32_t chunk_len)
{
	return content_len / chunk_len + (content_len % chunk_len != 0);
}

static inline bool digest_equal(struct digest a, struct digest b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

void digest_encode(struct digest d, uint8_t ret[DIGEST_LEN]);
struct digest digest_decode(const uint8_t p[DIGEST_LEN]);

/* Made once from the lineage's key. Immutable afterwards, shared by all threads. */
struct leaf_key {
	uint8_t leaf[XXH3_SECRET_LEN], group[XXH3_SECRET_LEN];
};

void leaf_key_init(struct leaf_key *k, const uint8_t key[LEAF_KEY_LEN]);

/* Digest of a chunk of which `len` bytes are there, at most chunk_len. */
struct digest leaf_hash(const struct leaf_key *k, const void *p, size_t len, uint32_t chunk_len);
/* Signature of a group of which `nr` digests are there, at most 32. */
struct digest leaf_hash_group(const struct leaf_key *k, const struct digest *digests, size_t nr);

/* The fingerprint, as leaves or signatures come in. On the stack; nothing to release. */
#define CONTENT_HASH_LEVELS 8 /* 32^7 chunks are more than there may be */
struct content_hash {
	const struct leaf_key *key; /* borrowed */
	uint32_t chunk_len;
	struct {
		struct digest digests[LEAF_GROUP];
		size_t nr;
	} levels[CONTENT_HASH_LEVELS];
};

void content_hash_init(struct content_hash *c, const struct leaf_key *k, uint32_t chunk_len);
/* Bytes, from the first to the last, in pieces of whole chunks; only the last piece may end with a short one. */
void content_hash_add(struct content_hash *c, const void *p, size_t len);
/* `len` zeros: whole chunks, unless they are the last bytes. Costs at most a few hundred hashes for any length. */
void content_hash_add_zeros(struct content_hash *c, uint64_t len);
/* Or signatures instead, from the first to the last. */
void content_hash_add_signature(struct content_hash *c, struct digest signature);
/* `content_len`: of all that was added. Ends it. */
struct digest content_hash_finish(struct content_hash *c, uint64_t content_len);
