/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/pack/pack_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/code_format.h"

static uint32_t header_crc(const struct pack_header_disk *d)
{
	return crc32c(d, offsetof(struct pack_header_disk, crc32c));
}

void pack_header_encode(const struct pack_header *h, struct pack_header_disk *ret)
{
	*ret = (struct pack_header_disk){
		.version = le32_put(PACK_VERSION),
		.compat = le32_put(h->compat),
		.incompat = le32_put(h->incompat),
		.pack = le32_put(h->pack),
		.node = le16_put(h->node),
		.stream = le16_put((uint16_t)h->stream),
		.created_ns = le64_put(h->created_ns),
	};
	memcpy(ret->magic, PACK_MAGIC, sizeof(ret->magic));
	memcpy(ret->store_id, h->store_id, sizeof(ret->store_id));
	ret->crc32c = le32_put(header_crc(ret));
}

int pack_header_decode(const void *p, size_t len, struct pack_header *ret)
{
	const struct pack_header_disk *d = p;
	uint16_t stream;

	if (len < sizeof(*d) || memcmp(d->magic, PACK_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (header_crc(d) != le32_get(d->crc32c))
		return -EBADMSG;
	stream = le16_get(d->stream);
	if (le32_get(d->version) != PACK_VERSION || (le32_get(d->incompat) & ~PACK_INCOMPAT_KNOWN) != 0 ||
	    stream >= PACK_NR_STREAMS)
		return -EOPNOTSUPP;
	if (le32_get(d->pack) == 0)
		return -EBADMSG;
	*ret = (struct pack_header){
		.compat = le32_get(d->compat),
		.incompat = le32_get(d->incompat),
		.pack = le32_get(d->pack),
		.node = le16_get(d->node),
		.stream = (enum pack_stream)stream,
		.created_ns = le64_get(d->created_ns),
	};
	memcpy(ret->store_id, d->store_id, sizeof(ret->store_id));
	return 0;
}

uint64_t pack_table_seal(const struct pack_table_disk *d, const struct fp_key *key)
{
	struct pack_table_disk unsealed = *d;

	unsealed.seal = le64_put(0);
	return fp_hash64(key, &unsealed, sizeof(unsealed));
}

uint32_t pack_cut_at(const struct pack_cuts *c, uint32_t in)
{
	uint32_t low = 0, high = c->nr_chunks;

	if (c->chunk_len)
		return in / c->chunk_len;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (c->ends[middle] <= in)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

uint32_t pack_base_len(uint32_t place, uint32_t part, uint32_t len)
{
	uint32_t off = code_place_off(place), before = part * PACK_PART_BYTES;

	assert(code_place_how(place) != CODE_PLACE_MATCHED);
	return off < before ? MIN(code_place_len(place, len), before - off) : 0;
}

bool pack_has_bases(const struct pack_coding *c)
{
	for (uint32_t i = 0; c->codec == PACK_CODEC_CODED && i < PACK_PARTS; i++)
		if (c->base[i] > 0)
			return true;
	return false;
}

bool pack_is_matched(const struct pack_coding *c, uint32_t part)
{
	return c->codec == PACK_CODEC_CODED && code_place_how(c->base[part]) == CODE_PLACE_MATCHED;
}

bool pack_is_by_levels(const struct pack_coding *c, uint32_t part)
{
	return c->codec == PACK_CODEC_CODED && code_place_how(c->base[part]) == CODE_PLACE_LEVELS;
}

uint32_t pack_levels_end(const struct pack_coding *c, uint32_t part)
{
	uint32_t base = code_place_off(c->base[part]) / PACK_PART_BYTES;

	return MIN(pack_part_start(c, base) + code_place_stored(c->base[part]), c->part_end[base]);
}

uint32_t pack_base_parts(const struct pack_coding *c, uint32_t plain_len, uint32_t part)
{
	uint32_t place = c->base[part], off = code_place_off(place), end, parts = 0;

	if (c->codec != PACK_CODEC_CODED || place == 0)
		return 0;
	if (pack_is_matched(c, part))
		return code_place_parts(place);
	end = off + pack_base_len(place, part, pack_part_len(plain_len, part));
	for (uint32_t k = off / PACK_PART_BYTES; k * PACK_PART_BYTES < end; k++)
		parts |= 1u << k;
	return parts;
}

/* A base always precedes the parts coded against it, so one pass from the last part to the first finds them all. */
uint32_t pack_with_bases(const struct pack_coding *c, uint32_t plain_len, uint32_t parts)
{
	for (uint32_t i = pack_nr_parts(plain_len); i-- > 0;)
		if (parts >> i & 1)
			parts |= pack_base_parts(c, plain_len, i);
	return parts;
}

uint32_t pack_to_decode(const struct pack_coding *c, uint32_t plain_len, uint32_t parts, uint32_t *ret_left)
{
	uint32_t left = 0; /* parts whose left-over bytes, at least, are needed */

	*ret_left = 0;
	for (uint32_t i = pack_nr_parts(plain_len); i-- > 0;) {
		bool is_matched = pack_is_matched(c, i);

		if (left >> i & 1 && !(parts >> i & 1)) {
			if (is_matched) {
				*ret_left |= 1u << i;
				continue;
			}
			parts |= 1u << i;
		}
		if (parts >> i & 1 && !pack_is_by_levels(c, i))
			*(is_matched ? &left : &parts) |= pack_base_parts(c, plain_len, i);
	}
	return parts | *ret_left;
}

static void encode_chunks(const struct pack_table *t, const struct pack_cuts *cuts, struct pack_table_disk *ret)
{
	for (uint32_t i = 0; i < t->nr_chunks; i++) {
		uint32_t len = pack_cut_len(cuts, i);

		if (t->chunk_len) {
			fp_encode(t->fps[i], ret->fps[i]);
			continue;
		}
		assert(len > 0 && len <= PACK_VARIED_LEN_MAX);
		fp_encode(t->fps[i], ret->varied[i].fp);
		ret->varied[i].len = le16_put((uint16_t)(len - 1));
	}
}

void pack_table_encode(const struct pack_table *t, const struct fp_key *key, uint32_t pack, uint32_t frame,
		       struct pack_table_disk *ret)
{
	struct pack_cuts cuts = pack_table_cuts(t);
	uint32_t plain_len = pack_cut_total(&cuts);

	assert(t->chunk_len == 0 || pack_chunk_len_valid(t->chunk_len));
	assert(t->nr_chunks > 0 && t->nr_chunks <= pack_nr_chunks_max(t->chunk_len) && plain_len <= PACK_FRAME_BYTES);
	*ret = (struct pack_table_disk){
		.version = le32_put(PACK_TABLE_VERSION),
		.kind = t->chunk_len ? PACK_TABLE_EQUAL : PACK_TABLE_VARIED,
		.codec = (uint8_t)t->coding.codec,
		.pack = le32_put(pack),
		.frame = le32_put(frame),
		.chunk_len = le32_put(t->chunk_len),
		.nr_chunks = le32_put(t->nr_chunks),
		.stored_len = le32_put(pack_stored_len(&t->coding, plain_len)),
	};
	memcpy(ret->magic, PACK_TABLE_MAGIC, sizeof(ret->magic));
	for (uint32_t i = 0; t->coding.codec != PACK_CODEC_NONE && i < pack_nr_parts(plain_len); i++)
		ret->part_end[i] = le32_put(t->coding.part_end[i]);
	for (uint32_t i = 0; t->coding.codec == PACK_CODEC_CODED && i < pack_nr_parts(plain_len); i++)
		ret->base[i] = le32_put(t->coding.base[i]);
	encode_chunks(t, &cuts, ret);
	ret->seal = le64_put(pack_table_seal(ret, key));
}

bool pack_block_is_zero(const void *block)
{
	return mem_is_zero(block, PACK_BLOCK);
}

/* The base must be a whole part without a base of its own; a later version may allow others. */
static bool levels_known(const uint32_t *bases, uint32_t part)
{
	uint32_t off = code_place_off(bases[part]);

	return off % PACK_PART_BYTES == 0 && (off >= part * PACK_PART_BYTES || bases[off / PACK_PART_BYTES] == 0);
}

/* Only coded frames have bases, which lie before the part. */
static int bases_decode(const struct pack_table_disk *d, uint32_t nr, uint32_t ret[PACK_PARTS])
{
	for (uint32_t i = 0; i < nr; i++) {
		ret[i] = le32_get(d->base[i]);
		if (ret[i] > 0 && !code_place_valid(ret[i]))
			return -EOPNOTSUPP;
		if (code_place_how(ret[i]) == CODE_PLACE_LEVELS && !levels_known(ret, i))
			return -EOPNOTSUPP;
		if (ret[i] > 0 && (code_place_how(ret[i]) == CODE_PLACE_MATCHED ?
					   code_place_parts(ret[i]) >> i > 0 :
					   code_place_off(ret[i]) >= i * PACK_PART_BYTES))
			return -EBADMSG;
	}
	return mem_is_zero(d->base + nr, (PACK_PARTS - nr) * sizeof(*d->base)) ? 0 : -EOPNOTSUPP;
}

static int coding_decode(const struct pack_table_disk *d, uint32_t plain_len, struct pack_coding *ret)
{
	uint32_t nr = d->codec == PACK_CODEC_NONE ? 0 : pack_nr_parts(plain_len), at = 0;

	ret->codec = d->codec;
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t end = le32_get(d->part_end[i]);

		if (end <= at || end - at > pack_part_len(plain_len, i))
			return -EBADMSG;
		ret->part_end[i] = at = end;
	}
	if (le32_get(d->stored_len) != (nr > 0 ? at : plain_len))
		return -EBADMSG;
	if (!mem_is_zero(d->part_end + nr, (PACK_PARTS - nr) * sizeof(*d->part_end)))
		return -EBADMSG;
	return bases_decode(d, d->codec == PACK_CODEC_CODED ? nr : 0, ret->base);
}

/* Total bytes of chunks of one length; 0: invalid. */
static uint32_t equal_total(const struct pack_table_disk *d, uint32_t nr_chunks)
{
	uint32_t chunk_len = le32_get(d->chunk_len);

	if (!pack_chunk_len_valid(chunk_len) || nr_chunks > PACK_FRAME_BYTES / chunk_len)
		return 0;
	if (!mem_is_zero((const uint8_t *)d->fps + nr_chunks * FP_LEN, (PACK_FRAME_BLOCKS - nr_chunks) * FP_LEN))
		return 0;
	return nr_chunks * chunk_len;
}

/* The same for chunks of arbitrary lengths. */
static uint32_t varied_total(const struct pack_table_disk *d, uint32_t nr_chunks)
{
	uint32_t total = 0;

	if (le32_get(d->chunk_len) != 0 || nr_chunks > PACK_VARIED_MAX)
		return 0;
	if (!mem_is_zero(d->varied + nr_chunks, (PACK_VARIED_MAX - nr_chunks) * sizeof(*d->varied)) ||
	    !mem_is_zero(d->varied_reserved, sizeof(d->varied_reserved)))
		return 0;
	for (uint32_t i = 0; i < nr_chunks; i++)
		total += le16_get(d->varied[i].len) + 1u;
	return total <= PACK_FRAME_BYTES ? total : 0;
}

static void decode_chunks(const struct pack_table_disk *d, struct pack_table *ret)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < ret->nr_chunks; i++) {
		if (ret->chunk_len) {
			ret->fps[i] = fp_decode(d->fps[i]);
			continue;
		}
		end += le16_get(d->varied[i].len) + 1u;
		ret->ends[i] = end;
		ret->fps[i] = fp_decode(d->varied[i].fp);
	}
}

int pack_table_decode(const void *p, size_t len, const struct fp_key *key, uint32_t pack, uint32_t frame,
		      struct pack_table *ret)
{
	const struct pack_table_disk *d = p;
	struct pack_coding coding = { 0 };
	uint32_t nr_chunks, plain_len;
	int r;

	if (len < sizeof(*d) || memcmp(d->magic, PACK_TABLE_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (pack_table_seal(d, key) != le64_get(d->seal))
		return -EBADMSG;
	if (le32_get(d->version) != PACK_TABLE_VERSION || (d->kind != PACK_TABLE_EQUAL && d->kind != PACK_TABLE_VARIED) ||
	    d->codec >= NR_PACK_CODECS || le16_get(d->flags) != 0 || !mem_is_zero(d->reserved, sizeof(d->reserved)))
		return -EOPNOTSUPP;
	nr_chunks = le32_get(d->nr_chunks);
	if (le32_get(d->pack) != pack || le32_get(d->frame) != frame || nr_chunks == 0)
		return -EBADMSG;
	plain_len = d->kind == PACK_TABLE_EQUAL ? equal_total(d, nr_chunks) : varied_total(d, nr_chunks);
	if (plain_len == 0)
		return -EBADMSG;
	r = coding_decode(d, plain_len, &coding);
	if (r < 0)
		return r;
	ret->chunk_len = le32_get(d->chunk_len);
	ret->nr_chunks = nr_chunks;
	ret->coding = coding;
	decode_chunks(d, ret);
	return 0;
}

struct pack_name pack_name(uint32_t pack)
{
	struct pack_name n;

	snprintf(n.s, sizeof(n.s), "%08" PRIx32 ".pack", pack);
	return n;
}

bool pack_name_parse(const char *name, uint32_t *ret)
{
	uint32_t pack;

	if (sscanf(name, "%8" SCNx32, &pack) != 1 || pack == 0)
		return false;
	if (strcmp(name, pack_name(pack).s) != 0)
		return false;
	*ret = pack;
	return true;
}
