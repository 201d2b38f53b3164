/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/format/leaf_hash.h"

#include <assert.h>
#include <string.h>

/* Compiled in, as in base/fp.c and for its reasons: speed, and XXH3_generateSecret() as the tests have pinned it. */
#if !defined(__clang__)
#pragma GCC optimize("unroll-loops")
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/le.h"
#include "base/util.h"

#define LABEL_LEN 16

static_assert(XXH3_SECRET_LEN >= XXH3_SECRET_SIZE_MIN, "XXH3 refuses short secrets");

void digest_encode(struct digest d, uint8_t ret[DIGEST_LEN])
{
	struct le64 lo = le64_put(d.lo), hi = le64_put(d.hi);

	memcpy(ret, lo.b, sizeof(lo));
	memcpy(ret + sizeof(lo), hi.b, sizeof(hi));
}

struct digest digest_decode(const uint8_t p[DIGEST_LEN])
{
	return (struct digest){ .lo = xxh3_read64(p), .hi = xxh3_read64(p + 8) };
}

static void make_secret(const char label[LABEL_LEN], const uint8_t key[LEAF_KEY_LEN], uint8_t ret[XXH3_SECRET_LEN])
{
	uint8_t seed[LABEL_LEN + LEAF_KEY_LEN];
	XXH_errorcode e _unused_;

	memcpy(seed, label, LABEL_LEN);
	memcpy(seed + LABEL_LEN, key, LEAF_KEY_LEN);
	e = XXH3_generateSecret(ret, XXH3_SECRET_LEN, seed, sizeof(seed));
	assert(e == XXH_OK); /* fails only for sizes it does not like */
}

void leaf_key_init(struct leaf_key *k, const uint8_t key[LEAF_KEY_LEN])
{
	static const char leaf[LABEL_LEN] = "ckptfs leaf", group[LABEL_LEN] = "ckptfs group";

	make_secret(leaf, key, k->leaf);
	make_secret(group, key, k->group);
}

static struct digest hash(const uint8_t secret[XXH3_SECRET_LEN], const void *p, size_t len)
{
	XXH128_hash_t h = XXH3_128bits_withSecret(p, len, secret, XXH3_SECRET_LEN);

	return (struct digest){ .lo = h.low64, .hi = h.high64 };
}

static struct digest hash_chunk(const struct leaf_key *k, const uint8_t *p, uint32_t chunk_len)
{
	uint8_t slices[CHUNK_LEN_MAX / LEAF_SLICE * DIGEST_LEN];
	size_t len = 0;

	if (chunk_len <= LEAF_SLICE)
		return hash(k->leaf, p, chunk_len);
	for (uint32_t off = 0; off < chunk_len; off += LEAF_SLICE, len += DIGEST_LEN)
		digest_encode(hash(k->leaf, p + off, LEAF_SLICE), slices + len);
	return hash(k->group, slices, len);
}

struct digest leaf_hash(const struct leaf_key *k, const void *p, size_t len, uint32_t chunk_len)
{
	uint8_t filled[CHUNK_LEN_MAX];

	assert(chunk_len_valid(chunk_len) && len <= chunk_len);
	if (len == chunk_len)
		return hash_chunk(k, p, chunk_len);
	if (len > 0)
		memcpy(filled, p, len);
	memset(filled + len, 0, chunk_len - len);
	return hash_chunk(k, filled, chunk_len);
}

struct digest leaf_hash_group(const struct leaf_key *k, const struct digest *digests, size_t nr)
{
	uint8_t bytes[LEAF_GROUP * DIGEST_LEN] = { 0 };

	assert(nr <= LEAF_GROUP);
	for (size_t i = 0; i < nr; i++)
		digest_encode(digests[i], bytes + i * DIGEST_LEN);
	return hash(k->group, bytes, sizeof(bytes));
}

void content_hash_init(struct content_hash *c, const struct leaf_key *k, uint32_t chunk_len)
{
	assert(chunk_len_valid(chunk_len));
	c->key = k;
	c->chunk_len = chunk_len;
	for (size_t i = 0; i < CONTENT_HASH_LEVELS; i++)
		c->levels[i].nr = 0;
}

static void close_group(struct content_hash *c, size_t level);

static void add_digest(struct content_hash *c, size_t level, struct digest d)
{
	assert(level < CONTENT_HASH_LEVELS);
	c->levels[level].digests[c->levels[level].nr++] = d;
	if (c->levels[level].nr == LEAF_GROUP)
		close_group(c, level);
}

static void close_group(struct content_hash *c, size_t level)
{
	struct digest d = leaf_hash_group(c->key, c->levels[level].digests, c->levels[level].nr);

	c->levels[level].nr = 0;
	add_digest(c, level + 1, d);
}

void content_hash_add(struct content_hash *c, const void *p, size_t len)
{
	const uint8_t *bytes = p;

	for (size_t off = 0; off < len; off += c->chunk_len)
		add_digest(c, 0, leaf_hash(c->key, bytes + off, MIN(len - off, (size_t)c->chunk_len), c->chunk_len));
}

/* Equal chunks have equal group digests on every level, so one digest stands for a whole subtree of zeros. */
void content_hash_add_zeros(struct content_hash *c, uint64_t len)
{
	struct digest zeros[CONTENT_HASH_LEVELS - 1], group[LEAF_GROUP];
	uint64_t left = chunks_of(len, c->chunk_len);

	for (size_t level = 0; level < ARRAY_SIZE(zeros); level++) {
		zeros[level] = level == 0 ? leaf_hash(c->key, NULL, 0, c->chunk_len) :
					    leaf_hash_group(c->key, group, LEAF_GROUP);
		for (size_t i = 0; i < LEAF_GROUP; i++)
			group[i] = zeros[level];
	}
	while (left > 0) {
		uint64_t nr = 1; /* chunks under one digest of the level */
		size_t level = 0;

		while (level + 1 < ARRAY_SIZE(zeros) && c->levels[level].nr == 0 && nr <= left / LEAF_GROUP) {
			nr *= LEAF_GROUP;
			level++;
		}
		add_digest(c, level, zeros[level]);
		left -= nr;
	}
}

void content_hash_add_signature(struct content_hash *c, struct digest signature)
{
	add_digest(c, 1, signature);
}

struct digest content_hash_finish(struct content_hash *c, uint64_t content_len)
{
	uint64_t left = chunks_of(content_len, c->chunk_len);
	struct digest top = { 0, 0 }; /* of no content */
	uint8_t bytes[2 * DIGEST_LEN];
	size_t level = 0;

	if (left > 0) {
		do {
			if (c->levels[level].nr > 0)
				close_group(c, level);
			level++;
			left = left / LEAF_GROUP + (left % LEAF_GROUP != 0);
		} while (left > 1);
		assert(c->levels[level].nr == 1);
		top = c->levels[level].digests[0];
	}
	digest_encode(top, bytes);
	digest_encode((struct digest){ .lo = content_len, .hi = c->chunk_len }, bytes + DIGEST_LEN);
	return hash(c->key->group, bytes, sizeof(bytes));
}
