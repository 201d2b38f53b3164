/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/twin.h"

#include <string.h>

#include "base/util.h"

#define INFINITY_32 0x7f800000u
#define NAN_BFLOAT 0x7fc0u
#define INFINITY_16 0x7c00u
#define QUIET_16 0x0200u
/* The least value that becomes infinity, and the least that becomes a normal number. */
#define OVERFLOW_16 0x477ff000u
#define NORMAL_16 0x38800000u
#define REBIAS ((127u - 15u) << 23)

bool twin_type_narrow(struct code_type t)
{
	return t.width == 2 && (t.class == CODE_BFLOAT || t.class == CODE_FLOAT);
}

bool twin_type_wide(struct code_type t)
{
	return t.width == 4 && t.class == CODE_FLOAT;
}

/* Drop the lowest `bits`, rounding. A carry goes into the exponent, where it belongs. */
static uint32_t shift_rounded(uint32_t x, unsigned bits)
{
	return (x + ((1u << (bits - 1)) - 1) + (x >> bits & 1)) >> bits;
}

static uint16_t to_bfloat(uint32_t x)
{
	return (x & ~0x80000000u) > INFINITY_32 ? NAN_BFLOAT : (uint16_t)shift_rounded(x, 16);
}

static uint16_t to_half(uint32_t x)
{
	uint32_t sign = x >> 16 & 0x8000u, a = x & ~0x80000000u, shift;

	if (a > INFINITY_32)
		return (uint16_t)(sign | INFINITY_16 | QUIET_16 | (a >> 13 & 0x3ffu));
	if (a >= OVERFLOW_16)
		return (uint16_t)(sign | INFINITY_16);
	if (a >= NORMAL_16)
		return (uint16_t)(sign | shift_rounded(a - REBIAS, 13));
	/* A denormal: the implicit leading one becomes explicit, and moves right with the exponent. */
	shift = 126 - (a >> 23);
	return (uint16_t)(sign | (shift > 24 ? 0 : shift_rounded((a & 0x7fffffu) | 0x800000u, shift)));
}

void twin_round(struct code_type narrow, struct code_type wide_type, const void *wide, size_t nr, void *ret)
{
	const uint8_t *from = wide;
	uint8_t *to = ret;

	assert(twin_type_narrow(narrow) && twin_type_wide(wide_type));
	for (size_t i = 0; i < nr; i++, from += 4, to += 2) {
		uint32_t x;
		uint16_t y;

		memcpy(&x, from, 4);
		if (wide_type.big_endian)
			x = __builtin_bswap32(x);
		y = narrow.class == CODE_BFLOAT ? to_bfloat(x) : to_half(x);
		if (narrow.big_endian)
			y = __builtin_bswap16(y);
		memcpy(to, &y, 2);
	}
}

static uint32_t from_half(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000u) << 16, a = x & 0x7fffu, shift;

	if (a >= INFINITY_16)
		return sign | INFINITY_32 | (a - INFINITY_16) << 13;
	if (a >= 0x400u)
		return sign | ((a << 13) + REBIAS);
	if (a == 0)
		return sign;
	/* A denormal: its leading one becomes implicit. */
	shift = (uint32_t)__builtin_clz(a) - 21;
	return sign | (((a << shift & 0x3ffu) << 13) + REBIAS + (1u << 23) - (shift << 23));
}

/* The common case: a loop that compilers vectorise. */
static void widen_bfloats_le(const uint8_t *from, size_t nr, uint8_t *to)
{
	for (size_t i = 0; i < nr; i++) {
		uint16_t x;
		uint32_t y;

		memcpy(&x, from + 2 * i, 2);
		y = (uint32_t)x << 16;
		memcpy(to + 4 * i, &y, 4);
	}
}

void twin_widen(struct code_type narrow_type, struct code_type wide, const void *narrow, size_t nr, void *ret)
{
	const uint8_t *from = narrow;
	uint8_t *to = ret;

	assert(twin_type_narrow(narrow_type) && twin_type_wide(wide));
	if (narrow_type.class == CODE_BFLOAT && !narrow_type.big_endian && !wide.big_endian) {
		widen_bfloats_le(from, nr, to);
		return;
	}
	for (size_t i = 0; i < nr; i++, from += 2, to += 4) {
		uint16_t x;
		uint32_t y;

		memcpy(&x, from, 2);
		if (narrow_type.big_endian)
			x = __builtin_bswap16(x);
		y = narrow_type.class == CODE_BFLOAT ? (uint32_t)x << 16 : from_half(x);
		if (wide.big_endian)
			y = __builtin_bswap32(y);
		memcpy(to, &y, 4);
	}
}

uint32_t twin_base(enum code_place how, struct code_type type, uint32_t lead, const void *from, uint32_t from_len,
		   uint32_t len, void *ret)
{
	struct code_type other = code_place_type(how);
	uint32_t most = len > lead ? (len - lead) / type.width : 0, nr = MIN(from_len / other.width, most);

	memset(ret, 0, lead);
	if (code_place_is_rounded(how))
		twin_round(type, other, from, nr, (uint8_t *)ret + lead);
	else
		twin_widen(other, type, from, nr, (uint8_t *)ret + lead);
	return lead + nr * type.width;
}

uint64_t twin_sample_at(uint64_t nr)
{
	return nr > TWIN_SAMPLE ? (nr - TWIN_SAMPLE) / 2 : 0;
}

int twin_mark_compare(const struct twin_mark *a, const struct twin_mark *b)
{
	unsigned type_a = code_type_encode(a->narrow), type_b = code_type_encode(b->narrow);

	if (type_a != type_b)
		return type_a < type_b ? -1 : 1;
	if (a->nr != b->nr)
		return a->nr < b->nr ? -1 : 1;
	return memcmp(a->sample, b->sample, sizeof(a->sample));
}
