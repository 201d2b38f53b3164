/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parts are located one after the other, since each begins where the previous one ended. There are several candidates
 * for the end of a part:
 *
 *   the end given by the table                right, unless just these bytes are damaged
 *   stored_len                                for the last part
 *   where zeros begin                         for the last part, if stored uncompressed
 *   its plain length after its beginning      for any other part, if stored uncompressed
 *   where the codec finds an end              other bytes hardly ever look like a whole part, unless crafted
 *   before the given end of the next part     so that both this part and the next one are possible
 *
 * Each candidate gets votes: the part can be decompressed, its length agrees with the chunks, the next part begins
 * there, or nothing follows. The first candidate with the most votes is taken. So any single wrong source is
 * outvoted, and if a whole sector of the table is lost, the codec finds the parts. If bytes of the part itself
 * are lost too (damaged, or a hole because they were freed) and the table does not lead to the next part, the next
 * part is searched for.
 */
#include "store/pack/coded/pack_coding.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

#define ALL_VOTES 6u

struct search {
	struct coder *coder;
	enum pack_codec codec;
	const struct pack_table_disk *said;
	const uint8_t *stored;
	uint8_t *plain; /* the result; also scratch for candidates */
	uint32_t plain_len; /* according to the chunk lengths in the table; 0: impossible */
	uint32_t data_end; /* only zeros after it */
	bool any_good; /* at least one part could be decompressed */
	bool no_memory;
};

static uint32_t said_plain_len(const struct pack_table_disk *d)
{
	uint32_t chunk_len = le32_get(d->chunk_len), nr = le32_get(d->nr_chunks), total = 0;

	if (chunk_len != 0)
		return pack_chunk_len_valid(chunk_len) && nr <= PACK_FRAME_BYTES / chunk_len ? nr * chunk_len : 0;
	for (uint32_t i = 0; i < nr && nr <= PACK_VARIED_MAX; i++)
		total += le16_get(d->varied[i].len) + 1u;
	return total <= PACK_FRAME_BYTES ? total : 0;
}

static uint32_t said_end(const struct search *s, uint32_t part)
{
	return part < PACK_PARTS ? le32_get(s->said->part_end[part]) : 0;
}

static uint32_t said_part_len(const struct search *s, uint32_t part)
{
	return part * PACK_PART_BYTES < s->plain_len ? pack_part_len(s->plain_len, part) : 0;
}

static bool can_end(uint32_t at, uint32_t end)
{
	return end > at && end - at <= PACK_PART_BYTES;
}

static bool is_last(const struct search *s, uint32_t part, uint32_t end)
{
	return part + 1 == PACK_PARTS ||
	       (end >= s->data_end && (said_end(s, part + 1) == 0 || end == le32_get(s->said->stored_len)));
}

/* Decompress a part to its place. Returns its length; 0: damaged, or short though it is not the last part. */
static uint32_t decompress(struct search *s, uint32_t part, uint32_t at, uint32_t end)
{
	uint8_t *before[PACK_PARTS];
	int n;

	for (uint32_t i = 0; i < part; i++)
		before[i] = s->plain + i * PACK_PART_BYTES;
	n = codec_decompress_some(s->coder, s->codec, s->stored + at, end - at, before, part,
				  s->plain + part * PACK_PART_BYTES, PACK_PART_BYTES);

	s->no_memory |= n == -ENOMEM;
	if (n < 0 || (uint32_t)n <= end - at)
		return 0;
	return n == PACK_PART_BYTES || is_last(s, part, end) ? (uint32_t)n : 0;
}

/* The end of the part at `at`, according to the codec. */
static uint32_t own_end(const struct search *s, uint32_t at)
{
	return at + (uint32_t)codec_find_end(s->codec, s->stored + at, PACK_FRAME_BYTES - at);
}

static unsigned votes_behind(struct search *s, uint32_t part, uint32_t end)
{
	uint32_t next = said_end(s, part + 1), own;

	if (is_last(s, part, end))
		return end < s->data_end ? 0 : (end == le32_get(s->said->stored_len)) + (end == said_end(s, part));
	if (can_end(end, next)) {
		if (next - end == PACK_PART_BYTES || next - end == said_part_len(s, part + 1))
			return 3; /* stored uncompressed */
		if (decompress(s, part + 1, end, next) > 0)
			return 3;
	}
	own = own_end(s, end);
	if (can_end(end, own) && decompress(s, part + 1, end, own) > 0)
		return 3;
	return can_end(end, next);
}

static unsigned votes_for(struct search *s, uint32_t part, uint32_t at, uint32_t end)
{
	uint32_t n = decompress(s, part, at, end), expected = said_part_len(s, part);
	bool is_said;

	s->any_good |= n > 0;
	if (n > 0)
		return 2 + (n == expected) + votes_behind(s, part, end);
	is_said = end == said_end(s, part) || (end == le32_get(s->said->stored_len) && is_last(s, part, end));
	return (is_said && end - at == expected ? 3 : 0) + votes_behind(s, part, end); /* stored uncompressed */
}

/* Search backwards for the beginning of the next part, from its end in the table. 0: not found. */
static uint32_t find_next(struct search *s, uint32_t part, uint32_t at)
{
	uint32_t next = said_end(s, part + 1), plain_len = said_part_len(s, part + 1), from = at + 1;
	size_t start = 0;
	int r;

	if (next <= from || next - from > 2 * PACK_PART_BYTES || next > PACK_FRAME_BYTES)
		return 0;
	if (next - from > PACK_PART_BYTES)
		from = next - PACK_PART_BYTES;
	r = codec_find_start(s->codec, s->stored + from, next - from, plain_len > 0 ? plain_len : PACK_PART_BYTES,
			     &start);
	s->no_memory |= r == -ENOMEM;
	return r > 0 && can_end(at, from + (uint32_t)start) ? from + (uint32_t)start : 0;
}

static uint32_t find_end(struct search *s, uint32_t part, uint32_t at)
{
	uint32_t ends[] = {
		said_end(s, part),
		le32_get(s->said->stored_len),
		s->data_end,
		at + PACK_PART_BYTES,
		own_end(s, at),
		MIN(at + PACK_PART_BYTES, said_end(s, part + 1) - 1),
	};
	unsigned best_votes = 0;
	uint32_t best = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ends) && best_votes < ALL_VOTES; i++) {
		unsigned votes;

		if (!can_end(at, ends[i]) || ends[i] == best)
			continue;
		votes = votes_for(s, part, at, ends[i]);
		if (votes > best_votes || best == 0) {
			best = ends[i];
			best_votes = votes;
		}
	}
	if (best_votes < 2 && (s->any_good || s->said->codec == s->codec)) {
		uint32_t end = find_next(s, part, at);

		best = end > 0 ? end : best;
	}
	return best;
}

/* End of the part, and the number of plain bytes found for it. */
static uint32_t find_part(struct search *s, uint32_t part, uint32_t at, uint32_t *ret_len)
{
	uint32_t end = find_end(s, part, at), n = decompress(s, part, at, end);
	uint8_t *plain = s->plain + part * PACK_PART_BYTES;

	if (n == 0) {
		n = end - at;
		memcpy(plain, s->stored + at, n);
	}
	memset(plain + n, 0, PACK_PART_BYTES - n);
	*ret_len = n;
	return end;
}

/* Fill unused entries with arbitrary but possible ends. */
static void fill_ends(const struct search *s, uint32_t from, struct pack_coding *ret)
{
	for (uint32_t i = from; i < PACK_PARTS; i++) {
		uint32_t at = pack_part_start(ret, i);

		ret->part_end[i] = can_end(at, said_end(s, i)) ? said_end(s, i) : at + 1;
	}
}

static uint32_t find_data_end(const uint8_t *stored)
{
	uint32_t end = PACK_FRAME_BYTES;

	while (end > 0 && pack_block_is_zero(stored + end - PACK_BLOCK))
		end -= PACK_BLOCK;
	while (end > 0 && stored[end - 1] == 0)
		end--;
	return end;
}

int pack_coding_find(struct coder *c, enum pack_codec codec, const struct pack_table_disk *said, const uint8_t *stored,
		     uint8_t *ret_plain, struct pack_coding_found *ret)
{
	struct search s = { .coder = c, .codec = codec, .said = said, .stored = stored, .plain = ret_plain };
	uint32_t at = 0, part = 0, len = 0;

	s.plain_len = said_plain_len(said);
	s.data_end = find_data_end(stored);
	ret->coding = (struct pack_coding){ .codec = codec };
	for (bool more = true; more; part++) {
		uint32_t start = at;

		at = find_part(&s, part, at, &len);
		more = !is_last(&s, part, at);
		ret->coding.part_end[part] = at;
		if (codec == PACK_CODEC_CODED && len > at - start)
			ret->coding.base[part] = codec_base_place(stored + start, at - start);
		ret->last_is_guessed = len == at - start && at != said_end(&s, part) && at != le32_get(said->stored_len);
	}
	if (s.no_memory)
		return -ENOMEM;
	len += (part - 1) * PACK_PART_BYTES;
	if (at == len) /* everything is stored uncompressed */
		return 0;
	memset(ret_plain + len, 0, PACK_FRAME_BYTES - len);
	fill_ends(&s, part, &ret->coding);
	ret->plain_len = len;
	return 1;
}

struct pack_coding pack_coding_settle(const struct pack_coding_found *f, uint32_t plain_len)
{
	struct pack_coding c = f->coding;
	uint32_t last = pack_nr_parts(plain_len) - 1, max = pack_part_start(&c, last) + pack_part_len(plain_len, last);

	if (c.part_end[last] > max || (f->last_is_guessed && last + 1 == pack_nr_parts(f->plain_len)))
		c.part_end[last] = max;
	return c;
}
