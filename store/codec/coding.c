/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/coding.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "store/codec/code_columns.h"
#include "store/codec/match.h"

#define SAMPLE (64u * 1024) /* of a block, from its middle: enough to decide, in a quarter of the time */

#define LEVEL_BYTES 3 /* of zstd, for untyped bytes */

struct candidates {
	struct coder_spec *spec;
	unsigned nr;
};

static void add_candidate(struct candidates *to, struct code_header steps, int level)
{
	assert(to->nr < CODE_CANDIDATES_MAX && code_steps_valid(&steps));
	to->spec[to->nr++] = (struct coder_spec){ .steps = steps, .level = level };
}

/* Use the strides of the shape that occur more than once in a block. */
static void set_strides(struct code_header *h, const struct coding_shape *s)
{
	uint32_t most = CODE_PLAIN_MAX / s->type.width / 2;
	unsigned n = 0;

	h->predict = CODE_PREDICT_DELTA;
	h->stride[n++] = MAX(s->parts, 1u);
	if (s->row > h->stride[0] && s->row <= most)
		h->stride[n++] = s->row;
	if (s->plane > s->row && s->plane <= most)
		h->stride[n++] = s->plane;
}

/* Differences along one axis, and along all axes: far neighbours help some fields and hurt others. */
static void add_deltas(struct candidates *to, const struct coding_shape *s, struct code_header h)
{
	struct code_header one = h;

	one.predict = CODE_PREDICT_DELTA;
	one.zigzag = h.zigzag = true;
	one.stride[0] = MAX(s->parts, 1u);
	add_candidate(to, one, 1);
	set_strides(&h, s);
	if (h.stride[1] == 0)
		return;
	add_candidate(to, h, 1);
	if (h.stride[2] > 0) {
		h.stride[2] = 0;
		add_candidate(to, h, 1);
	}
}

static void add_base(struct candidates *to, const struct coding_shape *s, struct code_header h, bool is_float)
{
	h.base = CODE_BASE_XOR;
	add_candidate(to, h, 1);
	h.base = CODE_BASE_SUB;
	h.zigzag = true;
	/* A rounded value keeps its sign: without the map the result is as small, and faster. */
	if (is_float && s->type.width == 4)
		add_candidate(to, h, CODE_LEVEL_SYMBOLS);
	h.map = is_float ? CODE_MAP_ORDERED : CODE_MAP_NONE;
	add_candidate(to, h, 1);
	set_strides(&h, s);
	add_candidate(to, h, 1);
}

/* Exponent and three bits of the mantissa: more bits hardly carry more information, and 256 levels would be too few for
 * the exponents. */
struct coder_spec coding_by_levels(struct code_type type)
{
	unsigned exponent = type.class == CODE_BFLOAT ? 8 : type.width == 2 ? 5 : type.width == 4 ? 8 : 11;

	return (struct coder_spec){ .steps = { .type = type,
					       .map = CODE_MAP_ROTATED,
					       .split = CODE_SPLIT_LEVELS,
					       .entropy = CODE_ENTROPY_ZSTD,
					       .stride = { MAX(exponent + 3, CODE_LEVEL_BITS_MIN) } },
				    .level = CODE_LEVEL_SYMBOLS };
}

/* For untyped bytes: records, if there are any (for_records()). */
static void add_columns(struct candidates *to, enum code_base base)
{
	struct code_header h = { .type = { CODE_BYTES, 1, false },
				 .base = base,
				 .split = CODE_SPLIT_COLUMNS,
				 .entropy = CODE_ENTROPY_ZSTD,
				 .stride = { CODE_RECORD_MIN } };

	add_candidate(to, h, 1);
	add_candidate(to, h, CODE_LEVEL_SYMBOLS);
}

/* For untyped bytes: arrays of floats, if elements look like that (for_floats()). */
static void add_floats(struct candidates *to)
{
	struct code_header h = { .type = { CODE_FLOAT, 8, false },
				 .split = CODE_SPLIT_BYTES,
				 .entropy = CODE_ENTROPY_ZSTD };

	h.predict = CODE_PREDICT_FPC;
	add_candidate(to, h, 1);
	h.predict = CODE_PREDICT_DELTA;
	h.map = CODE_MAP_ORDERED;
	h.zigzag = true;
	h.stride[0] = 1;
	add_candidate(to, h, 1);
}

unsigned coding_candidates(const struct coding_shape *s, bool with_base, struct coder_spec ret[CODE_CANDIDATES_MAX])
{
	struct code_header bytes = { .type = { CODE_BYTES, 1, false } }, h = { .type = s->type };
	bool is_float = s->type.class == CODE_FLOAT || s->type.class == CODE_BFLOAT;
	struct candidates to = { .spec = ret };

	add_candidate(&to, bytes, 0);
	bytes.entropy = CODE_ENTROPY_LZ4;
	add_candidate(&to, bytes, 0);
	bytes.entropy = CODE_ENTROPY_ZSTD;
	/* For untyped bytes samples are not representative: level 1 is as good on some data and far worse on other. */
	if (s->type.class != CODE_BYTES)
		add_candidate(&to, bytes, 1);
	add_candidate(&to, bytes, LEVEL_BYTES);
	h.entropy = CODE_ENTROPY_ZSTD;
	h.split = CODE_SPLIT_BYTES;
	if (with_base)
		add_base(&to, s, h, is_float);
	if (s->type.width == 1)
		add_columns(&to, with_base ? CODE_BASE_SUB : CODE_BASE_NONE);
	if (s->type.class == CODE_BYTES) {
		if (!with_base)
			add_floats(&to);
		return to.nr;
	}
	add_candidate(&to, h, 1);
	add_candidate(&to, h, 3);
	if (is_float) {
		add_candidate(&to, h, CODE_LEVEL_SYMBOLS);
		h.map = CODE_MAP_ROTATED;
		add_candidate(&to, h, 1);
		add_candidate(&to, h, CODE_LEVEL_SYMBOLS);
		add_candidate(&to, coding_by_levels(s->type).steps, CODE_LEVEL_SYMBOLS);
		h.map = CODE_MAP_NONE;
		h.predict = CODE_PREDICT_XOR;
		h.stride[0] = MAX(s->parts, 1u);
		add_candidate(&to, h, 1);
		h.stride[0] = 0;
		h.predict = CODE_PREDICT_FPC;
		if (s->type.width == 8)
			add_candidate(&to, h, 1);
		h.predict = CODE_PREDICT_NONE;
		h.split = CODE_SPLIT_BITS;
		add_candidate(&to, h, 1);
		h.split = CODE_SPLIT_BYTES;
		h.map = CODE_MAP_ORDERED;
	}
	add_deltas(&to, s, h);
	return to.nr;
}

int coding_init(struct coding *c, struct code_work *work, const struct coding_shape *shape, bool with_base,
		double budget, uint64_t (*cpu_ns)(void))
{
	*c = (struct coding){ .work = work, .cpu_ns = cpu_ns ? cpu_ns : thread_cpu_ns };
	c->room = malloc(CODE_BLOCK_MAX(SAMPLE));
	if (!c->room)
		return -ENOMEM;
	c->is_untyped = shape->type.class == CODE_BYTES;
	c->nr = coding_candidates(shape, with_base, c->spec);
	code_choice_init(&c->choice, c->nr, budget);
	return 0;
}

void coding_release(struct coding *c)
{
	free(c->room);
	c->room = NULL;
}

static struct coder_spec plain_bytes(void)
{
	return (struct coder_spec){ .steps = { .type = { CODE_BYTES, 1, false }, .entropy = CODE_ENTROPY_ZSTD },
				    .level = LEVEL_BYTES };
}

static struct coder_spec in_columns(uint32_t record)
{
	return (struct coder_spec){ .steps = { .type = { CODE_BYTES, 1, false },
					       .split = CODE_SPLIT_COLUMNS,
					       .entropy = CODE_ENTROPY_ZSTD,
					       .stride = { record } },
				    .level = 1 };
}

/* Columns with the record length of this block or, without records, plain bytes. `way` keeps the last record length. */
static struct coder_spec for_records(struct coder_spec *way, const uint8_t *p, size_t len)
{
	uint32_t record = code_columns_find_record(p, len);

	if (record == 0)
		return plain_bytes();
	way->steps.stride[0] = record;
	return *way;
}

/* Elements of the record length of this block or, if no float has it, as for_records(), which is not tried again: a trial
 * stores the bytes. `way` keeps the last width. */
static struct coder_spec for_floats(struct coder_spec *way, bool is_trial, const uint8_t *p, size_t len)
{
	uint32_t record = code_columns_find_record(p, len);

	if (record == 8 || (record == 4 && way->steps.predict != CODE_PREDICT_FPC)) {
		way->steps.type.width = record;
		way->steps.lead = match_guess_lead(p, (uint32_t)len) % record;
		return *way;
	}
	if (is_trial)
		return (struct coder_spec){ .steps = { .type = { CODE_BYTES, 1, false } } };
	return record == 0 ? plain_bytes() : in_columns(record);
}

static int try_one(struct coding *c, const uint8_t *p, size_t len, const uint8_t *base, size_t base_len, void *ret)
{
	struct coder_spec *way = &c->spec[code_choice_next(&c->choice)], spec = *way;
	bool is_trial = code_choice_trying(&c->choice);
	uint64_t from = c->cpu_ns();
	int n;

	if (spec.steps.split == CODE_SPLIT_COLUMNS)
		spec = for_records(way, p, len);
	if (c->is_untyped && spec.steps.type.class == CODE_FLOAT)
		spec = for_floats(way, is_trial, p, len);
	else
		spec.steps.lead = c->lead % spec.steps.type.width;
	spec.steps.base_place = spec.steps.base == CODE_BASE_NONE ? 0 : c->base_place;
	n = code_encode(c->work, &spec, p, len, base, base_len, ret);

	if (n >= 0)
		code_choice_record(&c->choice, len, (uint64_t)n, c->cpu_ns() - from);
	return n;
}

int coding_block(struct coding *c, const void *p, size_t len, const void *base, size_t base_len, void *ret)
{
	size_t sample = MIN(len, (size_t)SAMPLE);
	size_t at = round_down((len - sample) / 2, 8); /* whole elements */
	const uint8_t *b = base_len > at ? (const uint8_t *)base + at : base;
	int n;

	/* A result from a few bytes does not hold for many. */
	if (c->sampled > 0 && sample > 4 * c->sampled)
		code_choice_again(&c->choice);
	if (code_choice_trying(&c->choice))
		c->sampled = MAX(sample, (size_t)1);
	while (code_choice_trying(&c->choice)) {
		n = try_one(c, (const uint8_t *)p + at, sample, b, base_len > at ? base_len - at : 0, c->room);
		if (n < 0)
			return n;
	}
	return try_one(c, p, len, base, base_len, ret);
}

const struct coder_spec *coding_chosen(const struct coding *c)
{
	return &c->spec[c->choice.chosen];
}
