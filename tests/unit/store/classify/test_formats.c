/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files of every format (tests/fuzz/corpus/formats, written by tests/apps/typed_files.py) and what is found in them
 * (tests/golden/typed.txt; WRITE_GOLDEN=1 writes it: look at it then).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>

#include "base/util.h"
#include "store/classify/formats.h"
#include "store/classify/pickle.h"

#define FILES TESTS_DIR "/fuzz/corpus/formats"
#define GOLDEN TESTS_DIR "/golden/typed.txt"

static int no_dots(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static uint8_t *read_file(const char *name, size_t *ret_len)
{
	char path[512];
	uint8_t *p = malloc(65536);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", FILES, name);
	f = fopen(path, "r");
	assert_non_null(f);
	*ret_len = fread(p, 1, 65536, f);
	fclose(f);
	return realloc(p, MAX(*ret_len, (size_t)1)); /* so that a sanitizer sees the end */
}

static void print_format(FILE *to, const char *name, int r, const struct typed *t)
{
	fprintf(to, "%s: %s\n", name, r > 0 ? "known" : r == 0 ? "unknown" : strerror(-r));
	for (size_t i = 0; i < t->nr_variables && r > 0; i++) {
		const struct coding_shape *s = &t->variable[i].shape;

		fprintf(to, "  %s row %u plane %u:", t->variable[i].key, s->row, s->plane);
		for (size_t k = 0; k < t->nr_extents; k++)
			if (t->extent[k].variable == i)
				fprintf(to, " %llu+%llu", (unsigned long long)t->extent[k].off,
					(unsigned long long)t->extent[k].len);
		fputc('\n', to);
	}
}

static void what_is_in_files_is_found(void **state)
{
	struct dirent **names;
	char *text = NULL, *want = calloc(1, 65536);
	size_t text_len = 0;
	FILE *to = open_memstream(&text, &text_len), *golden;
	int nr = scandir(FILES, &names, no_dots, alphasort);

	(void)state;
	assert_in_range(nr, 14, 100);
	for (int i = 0; i < nr; i++) {
		size_t len;
		uint8_t *p = read_file(names[i]->d_name, &len);
		struct typed t = TYPED_EMPTY(len);

		print_format(to, names[i]->d_name, format_any(p, len, &t), &t);
		typed_release(&t);
		free(p);
		free(names[i]);
	}
	free(names);
	fclose(to);
	golden = fopen(GOLDEN, getenv("WRITE_GOLDEN") ? "w+" : "r");
	assert_non_null(golden);
	if (getenv("WRITE_GOLDEN")) {
		fputs(text, golden);
		rewind(golden);
	}
	assert_true(fread(want, 1, 65535, golden) > 0);
	fclose(golden);
	assert_string_equal(text, want);
	free(want);
	free(text);
}

/* Cut anywhere, or with any byte changed: an error, or extents that are in the file. */
static void lies_are_found_or_harmless(void **state)
{
	struct dirent **names;
	int nr = scandir(FILES, &names, no_dots, alphasort);
	unsigned nr_errors = 0;

	(void)state;
	for (int i = 0; i < nr; i++) {
		size_t len;
		uint8_t *p = read_file(names[i]->d_name, &len);

		for (size_t at = 0; at < len * 3; at++) {
			size_t n = at < len ? at : len;
			uint8_t *copy = malloc(MAX(n, (size_t)1));
			struct typed t = TYPED_EMPTY(n);
			int r;

			memcpy(copy, p, n);
			if (at >= len)
				copy[at % len] ^= (uint8_t)(at >= 2 * len ? 0x80 : 1);
			r = format_any(copy, n, &t);
			assert_true(r == 0 || r == 1 || r == -EBADMSG || r == -E2BIG);
			for (size_t k = 0; k < t.nr_extents && r > 0; k++)
				assert_true(t.extent[k].off <= n && t.extent[k].len <= n - t.extent[k].off);
			nr_errors += r < 0;
			typed_release(&t);
			free(copy);
		}
		free(p);
		free(names[i]);
	}
	free(names);
	assert_in_range(nr_errors, 1000, 1000000);
}

/* Two tensors that claim the same bytes: one of them lies. */
static void overlapping_variables_are_refused(void **state)
{
	static const char head[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
				   "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}";
	uint8_t file[8 + sizeof(head) - 1 + 12] = { sizeof(head) - 1 };
	struct typed t = TYPED_EMPTY(sizeof(file));

	(void)state;
	memcpy(file + 8, head, sizeof(head) - 1);
	assert_int_equal(format_any(file, sizeof(file), &t), -EBADMSG);
	typed_release(&t);
}

static void a_pickle_runs_nothing_and_ends(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		int r;
	} pickles[] = {
		{ "\x80\2cos\nsystem\nX\4\0\0\0true\x85R.", 30, 0 }, /* a call is a thing */
		{ "\x80\2}.", 4, 0 },
		{ "\x80\2}", 3, -EBADMSG }, /* no end */
		{ "\x80\2(.", 4, -EBADMSG }, /* a mark is no value */
		{ "\x80\2.", 3, -EBADMSG }, /* nothing */
		{ "\x80\2]h\0.", 6, -EBADMSG }, /* not in the memo */
		{ "\x80\2}X\377\377\377\377.", 9, -EBADMSG },
		{ "\x80\2ibuiltins\nexec\n.", 18, -EBADMSG }, /* what torch does not write */
		{ "\x80\2t.", 4, -EBADMSG },
		{ "\x80\2R.", 4, -EBADMSG },
		{ "\x80\2Nu.", 5, -EBADMSG },
		{ "\x80\2}q\0h\0h\0s.", 11, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pickles); i++) {
		struct pickle p;
		int r = pickle_parse((const uint8_t *)pickles[i].bytes, pickles[i].len, &p);

		assert_int_equal(r, pickles[i].r);
		if (r == 0)
			pickle_release(&p);
	}
}

static void fill(uint8_t *p, size_t nr, const char *piece, size_t len)
{
	for (size_t i = 0; i < nr; i++)
		memcpy(p + i * len, piece, len);
}

/* Nested or repeated without an end in sight: they end, in bounded memory and without a stack that grows with them. */
static void a_pickle_has_limits(void **state)
{
	const size_t len = 8000000;
	static const struct {
		const char *piece;
		size_t piece_len;
		int r;
	} cases[] = {
		{ "(", 1, -E2BIG }, /* marks in marks */
		{ "]", 1, -E2BIG },
		{ "]0", 2, -E2BIG }, /* nodes without a parent */
		{ "Nr\377\377\377\1770", 7, -EBADMSG }, /* a memo with two thousand million places */
		{ "N\x85", 2, -E2BIG }, /* a tuple in a tuple in a tuple */
		{ "(t", 2, -E2BIG },
	};
	uint8_t *p = malloc(len);
	struct pickle pickle;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fill(p, len / cases[i].piece_len, cases[i].piece, cases[i].piece_len);
		assert_int_equal(pickle_parse(p, len / cases[i].piece_len * cases[i].piece_len, &pickle), cases[i].r);
	}
	free(p);
}

/* A state of torch. Its pickle has this many nested dictionaries, and the innermost one is empty. */
static size_t deep_torch(uint8_t *file, uint32_t depth)
{
	static const char name[] = "a/data.pkl";
	uint32_t name_len = sizeof(name) - 1, len = 4 * depth + 2, at = 30 + name_len;
	uint8_t *pickle = file + at, *entry = pickle + len, *end = entry + 46 + name_len;

	memset(file, 0, at + len + 46 + name_len + 22);
	memcpy(file, "PK\3\4", 4);
	file[26] = (uint8_t)name_len;
	memcpy(file + 30, name, name_len);
	fill(pickle, depth, "}K\1", 3); /* a dictionary, and a name in it */
	pickle[3 * depth] = '}';
	fill(pickle + 3 * depth + 1, depth, "s", 1);
	pickle[4 * depth + 1] = '.';
	memcpy(entry, "PK\1\2", 4);
	memcpy(entry + 20, &len, 4);
	memcpy(entry + 24, &len, 4);
	entry[28] = (uint8_t)name_len;
	memcpy(entry + 46, name, name_len);
	memcpy(end, "PK\5\6", 4);
	end[10] = 1;
	len = 46 + name_len;
	memcpy(end + 12, &len, 4);
	len = (uint32_t)(entry - file);
	memcpy(end + 16, &len, 4);
	return (size_t)(end + 22 - file);
}

static void deep_files_end(void **state)
{
	static const char braces[] = "{\"__metadata__\":";
	const size_t head = sizeof(braces) - 1, depth = 900000;
	uint8_t *p = calloc(1, 2 * depth + 100);
	struct typed t;

	(void)state;
	/* 90000 dictionaries: known, without a variable */
	t = TYPED_EMPTY(deep_torch(p, 90000));
	assert_int_equal(format_any(p, t.size, &t), 1);
	assert_int_equal(t.nr_variables, 0);
	typed_release(&t);

	/* JSON in JSON, which is not closed, and which is */
	memcpy(p, &(uint64_t){ head + 2 * depth + 1 }, 8);
	memcpy(p + 8, braces, head);
	memset(p + 8 + head, '[', 2 * depth);
	p[8 + head + 2 * depth] = '}';
	t = TYPED_EMPTY(8 + head + 2 * depth + 1);
	assert_int_equal(format_any(p, t.size, &t), -EBADMSG);
	memset(p + 8 + head + depth, ']', depth);
	assert_int_equal(format_any(p, t.size, &t), 1);
	typed_release(&t);
	free(p);
}

/* Sizes with products, sums or ends beyond 64 bits. */
static void sizes_that_wrap_are_lies(void **state)
{
	static const struct {
		const char *head;
		int r;
	} cases[] = {
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", -EBADMSG },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693953],\"data_offsets\":[0,8]}}", -EBADMSG },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[18446744073709551608,18446744073709551615]}}",
		  -EBADMSG },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,0]}}", -EBADMSG },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", -EBADMSG },
		{ "{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t head = strlen(cases[i].head), len = 8 + head + 8;
		uint8_t *p = calloc(1, len);
		struct typed t = TYPED_EMPTY(len);

		memcpy(p, &(uint64_t){ head }, 8);
		memcpy(p + 8, cases[i].head, head);
		assert_int_equal(format_any(p, len, &t), cases[i].r);
		typed_release(&t);
		free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_in_files_is_found),
		cmocka_unit_test(lies_are_found_or_harmless),
		cmocka_unit_test(overlapping_variables_are_refused),
		cmocka_unit_test(a_pickle_runs_nothing_and_ends),
		cmocka_unit_test(a_pickle_has_limits),
		cmocka_unit_test(deep_files_end),
		cmocka_unit_test(sizes_that_wrap_are_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
