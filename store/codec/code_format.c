/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_format.h"

#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "store/codec/match.h"
#include "store/codec/twin.h"

#define TYPE_BIG_ENDIAN 0x80u
#define FPC_WIDTH 8
#define FLAGS_KNOWN (CODE_FLAG_ZIGZAG | CODE_FLAG_PLACED | CODE_FLAG_NEAR | 7u << CODE_LEAD_SHIFT)

static bool type_valid(struct code_type t)
{
	static const uint8_t widths[NR_CODE_CLASSES] = {
		/* bit mask of widths */
		[CODE_BYTES] = 1,	  [CODE_INT] = 1 | 2 | 4 | 8, [CODE_UINT] = 1 | 2 | 4 | 8,
		[CODE_FLOAT] = 2 | 4 | 8, [CODE_BFLOAT] = 2,
	};

	return t.class < NR_CODE_CLASSES && (t.width & (t.width - 1)) == 0 && (widths[t.class] & t.width) != 0 &&
	       (t.width > 1 || !t.big_endian);
}

uint8_t code_type_encode(struct code_type t)
{
	return (uint8_t)(t.class | (unsigned)__builtin_ctz(t.width) << 4 | (t.big_endian ? TYPE_BIG_ENDIAN : 0));
}

int code_type_decode(uint8_t byte, struct code_type *ret)
{
	struct code_type t = {
		.class = byte & 0xf,
		.width = 1u << (byte >> 4 & 7),
		.big_endian = byte & TYPE_BIG_ENDIAN,
	};

	if (!type_valid(t))
		return -EBADMSG;
	*ret = t;
	return 0;
}

static bool levels_valid(const struct code_header *h)
{
	return h->map == CODE_MAP_ROTATED && (h->base == CODE_BASE_NONE || h->base == CODE_BASE_SUB) &&
	       h->predict == CODE_PREDICT_NONE && !h->zigzag && h->stride[0] >= CODE_LEVEL_BITS_MIN &&
	       h->stride[0] <= CODE_LEVEL_BITS_MAX && h->stride[1] == 0 && h->stride[2] == 0;
}

static bool columns_valid(const struct code_header *h)
{
	return h->type.class == CODE_BYTES && (h->base == CODE_BASE_NONE || h->base == CODE_BASE_SUB) &&
	       h->predict == CODE_PREDICT_NONE && !h->zigzag && h->stride[0] >= CODE_RECORD_MIN &&
	       h->stride[0] <= CODE_RECORD_MAX && h->stride[1] == 0 && h->stride[2] == 0;
}

static bool strides_valid(const struct code_header *h)
{
	if (h->split == CODE_SPLIT_COLUMNS)
		return columns_valid(h);
	if (h->split == CODE_SPLIT_LEVELS)
		return levels_valid(h);
	for (unsigned i = 0; i < CODE_NR_STRIDES; i++)
		switch (h->predict) {
		case CODE_PREDICT_DELTA:
			if ((i == 0 || h->stride[i] > 0) && (h->stride[i] == 0 || h->stride[i] > CODE_PLAIN_MAX))
				return false;
			break;
		case CODE_PREDICT_XOR:
			if ((h->stride[i] > 0) != (i == 0) || h->stride[i] > CODE_PLAIN_MAX)
				return false;
			break;
		default:
			if (h->stride[i] > 0)
				return false;
		}
	return true;
}

bool code_steps_valid(const struct code_header *h)
{
	bool is_float = h->type.class == CODE_FLOAT || h->type.class == CODE_BFLOAT;

	return type_valid(h->type) && h->map < NR_CODE_MAPS && h->base < CODE_BASE_MATCHED &&
	       h->predict < NR_CODE_PREDICTS && h->split < NR_CODE_SPLITS && h->entropy < NR_CODE_ENTROPIES &&
	       (h->map == CODE_MAP_NONE || is_float) && (h->predict != CODE_PREDICT_FPC || h->type.width == FPC_WIDTH) &&
	       strides_valid(h) && h->lead < h->type.width;
}

/* The inner block with the left-over elements has steps; the outer one has none. */
static bool matched_valid(const struct code_header *h)
{
	return type_valid(h->type) && h->type.width == MATCH_WIDTH && h->map == CODE_MAP_NONE &&
	       h->base == CODE_BASE_MATCHED && h->predict == CODE_PREDICT_NONE && strides_valid(h) && !h->zigzag &&
	       h->split == CODE_SPLIT_NONE && h->entropy == CODE_ENTROPY_ZSTD && h->lead < h->type.width &&
	       h->plain_len <= MATCH_PART;
}

static uint32_t crc_of(const struct code_header_disk *d, const void *stored, size_t len)
{
	return crc32c_add(crc32c(d, offsetof(struct code_header_disk, crc)), stored, len);
}

static uint8_t flags_encode(const struct code_header *h)
{
	return (uint8_t)((h->zigzag ? CODE_FLAG_ZIGZAG : 0) | (h->base_place > 0 ? CODE_FLAG_PLACED : 0) |
			 (h->near ? CODE_FLAG_NEAR : 0) | h->lead << CODE_LEAD_SHIFT);
}

void code_header_encode(const struct code_header *h, const void *stored, struct code_header_disk *ret)
{
	*ret = (struct code_header_disk){
		.version = CODE_VERSION,
		.type = code_type_encode(h->type),
		.map = (uint8_t)h->map,
		.base = (uint8_t)h->base,
		.predict = (uint8_t)h->predict,
		.flags = flags_encode(h),
		.split = (uint8_t)h->split,
		.entropy = (uint8_t)h->entropy,
		.plain_len = le32_put(h->plain_len),
		.stored_len = le32_put(h->stored_len),
		.base_crc = le32_put(h->base_crc),
	};
	memcpy(ret->magic, CODE_MAGIC, sizeof(ret->magic));
	for (unsigned i = 0; i < CODE_NR_STRIDES; i++)
		ret->stride[i] = le32_put(h->stride[i]);
	ret->crc = le32_put(crc_of(ret, stored, h->stored_len));
}

static int place_decode(struct code_header *h, const void *stored)
{
	const struct le32 *place = stored;

	if (h->base == CODE_BASE_NONE || h->stored_len < sizeof(*place))
		return -EBADMSG;
	h->base_place = le32_get(*place);
	if (!code_place_valid(h->base_place))
		return -EBADMSG;
	if (code_place_how(h->base_place) == CODE_PLACE_LEVELS && h->split != CODE_SPLIT_LEVELS)
		return -EBADMSG;
	if ((code_place_how(h->base_place) == CODE_PLACE_MATCHED) != (h->base == CODE_BASE_MATCHED))
		return -EBADMSG;
	if (code_place_is_rounded(code_place_how(h->base_place)) && !twin_type_narrow(h->type))
		return -EBADMSG;
	return code_place_is_widened(code_place_how(h->base_place)) && !twin_type_wide(h->type) ? -EBADMSG : 0;
}

int code_header_decode_fields(const void *p, size_t len, struct code_header *ret)
{
	const struct code_header_disk *d = p;
	struct code_header h;

	if (len < sizeof(*d) || memcmp(d->magic, CODE_MAGIC, sizeof(d->magic)) != 0)
		return -EBADMSG;
	if (d->version != CODE_VERSION)
		return -EOPNOTSUPP;
	h = (struct code_header){
		.map = d->map,
		.base = d->base,
		.predict = d->predict,
		.zigzag = d->flags & CODE_FLAG_ZIGZAG,
		.lead = d->flags >> CODE_LEAD_SHIFT,
		.split = d->split,
		.entropy = d->entropy,
		.plain_len = le32_get(d->plain_len),
		.stored_len = le32_get(d->stored_len),
		.base_crc = le32_get(d->base_crc),
		.near = d->flags & CODE_FLAG_NEAR,
	};
	for (unsigned i = 0; i < CODE_NR_STRIDES; i++)
		h.stride[i] = le32_get(d->stride[i]);
	if (code_type_decode(d->type, &h.type) < 0 || d->flags & ~FLAGS_KNOWN ||
	    !(h.base == CODE_BASE_MATCHED ? matched_valid(&h) : code_steps_valid(&h)))
		return -EBADMSG;
	if ((h.near && h.base != CODE_BASE_MATCHED) || h.lead > h.plain_len || h.plain_len > CODE_PLAIN_MAX)
		return -EBADMSG;
	*ret = h;
	return 0;
}

int code_header_decode_unsummed(const void *p, size_t len, struct code_header *ret)
{
	const struct code_header_disk *d = p;
	struct code_header h;
	int r;

	r = code_header_decode_fields(p, len, &h);
	if (r < 0)
		return r;
	if (h.stored_len != len - sizeof(*d))
		return -EBADMSG;
	if (d->flags & CODE_FLAG_PLACED ? place_decode(&h, d + 1) < 0 : h.base == CODE_BASE_MATCHED)
		return -EBADMSG;
	if (h.base == CODE_BASE_NONE && h.base_crc != 0)
		return -EBADMSG;
	*ret = h;
	return 0;
}

int code_header_decode(const void *p, size_t len, struct code_header *ret)
{
	const struct code_header_disk *d = p;
	struct code_header h;
	int r;

	r = code_header_decode_unsummed(p, len, &h);
	if (r < 0)
		return r;
	if (crc_of(d, d + 1, h.stored_len) != le32_get(d->crc))
		return -EBADMSG;
	*ret = h;
	return 0;
}

unsigned code_sections(const struct code_header *h, uint32_t ret_len[CODE_NR_SECTIONS_MAX])
{
	uint32_t nr = code_nr_elements(h), over = h->plain_len - nr * h->type.width;
	uint32_t plane = h->split == CODE_SPLIT_BITS ? (uint32_t)round_up(nr, 8) : nr;
	unsigned n = 0;

	if (h->split == CODE_SPLIT_LEVELS) {
		uint32_t bits = (nr + 7) / 8;

		ret_len[n++] = code_level_runs(nr) * (uint32_t)sizeof(struct le16);
		ret_len[n++] = (h->stride[0] - 8) * bits;
		while (n < h->type.width + 1)
			ret_len[n++] = nr;
		ret_len[n++] = (15 - h->stride[0]) * bits;
		ret_len[n++] = bits; /* signs: constant in some variables */
	} else if (h->split == CODE_SPLIT_COLUMNS) {
		ret_len[n++] = h->stride[0];
		while (n < 1 + h->stride[0])
			ret_len[n++] = nr / h->stride[0];
		over = nr % h->stride[0];
	} else if (h->split == CODE_SPLIT_NONE)
		ret_len[n++] = nr * h->type.width;
	else
		while (n < h->type.width)
			ret_len[n++] = plane;
	/* one bit per element for the table that was right, and the bytes before and behind the whole elements */
	if (h->predict == CODE_PREDICT_FPC)
		over += (nr + 7) / 8;
	if (over > 0)
		ret_len[n++] = over;
	return n;
}
