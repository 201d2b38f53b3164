/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/codec/code_rig.h"

#include <math.h>

static uint64_t noise(uint64_t n)
{
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

struct layout {
	unsigned exponent, mantissa; /* bits */
};

static struct layout layout_of(struct code_type t)
{
	static const struct layout ieee[] = { [2] = { 5, 10 }, [4] = { 8, 23 }, [8] = { 11, 52 } };

	return t.class == CODE_BFLOAT ? (struct layout){ 8, 7 } :
	       t.class == CODE_FLOAT  ? ieee[t.width] :
					(struct layout){ 1, t.width * 8 - 2 };
}

static uint64_t smooth(struct code_type t, size_t i)
{
	double d = sin((double)i / 50) * 100 + 3;
	float f = (float)d;
	uint64_t bits = 0;
	uint32_t small;

	memcpy(&small, &f, 4);
	memcpy(&bits, &d, 8);
	return t.class != CODE_FLOAT && t.class != CODE_BFLOAT ? (uint64_t)(int64_t)d :
	       t.width == 8				       ? bits :
	       t.width == 4				       ? small :
								 small >> 16;
}

static uint64_t element(enum pattern pattern, struct code_type t, size_t i)
{
	struct layout l = layout_of(t);
	uint64_t sign = (uint64_t)(noise(i) & 1) << (l.exponent + l.mantissa);
	uint64_t infinity = ((UINT64_C(1) << l.exponent) - 1) << l.mantissa;
	uint64_t payload = (UINT64_C(1) << l.mantissa) - 1;
	const uint64_t edges[] = { 0, UINT64_C(1) << (l.exponent + l.mantissa), infinity, infinity - 1, 1, payload };

	switch (pattern) {
	case ZEROS:
		return 0;
	case ONES:
		return UINT64_MAX;
	case SMOOTH:
		return smooth(t, i);
	case COUNTING:
		return (uint64_t)i * 3 - 100;
	case NANS:
		return sign | infinity | MAX(noise(i) & payload, UINT64_C(1));
	case DENORMALS:
		return sign | (noise(i * 7) & payload);
	case EDGES:
		return sign | edges[i % ARRAY_SIZE(edges)];
	case SINGLE_BITS:
		return UINT64_C(1) << (i % (t.width * 8));
	default:
		return noise(i + 1);
	}
}

void fill_pattern(enum pattern pattern, struct code_type t, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i += t.width) {
		uint64_t x = element(pattern, t, i / t.width);

		for (unsigned b = 0; b < t.width && i + b < len; b++)
			p[i + b] = (uint8_t)(x >> 8 * (t.big_endian ? t.width - 1 - b : b));
	}
}

int next_spec(struct code_type type, unsigned *at, struct coder_spec *ret)
{
	static const uint32_t strides[][CODE_NR_STRIDES] = {
		{ 0 }, { 1 }, { 2 }, { 40 }, { 1, 37 }, { 1, 10, 170 }, { CODE_PLAIN_MAX }, { CODE_LEVEL_BITS_MIN },
		{ 11 }, { CODE_LEVEL_BITS_MAX }
	};
	enum { FIRST_LEVELS = 7 }; /* of strides: bits of levels */
	const unsigned all = NR_CODE_MAPS * NR_CODE_BASES * NR_CODE_PREDICTS * 2 * NR_CODE_SPLITS * NR_CODE_ENTROPIES *
			     (unsigned)ARRAY_SIZE(strides);

	while (*at < all) {
		unsigned n = (*at)++;
		struct coder_spec s = { .level = 1 };

		s.steps.type = type;
		s.steps.map = n % NR_CODE_MAPS;
		n /= NR_CODE_MAPS;
		s.steps.base = n % NR_CODE_BASES;
		n /= NR_CODE_BASES;
		s.steps.predict = n % NR_CODE_PREDICTS;
		n /= NR_CODE_PREDICTS;
		s.steps.zigzag = n % 2;
		n /= 2;
		s.steps.split = n % NR_CODE_SPLITS;
		n /= NR_CODE_SPLITS;
		s.steps.entropy = n % NR_CODE_ENTROPIES;
		n /= NR_CODE_ENTROPIES;
		if ((s.steps.split == CODE_SPLIT_LEVELS) != (n >= FIRST_LEVELS))
			continue;
		memcpy(s.steps.stride, strides[n], sizeof(s.steps.stride));
		if (!code_steps_valid(&s.steps))
			continue;
		*ret = s;
		return 1;
	}
	return 0;
}

int work_rig_new(void **state, size_t size)
{
	struct code_work **rig = calloc(1, size);

	*rig = code_work_new();
	*state = rig;
	return *rig ? 0 : -1;
}

int work_rig_free(void **state)
{
	struct code_work **rig = *state;

	code_work_free(*rig);
	free(rig);
	return 0;
}
