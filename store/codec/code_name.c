/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "store/codec/code.h"

static void add_step(struct code_name *to, const char *fmt, ...) _printf_(2, 3);

static void add_step(struct code_name *to, const char *fmt, ...)
{
	size_t n = strlen(to->s);
	va_list args;

	if (n > 0 && n + 1 < sizeof(to->s))
		to->s[n++] = ' ';
	va_start(args, fmt);
	vsnprintf(to->s + n, sizeof(to->s) - n, fmt, args);
	va_end(args);
}

static void add_predict(struct code_name *to, const struct code_header *h)
{
	static const char *const names[] = { "", "xor", "delta", "fpc" };

	if (h->predict == CODE_PREDICT_NONE)
		return;
	if (h->stride[0] <= 1 && h->stride[1] == 0)
		add_step(to, "%s", names[h->predict]);
	else if (h->stride[1] == 0)
		add_step(to, "%s(%" PRIu32 ")", names[h->predict], h->stride[0]);
	else if (h->stride[2] == 0)
		add_step(to, "%s(%" PRIu32 ",%" PRIu32 ")", names[h->predict], h->stride[0], h->stride[1]);
	else
		add_step(to, "%s(%" PRIu32 ",%" PRIu32 ",%" PRIu32 ")", names[h->predict], h->stride[0], h->stride[1],
			 h->stride[2]);
}

struct code_name code_name(const struct coder_spec *spec)
{
	static const char *const maps[] = { "", "ordered", "rotated" }, *const bases[] = { "", "xor-base", "sub-base",
											   "matched" };
	static const char *const splits[] = { "", "bytes", "bits", "levels", "columns" };
	const struct code_header *h = &spec->steps;
	struct code_name name = { "" };

	if (h->base == CODE_BASE_MATCHED)
		add_step(&name, "%s", bases[h->base]);
	if (h->map != CODE_MAP_NONE && h->split != CODE_SPLIT_LEVELS)
		add_step(&name, "%s", maps[h->map]);
	if (h->base != CODE_BASE_NONE && h->base != CODE_BASE_MATCHED)
		add_step(&name, "%s", bases[h->base]);
	add_predict(&name, h);
	if (h->zigzag)
		add_step(&name, "zigzag");
	if (h->split == CODE_SPLIT_COLUMNS)
		add_step(&name, "%s(%" PRIu32 ")", splits[h->split], h->stride[0]);
	else if (h->split != CODE_SPLIT_NONE)
		add_step(&name, "%s", splits[h->split]);
	if (h->entropy == CODE_ENTROPY_ZSTD && spec->level == CODE_LEVEL_SYMBOLS)
		add_step(&name, "huffman");
	else if (h->entropy == CODE_ENTROPY_ZSTD)
		add_step(&name, "zstd:%d", spec->level);
	else if (h->entropy == CODE_ENTROPY_LZ4)
		add_step(&name, "lz4");
	else
		add_step(&name, "stored");
	return name;
}

struct code_type_name code_type_name(struct code_type type)
{
	static const char *const classes[] = { "B", "I", "U", "F", "BF" };
	struct code_type_name name;

	snprintf(name.s, sizeof(name.s), "%s%u%s", classes[type.class], type.width * 8,
		 type.width == 1 ? "" :
		 type.big_endian ? "BE" :
				   "LE");
	return name;
}
