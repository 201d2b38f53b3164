/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The steps for elements of one width. Included by code_steps.c once per width, with WORD, SWORD, BITS and NAME(). */

static void NAME(swap)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		WORD x = a[i], y = 0;

		for (unsigned b = 0; b < BITS; b += 8)
			y = (WORD)(y | (WORD)((x >> b & 0xff)) << (BITS - 8 - b));
		a[i] = y;
	}
}

#define TOP ((WORD)((WORD)1 << (BITS - 1)))

static void NAME(ordered_in)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] ^ ((WORD)((SWORD)a[i] >> (BITS - 1)) | TOP));
}

static void NAME(ordered_out)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] ^ ((WORD) ~((SWORD)a[i] >> (BITS - 1)) | TOP));
}

#undef TOP

static void NAME(rotated_in)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)((WORD)(a[i] << 1) | a[i] >> (BITS - 1));
}

static void NAME(rotated_out)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] >> 1 | (WORD)(a[i] << (BITS - 1)));
}

static void NAME(exclusive)(WORD *restrict a, const WORD *restrict b, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] ^= b[i];
}

static void NAME(minus)(WORD *restrict a, const WORD *restrict b, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] - b[i]);
}

static void NAME(plus)(WORD *restrict a, const WORD *restrict b, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] + b[i]);
}

static void NAME(zigzag_in)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)((WORD)(a[i] << 1) ^ (WORD)((SWORD)a[i] >> (BITS - 1)));
}

static void NAME(zigzag_out)(WORD *restrict a, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		a[i] = (WORD)(a[i] >> 1 ^ (WORD)(0 - (a[i] & 1)));
}

static void NAME(xor_in)(const WORD *restrict a, WORD *restrict ret, size_t nr, size_t stride)
{
	memcpy(ret, a, MIN(stride, nr) * sizeof(WORD));
	for (size_t i = stride; i < nr; i++)
		ret[i] = a[i] ^ a[i - stride];
}

static void NAME(delta_in)(const WORD *restrict a, WORD *restrict ret, size_t nr, size_t stride)
{
	memcpy(ret, a, MIN(stride, nr) * sizeof(WORD));
	for (size_t i = stride; i < nr; i++)
		ret[i] = (WORD)(a[i] - a[i - stride]);
}

/* If elements are far from those they depend on, many are processed at once. */
static void NAME(xor_out)(WORD *a, size_t nr, size_t stride)
{
	WORD last = 0;

	if (stride >= FAR)
		for (size_t row = stride; row < nr; row += stride)
			NAME(exclusive)(a + row, a + row - stride, MIN(stride, nr - row));
	else if (stride == 1) /* the previous one stays in a register */
		for (size_t i = 0; i < nr; i++)
			a[i] = last ^= a[i];
	else
		for (size_t i = stride; i < nr; i++)
			a[i] ^= a[i - stride];
}

static void NAME(delta_out)(WORD *a, size_t nr, size_t stride)
{
	WORD last = 0;

	if (stride >= FAR)
		for (size_t row = stride; row < nr; row += stride)
			NAME(plus)(a + row, a + row - stride, MIN(stride, nr - row));
	else if (stride == 1)
		for (size_t i = 0; i < nr; i++)
			a[i] = last = (WORD)(last + a[i]);
	else
		for (size_t i = stride; i < nr; i++)
			a[i] = (WORD)(a[i] + a[i - stride]);
}

static void NAME(bytes_in)(const WORD *restrict a, uint8_t *restrict ret, size_t nr)
{
	for (unsigned b = 0; b < BITS / 8; b++)
		for (size_t i = 0; i < nr; i++)
			ret[b * nr + i] = (uint8_t)(a[i] >> (BITS - 8 - 8 * b));
}

/* Layout after levels_in(): low 8 bits of the level, then the rest of the element, then the high bits of the level. */
static void NAME(levels_of)(const WORD *restrict a, uint16_t *restrict ret, size_t nr, unsigned bits)
{
	for (size_t i = 0; i < nr; i++)
		ret[i] = (uint16_t)(a[i] >> (BITS - bits));
}

static void NAME(levels_in)(WORD *restrict a, const uint16_t *restrict base, size_t nr, unsigned bits, unsigned first)
{
	const WORD rest = (WORD)(((WORD)1 << (BITS - bits)) - 1), levels = (WORD)(((WORD)1 << bits) - 1);

	for (size_t i = 0; i < nr; i++) {
		WORD above = (WORD)((WORD)(a[i] >> (BITS - bits)) - base[i] - first) & levels;

		a[i] = (WORD)((WORD)(above << (BITS - 8)) | (WORD)((a[i] & rest) << (bits - 8)) | above >> 8);
	}
}

static void NAME(levels_out)(WORD *restrict a, const uint16_t *restrict base, size_t nr, unsigned bits, unsigned first)
{
	const WORD rest = (WORD)(((WORD)1 << (BITS - bits)) - 1), over = (WORD)(((WORD)1 << (bits - 8)) - 1);

	for (size_t i = 0; i < nr; i++) {
		WORD above = (WORD)((WORD)(a[i] >> (BITS - 8)) | (WORD)((a[i] & over) << 8));

		a[i] = (WORD)((WORD)((WORD)(above + base[i] + first) << (BITS - bits)) | (a[i] >> (bits - 8) & rest));
	}
}

#define PLANE(b) ((WORD)((WORD)planes[b][i] << (BITS - 8 - 8 * (b))))

static void NAME(bytes_out)(const uint8_t *const planes[], WORD *restrict ret, size_t nr)
{
	size_t i = 0;

#if BITS == 64
	i = eight_bytes_out(planes, ret, nr);
#elif BITS == 32
	i = four_bytes_out(planes, ret, nr);
#endif
	for (; i < nr; i++) {
		WORD x = PLANE(0);

#if BITS > 8
		x |= PLANE(1);
#endif
#if BITS > 16
		x |= PLANE(2) | PLANE(3);
#endif
#if BITS > 32
		x |= PLANE(4) | PLANE(5) | PLANE(6) | PLANE(7);
#endif
		ret[i] = x;
	}
}

#undef PLANE
#undef WORD
#undef SWORD
#undef BITS
#undef NAME
