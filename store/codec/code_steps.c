/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_steps.h"

#include <string.h>

#include "base/util.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are loaded as they lie");

#define FAR 16 /* elements */

/* Exchange the upper half of each 2 * `bits` of one word with the lower half of the other. */
static void exchange(uint64_t *one, uint64_t *other, unsigned bits, uint64_t low)
{
	uint64_t t = (*one >> bits ^ *other) & low;

	*other ^= t;
	*one ^= t << bits;
}

/* Byte j of a[i] becomes byte i of a[j], of eight words. Unrolled by hand: compilers do not unroll the loops. */
static void transpose_bytes(uint64_t a[8])
{
	exchange(&a[0], &a[4], 32, 0x00000000ffffffff);
	exchange(&a[1], &a[5], 32, 0x00000000ffffffff);
	exchange(&a[2], &a[6], 32, 0x00000000ffffffff);
	exchange(&a[3], &a[7], 32, 0x00000000ffffffff);
	exchange(&a[0], &a[2], 16, 0x0000ffff0000ffff);
	exchange(&a[1], &a[3], 16, 0x0000ffff0000ffff);
	exchange(&a[4], &a[6], 16, 0x0000ffff0000ffff);
	exchange(&a[5], &a[7], 16, 0x0000ffff0000ffff);
	exchange(&a[0], &a[1], 8, 0x00ff00ff00ff00ff);
	exchange(&a[2], &a[3], 8, 0x00ff00ff00ff00ff);
	exchange(&a[4], &a[5], 8, 0x00ff00ff00ff00ff);
	exchange(&a[6], &a[7], 8, 0x00ff00ff00ff00ff);
}

/* Join eight planes, eight elements at a time. Returns the number of elements done. */
static size_t eight_bytes_out(const uint8_t *const planes[], uint64_t *ret, size_t nr)
{
	size_t i = 0;

	for (; i + 8 <= nr; i += 8) {
		uint64_t a[8];

		for (unsigned b = 0; b < 8; b++)
			memcpy(&a[7 - b], planes[b] + i, sizeof(a[0]));
		transpose_bytes(a);
		memcpy(ret + i, a, sizeof(a));
	}
	return i;
}

/* Four planes, sixteen elements at a time. From a plain loop compilers make shifts of words, not of bytes. */
static size_t four_bytes_out(const uint8_t *const planes[], uint32_t *ret, size_t nr)
{
	size_t i = 0;

#if __has_builtin(__builtin_shufflevector)
	typedef uint8_t bytes __attribute__((vector_size(16)));
	typedef uint16_t pairs __attribute__((vector_size(16)));

	for (; i + 16 <= nr; i += 16) {
		bytes p[4];
		pairs low[2], high[2], out[4];

		for (unsigned b = 0; b < 4; b++)
			memcpy(&p[b], planes[b] + i, sizeof(p[b]));
		low[0] = (pairs)__builtin_shufflevector(p[3], p[2], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
							23);
		low[1] = (pairs)__builtin_shufflevector(p[3], p[2], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
							30, 15, 31);
		high[0] = (pairs)__builtin_shufflevector(p[1], p[0], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
							 23);
		high[1] = (pairs)__builtin_shufflevector(p[1], p[0], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
							 30, 15, 31);
		for (unsigned k = 0; k < 2; k++) {
			out[2 * k] = __builtin_shufflevector(low[k], high[k], 0, 8, 1, 9, 2, 10, 3, 11);
			out[2 * k + 1] = __builtin_shufflevector(low[k], high[k], 4, 12, 5, 13, 6, 14, 7, 15);
		}
		memcpy(ret + i, out, sizeof(out));
	}
#endif
	return i;
}

/* Bit j of byte i becomes bit i of byte j. */
static uint64_t transpose(uint64_t x)
{
	uint64_t t;

	t = (x ^ x >> 7) & 0x00aa00aa00aa00aa;
	x ^= t ^ t << 7;
	t = (x ^ x >> 14) & 0x0000cccc0000cccc;
	x ^= t ^ t << 14;
	t = (x ^ x >> 28) & 0x00000000f0f0f0f0;
	return x ^ t ^ t << 28;
}

/* Join eight bit planes, 64 elements at a time. Returns the number of bytes of each plane done. */
static size_t eight_bits_out(const uint8_t *planes, uint8_t *ret, size_t bits, size_t nr)
{
	size_t i = 0;

	for (; 8 * (i + 8) <= nr; i += 8) {
		uint64_t a[8];

		for (unsigned b = 0; b < 8; b++)
			memcpy(&a[7 - b], planes + b * bits + i, sizeof(a[0]));
		transpose_bytes(a);
		for (unsigned k = 0; k < 8; k++)
			a[k] = transpose(a[k]);
		memcpy(ret + 8 * i, a, sizeof(a));
	}
	return i;
}

#define WORD uint8_t
#define SWORD int8_t
#define BITS 8
#define NAME(f) f##_8
#include "store/codec/code_words.h"

#define WORD uint16_t
#define SWORD int16_t
#define BITS 16
#define NAME(f) f##_16
#include "store/codec/code_words.h"

#define WORD uint32_t
#define SWORD int32_t
#define BITS 32
#define NAME(f) f##_32
#include "store/codec/code_words.h"

#define WORD uint64_t
#define SWORD int64_t
#define BITS 64
#define NAME(f) f##_64
#include "store/codec/code_words.h"

#define FOR_WIDTH(width, f, ...)             \
	do {                                 \
		switch (width) {             \
		case 1:                      \
			f##_8(__VA_ARGS__);  \
			break;               \
		case 2:                      \
			f##_16(__VA_ARGS__); \
			break;               \
		case 4:                      \
			f##_32(__VA_ARGS__); \
			break;               \
		default:                     \
			f##_64(__VA_ARGS__); \
		}                            \
	} while (0)

void code_swap(void *a, size_t nr, unsigned width)
{
	FOR_WIDTH(width, swap, a, nr);
}

void code_map_in(void *a, size_t nr, unsigned width, enum code_map map)
{
	if (map == CODE_MAP_ORDERED)
		FOR_WIDTH(width, ordered_in, a, nr);
	else if (map == CODE_MAP_ROTATED)
		FOR_WIDTH(width, rotated_in, a, nr);
}

void code_map_out(void *a, size_t nr, unsigned width, enum code_map map)
{
	if (map == CODE_MAP_ORDERED)
		FOR_WIDTH(width, ordered_out, a, nr);
	else if (map == CODE_MAP_ROTATED)
		FOR_WIDTH(width, rotated_out, a, nr);
}

void code_base_in(void *a, const void *b, size_t nr, unsigned width, enum code_base base)
{
	if (base == CODE_BASE_XOR)
		FOR_WIDTH(width, exclusive, a, b, nr);
	else if (base == CODE_BASE_SUB)
		FOR_WIDTH(width, minus, a, b, nr);
}

void code_base_out(void *a, const void *b, size_t nr, unsigned width, enum code_base base)
{
	if (base == CODE_BASE_XOR)
		FOR_WIDTH(width, exclusive, a, b, nr);
	else if (base == CODE_BASE_SUB)
		FOR_WIDTH(width, plus, a, b, nr);
}

void code_zigzag_in(void *a, size_t nr, unsigned width)
{
	FOR_WIDTH(width, zigzag_in, a, nr);
}

void code_zigzag_out(void *a, size_t nr, unsigned width)
{
	FOR_WIDTH(width, zigzag_out, a, nr);
}

void code_xor_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride)
{
	FOR_WIDTH(width, xor_in, a, ret, nr, stride);
}

void code_xor_out(void *a, size_t nr, unsigned width, size_t stride)
{
	FOR_WIDTH(width, xor_out, a, nr, stride);
}

void code_delta_in(const void *a, void *ret, size_t nr, unsigned width, size_t stride)
{
	FOR_WIDTH(width, delta_in, a, ret, nr, stride);
}

void code_delta_out(void *a, size_t nr, unsigned width, size_t stride)
{
	FOR_WIDTH(width, delta_out, a, nr, stride);
}

void code_levels_of(const void *a, uint16_t *ret, size_t nr, unsigned width, unsigned bits)
{
	FOR_WIDTH(width, levels_of, a, ret, nr, bits);
}

void code_levels_in(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first)
{
	FOR_WIDTH(width, levels_in, a, base, nr, bits, first);
}

void code_levels_out(void *a, const uint16_t *base, size_t nr, unsigned width, unsigned bits, unsigned first)
{
	FOR_WIDTH(width, levels_out, a, base, nr, bits, first);
}

void code_bytes_in(const void *a, uint8_t *ret, size_t nr, unsigned width)
{
	FOR_WIDTH(width, bytes_in, a, ret, nr);
}

void code_bytes_out(const uint8_t *const planes[], void *ret, size_t nr, unsigned width)
{
	FOR_WIDTH(width, bytes_out, planes, ret, nr);
}

void code_bits_in(const void *a, uint8_t *ret, size_t nr, unsigned width)
{
	size_t bits = (nr + 7) / 8; /* bytes of a bit plane */
	const uint8_t *p = a;

	for (unsigned b = 0; b < width; b++, ret += 8 * bits)
		for (size_t i = 0; i < bits; i++) {
			const uint8_t *from = p + 8 * i * width + (width - 1 - b);
			size_t n = MIN(nr - 8 * i, (size_t)8);
			uint64_t x = 0;

			for (size_t k = 0; k < n; k++)
				x |= (uint64_t)from[k * width] << 8 * k;
			x = transpose(x);
			for (unsigned k = 0; k < 8; k++)
				ret[(7 - k) * bits + i] = (uint8_t)(x >> 8 * k);
		}
}

void code_bits_out(const uint8_t *planes, void *ret, size_t nr, unsigned width)
{
	size_t bits = (nr + 7) / 8;
	uint8_t *p = ret;

	for (unsigned b = 0; b < width; b++, planes += 8 * bits)
		for (size_t i = width == 1 ? eight_bits_out(planes, p, bits, nr) : 0; i < bits; i++) {
			uint8_t *to = p + 8 * i * width + (width - 1 - b);
			size_t n = MIN(nr - 8 * i, (size_t)8);
			uint64_t x = 0;

			for (unsigned k = 0; k < 8; k++)
				x |= (uint64_t)planes[(7 - k) * bits + i] << 8 * k;
			x = transpose(x);
			for (size_t k = 0; k < n; k++)
				to[k * width] = (uint8_t)(x >> 8 * k);
		}
}

/*
 * After Burtscher and Ratanaworabhan, FPC (2009): one table predicts the value from the last values, the other from the
 * last differences. FPC packs the non-zero bytes of each element; here byte planes do this for all elements together.
 */
struct fpc {
	struct code_fpc_tables *t;
	uint64_t fcm_at, dfcm_at, last;
};

static struct fpc fpc_start(struct code_fpc_tables *t)
{
	memset(t, 0, sizeof(*t));
	return (struct fpc){ .t = t };
}

static void fpc_learn(struct fpc *f, uint64_t x)
{
	uint64_t delta = x - f->last;

	f->t->fcm[f->fcm_at] = x;
	f->fcm_at = (f->fcm_at << 6 ^ x >> 48) % CODE_FPC_ENTRIES;
	f->t->dfcm[f->dfcm_at] = delta;
	f->dfcm_at = (f->dfcm_at << 2 ^ delta >> 40) % CODE_FPC_ENTRIES;
	f->last = x;
}

void code_fpc_in(struct code_fpc_tables *t, const uint64_t *a, uint64_t *ret, size_t nr, uint8_t *which)
{
	struct fpc f = fpc_start(t);

	memset(which, 0, (nr + 7) / 8);
	for (size_t i = 0; i < nr; i++) {
		uint64_t one = a[i] ^ t->fcm[f.fcm_at], other = a[i] ^ (t->dfcm[f.dfcm_at] + f.last);

		ret[i] = MIN(one, other);
		which[i / 8] |= (uint8_t)((other < one) << i % 8);
		fpc_learn(&f, a[i]);
	}
}

void code_fpc_out(struct code_fpc_tables *t, uint64_t *a, size_t nr, const uint8_t *which)
{
	struct fpc f = fpc_start(t);

	for (size_t i = 0; i < nr; i++) {
		a[i] ^= which[i / 8] >> i % 8 & 1 ? t->dfcm[f.dfcm_at] + f.last : t->fcm[f.fcm_at];
		fpc_learn(&f, a[i]);
	}
}
