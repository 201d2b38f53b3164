/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cdc.h"
#include "base/cdc_scan.h"
#include "base/checksum.h"
#include "base/le.h"
#include "base/log.h"
#include "base/util.h"

#define MAX_CUTS 10000

static const struct cdc_params all_params[] = {
	{ 512, 4096, 32768 }, { 256, 512, 1024 },   { 256, 1024, 4096 },
	{ 1000, 3000, 9999 }, { 2048, 4096, 8192 }, { 16384, 65536, 1048576 },
};

/* Data that is the same on every machine. */

static uint64_t next(uint64_t *seed) /* splitmix64 */
{
	uint64_t n = *seed += 0x9e3779b97f4a7c15;

	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

static void fill_noise(uint64_t seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(next(&seed) >> 40);
}

/* Little-endian 32-bit numbers, each one more than the last. */
static void fill_counters(uint64_t seed, uint8_t *p, size_t len)
{
	uint32_t first = (uint32_t)(next(&seed) % 100000);

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((first + i / 4) >> i % 4 * 8);
}

/* Doubles between 1 and 2: the two highest bytes of eight nearly always the same. */
static void fill_doubles(uint64_t seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = i % 8 == 7 ? 0x3f : i % 8 == 6 ? 0xf0 | (next(&seed) & 15) : next(&seed) & 255;
}

static void fill_text(uint64_t seed, uint8_t *p, size_t len)
{
	static const char words[8][8] = { "step ", "energy ", "of the ", "cell\n", "rank ", "is ", "12.5\n", "to " };

	for (size_t i = 0; i < len;)
		for (const char *w = words[next(&seed) & 7]; *w && i < len; w++)
			p[i++] = (uint8_t)*w;
}

static void fill_flags(uint64_t seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = next(&seed) & 1;
}

/* Islands of noise in zeros. */
static void fill_sparse(uint64_t seed, uint8_t *p, size_t len)
{
	memset(p, 0, len);
	for (size_t i = next(&seed) % 20000, n; i + 3000 < len; i += 3000 + next(&seed) % 40000) {
		n = next(&seed) % 3000;
		fill_noise(seed, p + i, n);
	}
}

static void (*const fills[])(uint64_t seed, uint8_t *p, size_t len) = {
	fill_noise, fill_counters, fill_doubles, fill_text, fill_flags, fill_sparse,
};

/* Returns the number of cuts; `ends` has room for `max`. */
static size_t cut_all(const struct cdc *c, const uint8_t *p, size_t len, size_t max, size_t *ends)
{
	size_t n = 0, off = 0, cut;

	while ((cut = cdc_cut(c, p + off, len - off)) > 0) {
		assert_true(n < max);
		ends[n++] = off += cut;
	}
	return n;
}

static void parameters_out_of_range_are_refused(void **state _unused_)
{
	static const struct {
		struct cdc_params params;
		int r;
	} t[] = {
		{ { 512, 4096, 32768 }, 0 },
		{ { 256, 512, 1024 }, 0 },
		{ { 256, 524288, 1048576 }, 0 },
		{ { 262144, 524288, 1048576 }, 0 },
		{ { 255, 512, 1024 }, -EINVAL },
		{ { 0, 4096, 32768 }, -EINVAL },
		{ { 257, 513, 2048 }, -EINVAL },
		{ { 512, 4096, 8191 }, -EINVAL },
		{ { 512, 4096, 1048577 }, -EINVAL },
		{ { 512, UINT32_MAX, 1048576 }, -EINVAL },
		{ { UINT32_MAX, UINT32_MAX, UINT32_MAX }, -EINVAL },
		{ { 0, 0, 0 }, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(cdc_params_check(&t[i].params), t[i].r);
}

/* Cuts of past and future stores: if these change, what is stored is not found again. */
static void cuts_are_the_same_forever_and_everywhere(void **state _unused_)
{
	static const struct {
		size_t params, fill;
		size_t nr, first, last;
		uint32_t crc; /* of all ends, as le32 */
	} t[] = {
		{ 0, 0, 258, 5089, 1045138, 0x5caeff9f },
		{ 0, 1, 229, 3780, 1048260, 0x3fb8cb97 },
		{ 0, 2, 252, 5572, 1047934, 0x7a3c48b3 },
		{ 0, 3, 251, 4813, 1046264, 0xf318b1ec },
		{ 0, 4, 251, 5742, 1048298, 0x1057feaf },
		{ 0, 5, 55, 18776, 1035438, 0x41ae5112 },
		{ 1, 0, 2028, 526, 1048192, 0x04f2b310 },
		{ 2, 0, 1026, 1043, 1047666, 0x39411eef },
		{ 3, 0, 339, 3006, 1047520, 0x1ebf0661 },
		{ 4, 0, 253, 4740, 1045281, 0xc36ecd59 },
		{ 5, 0, 16, 41348, 1033773, 0xb4c2cb2b },
		{ 1, 3, 2033, 526, 1048395, 0x08aba31d },
		{ 2, 1, 834, 704, 1048477, 0x3d5ec9e7 },
		{ 5, 2, 16, 59193, 986228, 0xde9a46f8 },
	};
	static uint8_t p[MiB(1)];
	static size_t ends[MAX_CUTS];
	static struct le32 le[MAX_CUTS];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct cdc c;
		size_t n;

		cdc_init(&c, &all_params[t[i].params]);
		fills[t[i].fill](i, p, sizeof(p));
		n = cut_all(&c, p, sizeof(p), MAX_CUTS, ends);
		for (size_t j = 0; j < n; j++)
			le[j] = le32_put((uint32_t)ends[j]);
		assert_int_equal(n, t[i].nr);
		assert_int_equal(ends[0], t[i].first);
		assert_int_equal(ends[n - 1], t[i].last);
		assert_int_equal(crc32c(le, n * sizeof(*le)), t[i].crc);
	}
}

static void no_chunk_is_shorter_than_min_or_longer_than_max(void **state _unused_)
{
	static uint8_t p[MiB(2)];
	static size_t ends[2 * MAX_CUTS];

	for (size_t i = 0; i < ARRAY_SIZE(all_params); i++) {
		for (size_t f = 0; f < ARRAY_SIZE(fills); f++) {
			struct cdc c;
			size_t n, start = 0;

			cdc_init(&c, &all_params[i]);
			fills[f](i, p, sizeof(p));
			n = cut_all(&c, p, sizeof(p), ARRAY_SIZE(ends), ends);
			for (size_t j = 0; j < n; start = ends[j++]) {
				assert_true(ends[j] - start >= all_params[i].min);
				assert_true(ends[j] - start <= all_params[i].max);
			}
			assert_true(sizeof(p) - start < all_params[i].max);
		}
	}
}

static void chunks_of_noise_have_the_mean_asked_for(void **state _unused_)
{
	static uint8_t p[MiB(8)];
	static size_t ends[40000];

	fill_noise(1, p, sizeof(p));
	for (size_t i = 0; i < ARRAY_SIZE(all_params); i++) {
		uint32_t avg = all_params[i].avg;
		struct cdc c;
		size_t n, mean;

		cdc_init(&c, &all_params[i]);
		n = cut_all(&c, p, sizeof(p), ARRAY_SIZE(ends), ends);
		mean = ends[n - 1] / n;
		assert_in_range(mean, avg - avg / 16, avg + avg / 16);
	}
}

static void equal_bytes_are_cut_at_max(void **state _unused_)
{
	static uint8_t p[32768 + 1];
	struct cdc c;

	cdc_init(&c, &CDC_PARAMS_DEFAULT);
	for (int byte = 0; byte < 256; byte++) {
		memset(p, byte, sizeof(p));
		assert_int_equal(cdc_cut(&c, p, sizeof(p)), 32768);
		assert_int_equal(cdc_cut(&c, p, 32768), 32768);
		assert_int_equal(cdc_cut(&c, p, 32767), 0);
	}
}

static void vectors_are_used_where_there_are_any(void **state _unused_)
{
	struct cdc c;

	cdc_init(&c, &CDC_PARAMS_DEFAULT);
#if defined(__aarch64__)
	assert_true(c.scan == cdc_scan_neon);
#elif defined(__x86_64__)
	assert_true(c.scan == (__builtin_cpu_supports("avx2") ? cdc_scan_avx2 : cdc_scan_scalar));
#endif
}

static void scalar_and_vector_agree(void **state _unused_)
{
	static uint8_t p[40000 + 64];
	uint64_t seed = 1;

	for (int i = 0; i < 3000; i++) {
		size_t off = next(&seed) % 64, len = next(&seed) % (i % 3 ? 3000 : 40000);
		struct cdc c, scalar;

		cdc_init(&c, &all_params[next(&seed) % 5]);
		scalar = c;
		scalar.scan = cdc_scan_scalar;
		fills[next(&seed) % ARRAY_SIZE(fills)](seed, p + off, len);
		assert_int_equal(cdc_cut(&c, p + off, len), cdc_cut(&scalar, p + off, len));
	}
}

/* Between two inaccessible pages. */
static void nothing_outside_the_bytes_is_read(void **state _unused_)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = round_up(70000, page);
	uint8_t *map = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	assert_true(map != MAP_FAILED);
	p = map + page;
	assert_int_equal(mprotect(map, page, PROT_NONE), 0);
	assert_int_equal(mprotect(p + room, page, PROT_NONE), 0);
	for (size_t i = 0; i < 5; i++) {
		struct cdc c, scalar;
		size_t at_end, at_start;

		cdc_init(&c, &all_params[i]);
		scalar = c;
		scalar.scan = cdc_scan_scalar;
		memset(p, 0, room); /* never cut, so that the scan goes to the end */
		for (size_t len = 0; len < 1500; len++) {
			at_end = cdc_cut(&c, p + room - len, len);
			assert_int_equal(at_end, len < c.params.max ? 0 : c.params.max);
		}
		for (uint64_t seed = 0; seed < 200; seed++) {
			size_t len = seed < 100 ? c.params.min + seed : c.params.max - 100 + seed;

			fill_noise(seed, p, room);
			at_end = cdc_cut(&c, p + room - len, len);
			assert_int_equal(at_end, cdc_cut(&scalar, p + room - len, len));
			at_start = cdc_cut(&c, p, len);
			assert_int_equal(at_start, cdc_cut(&scalar, p, len));
		}
	}
	munmap(map, room + 2 * page);
}

static void a_cut_depends_on_nothing_behind_it(void **state _unused_)
{
	static uint8_t p[40000];

	for (uint64_t i = 0; i < 100; i++) {
		struct cdc c;
		size_t cut;

		cdc_init(&c, &all_params[i % 4]);
		fills[i % ARRAY_SIZE(fills)](i, p, sizeof(p));
		cut = cdc_cut(&c, p, sizeof(p));
		assert_true(cut > 0);
		for (size_t len = cut > 300 ? cut - 300 : 0; len < cut; len++)
			assert_int_equal(cdc_cut(&c, p, len), 0);
		fill_noise(~i, p + cut, sizeof(p) - cut);
		for (size_t len = cut; len < cut + 300; len++)
			assert_int_equal(cdc_cut(&c, p, len), cut);
	}
}

/* A reader with a buffer of max bytes that gets the stream in pieces of any size. */
static size_t cut_stream(const struct cdc *c, const uint8_t *p, size_t len, uint64_t seed, size_t *ends)
{
	_cleanup_(freep) uint8_t *buf = malloc(c->params.max);
	size_t n = 0, done = 0, have = 0, cut;

	assert_non_null(buf);
	while (done + have < len) {
		size_t piece = 1 + next(&seed) % c->params.max;

		piece = MIN(piece, c->params.max - have);
		piece = MIN(piece, len - done - have);
		memcpy(buf + have, p + done + have, piece);
		have += piece;
		while ((cut = cdc_cut(c, buf, have)) > 0) {
			ends[n++] = done += cut;
			have -= cut;
			memmove(buf, buf + cut, have);
		}
		assert_true(have < c->params.max); /* there is always room for more */
	}
	return n;
}

static void a_stream_in_pieces_is_cut_as_in_one_go(void **state _unused_)
{
	static uint8_t p[MiB(1)];
	static size_t one_go[MAX_CUTS], pieces[MAX_CUTS];

	for (uint64_t i = 0; i < 3 * ARRAY_SIZE(fills); i++) {
		struct cdc c;
		size_t n;

		cdc_init(&c, &all_params[i % 5]);
		fills[i % ARRAY_SIZE(fills)](i, p, sizeof(p));
		n = cut_all(&c, p, sizeof(p), MAX_CUTS, one_go);
		assert_int_equal(cut_stream(&c, p, sizeof(p), i, pieces), n);
		assert_memory_equal(pieces, one_go, n * sizeof(*one_go));
	}
}

/* Whether the chunk [start, end) is one of those with the given ends. */
static bool has_chunk(const size_t *ends, size_t n, size_t start, size_t end)
{
	for (size_t i = 0; i < n; i++)
		if (ends[i] == end)
			return (i > 0 ? ends[i - 1] : 0) == start;
	return false;
}

/* At `at` in `old` taken_out bytes are replaced by put_in new ones: number of chunks that were not there before. */
static size_t nr_changed(const struct cdc *c, const uint8_t *old, size_t len, size_t at, size_t taken_out,
			 size_t put_in, uint64_t seed)
{
	static uint8_t now[MiB(1)];
	static size_t old_ends[MAX_CUTS], ends[MAX_CUTS];
	size_t nr_old, n, changed = 0, start = 0;

	memcpy(now, old, at);
	fill_noise(seed, now + at, put_in);
	memcpy(now + at + put_in, old + at + taken_out, len - at - taken_out);
	nr_old = cut_all(c, old, len, MAX_CUTS, old_ends);
	n = cut_all(c, now, len - taken_out + put_in, MAX_CUTS, ends);
	for (size_t i = 0; i < n; start = ends[i++]) {
		bool before = ends[i] <= at, behind = start >= at + put_in;

		if (before)
			assert_true(has_chunk(old_ends, nr_old, start, ends[i]));
		else if (!behind ||
			 !has_chunk(old_ends, nr_old, start - put_in + taken_out, ends[i] - put_in + taken_out))
			changed++;
	}
	return changed;
}

static void an_edit_changes_a_few_chunks_near_it(void **state _unused_)
{
	static const struct {
		size_t fill, most, sum; /* of 300 edits: one chunk each cannot be avoided */
	} t[] = {
		{ 0, 7, 339 },
		{ 1, 9, 494 },
		{ 2, 5, 370 },
		{ 3, 7, 349 },
	};
	static uint8_t p[KiB(256)];
	uint64_t seed = 1;
	struct cdc c;

	cdc_init(&c, &CDC_PARAMS_DEFAULT);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		size_t most = 0, sum = 0;

		fills[t[i].fill](i, p, sizeof(p));
		for (int j = 0; j < 300; j++) {
			size_t at = next(&seed) % (sizeof(p) - 100), out = next(&seed) % 100, in = next(&seed) % 100;
			size_t n = nr_changed(&c, p, sizeof(p), at, out, in, next(&seed));

			most = MAX(most, n);
			sum += n;
		}
		assert_int_equal(most, t[i].most);
		assert_int_equal(sum, t[i].sum);
	}
}

/* Wherever cutting begins, soon it cuts where it does when it begins elsewhere. */
static void cuts_meet_again_wherever_they_begin(void **state _unused_)
{
	static uint8_t p[MiB(1)];
	static size_t ends[MAX_CUTS], late[MAX_CUTS];
	size_t n, nr_late, worst = 0, sum = 0, nr = 0;
	struct cdc c;

	cdc_init(&c, &CDC_PARAMS_DEFAULT);
	fill_noise(1, p, sizeof(p));
	n = cut_all(&c, p, sizeof(p), MAX_CUTS, ends);
	for (size_t skip = 1; skip < MiB(1) - KiB(128); skip += 2011) {
		size_t i = 0, j = 0;

		nr_late = cut_all(&c, p + skip, sizeof(p) - skip, MAX_CUTS, late);
		while (i < n && j < nr_late && ends[i] != skip + late[j])
			ends[i] < skip + late[j] ? i++ : j++;
		assert_true(j < nr_late);
		worst = MAX(worst, j);
		sum += j;
		nr++;
		for (; i < n && j < nr_late; i++, j++)
			assert_int_equal(ends[i], skip + late[j]); /* together for ever after */
		assert_int_equal(j, nr_late);
	}
	assert_int_equal(nr, 457);
	assert_int_equal(sum, 520); /* chunks until they meet: little more than one on average */
	assert_int_equal(worst, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parameters_out_of_range_are_refused),
		cmocka_unit_test(cuts_are_the_same_forever_and_everywhere),
		cmocka_unit_test(no_chunk_is_shorter_than_min_or_longer_than_max),
		cmocka_unit_test(chunks_of_noise_have_the_mean_asked_for),
		cmocka_unit_test(equal_bytes_are_cut_at_max),
		cmocka_unit_test(vectors_are_used_where_there_are_any),
		cmocka_unit_test(scalar_and_vector_agree),
		cmocka_unit_test(nothing_outside_the_bytes_is_read),
		cmocka_unit_test(a_cut_depends_on_nothing_behind_it),
		cmocka_unit_test(a_stream_in_pieces_is_cut_as_in_one_go),
		cmocka_unit_test(an_edit_changes_a_few_chunks_near_it),
		cmocka_unit_test(cuts_meet_again_wherever_they_begin),
	};

	return cmocka_run_group_tests_name("cdc", tests, NULL, NULL);
}
