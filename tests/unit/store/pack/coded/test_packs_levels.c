/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parts that take the levels of others, and no more of these: what is read from which part, and what damage reaches. */
#include "tests/unit/store/pack/coded_rig.h"
#include "store/codec/coding.h"

#define ROW (3 * PACK_PART_BYTES) /* of each of three versions, the newest first */
#define NR (3 * ROW / 4096)

/* Floats with equal exponents and first bits; the rest is noise. */
static void fill_versions(uint8_t *p)
{
	uint32_t x = 4711, y;

	for (uint32_t i = 0; i < 3 * ROW; i += 4) {
		x = x * 1664525 + 1013904223;
		if (i < ROW) {
			y = (100 + (x >> 28)) << 23 | (x >> 5 & 0x7fffff);
		} else {
			memcpy(&y, p + i - ROW, 4);
			y ^= x >> 12;
		}
		memcpy(p + i, &y, 4);
	}
}

static void series_init(struct coded *s, struct pack_parts *parts)
{
	uint8_t *stored = malloc(PACK_FRAME_BYTES + CODE_BLOCK_MAX(PACK_PART_BYTES));
	struct code_work *w = code_work_new();
	struct pack_frame *f;
	uint32_t at = 0;

	coded_init(s);
	fill_versions(s->bytes);
	*parts = (struct pack_parts){ 0 };
	for (uint32_t i = 0; i < 9; i++) {
		struct coder_spec spec = coding_by_levels((struct code_type){ CODE_FLOAT, 4, false });
		uint32_t newest = i % 3, start = newest > 0 ? parts->end[newest - 1] : 0;
		int n;

		if (i >= 3) {
			size_t levels = code_levels_end(stored + start, parts->end[newest] - start);

			spec.steps.base = CODE_BASE_SUB;
			spec.steps.base_place = parts->base[i] =
				code_place_levels(newest * PACK_PART_BYTES, (uint32_t)levels);
		}
		n = code_encode(w, &spec, s->bytes + i * PACK_PART_BYTES, PACK_PART_BYTES,
				s->bytes + newest * PACK_PART_BYTES, PACK_PART_BYTES, stored + at);
		assert_in_range(n, 1, PACK_PART_BYTES - 1);
		at += (uint32_t)n;
		parts->end[i] = at;
	}
	f = coded_open(s, NR);
	assert_int_equal(packs_frame_write_coded(s->rig.p, f, stored, parts), 0);
	rig_sync(&s->rig);
	code_work_free(w);
	free(stored);
}

static void every_version_comes_back(void **state)
{
	struct pack_parts parts;
	struct coded s;

	(void)state;
	series_init(&s, &parts);
	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < NR; i++)
			assert_int_equal(coded_read(&s, i, 1), 0);
		for (uint32_t i = 0; i < NR; i += 16)
			assert_int_equal(coded_read(&s, i, MIN(NR - i, 50u)), 0);
		assert_int_equal(coded_read(&s, 0, NR), 0);
		rig_reopen(&s.rig); /* without the table in memory */
	}
	coded_release(&s);
}

static uint64_t read_bytes(const struct coded *s)
{
	struct pack_stats stats;

	packs_stats(s->rig.p, &stats);
	return stats.read_bytes;
}

/* Of the newest version no more is read than its levels, and the blocks that these begin and end in. */
static void levels_are_all_that_is_read(void **state)
{
	struct pack_parts parts;
	struct coded s;
	uint64_t before, own, levels;

	(void)state;
	series_init(&s, &parts);
	assert_int_equal(coded_read(&s, 0, 1), 0);
	rig_reopen(&s.rig);
	assert_int_equal(coded_read(&s, 2 * ROW / 4096 + CODED_PER_PART, 1), 0); /* its table comes with it */
	before = read_bytes(&s);
	assert_int_equal(coded_read(&s, ROW / 4096 + CODED_PER_PART, 1), 0);
	own = parts.end[4] - parts.end[3];
	levels = code_place_stored(parts.base[4]);
	assert_in_range(levels, 256, PACK_PART_BYTES / 4);
	assert_in_range(read_bytes(&s) - before, own + levels - 256, own + levels + 4 * PACK_BLOCK);
	coded_release(&s);
}

static void junk(struct coded *s, const struct pack_parts *parts, uint32_t part, uint32_t at)
{
	flip_byte(&s->rig, 1, pack_data_off(0) + (part == 0 ? 0 : parts->end[part - 1]) + at);
	rig_reopen(&s->rig);
}

/* Behind its levels the newest may be damaged; where they are, all that take them are lost, and told to be. */
static void damage_reaches_as_far_as_levels(void **state)
{
	struct pack_scrub *scrub = malloc(sizeof(*scrub));
	struct pack_parts parts;
	struct coded s;

	(void)state;
	series_init(&s, &parts);
	junk(&s, &parts, 1, 3 * PACK_PART_BYTES / 4);
	for (uint32_t i = 0; i < NR; i += 3)
		assert_int_equal(coded_read(&s, i, 1), i / CODED_PER_PART == 1 ? -EBADMSG : 0);
	junk(&s, &parts, 1, 4000);
	for (uint32_t i = 0; i < NR; i += 3)
		assert_int_equal(coded_read(&s, i, 1), i / CODED_PER_PART % 3 == 1 ? -EBADMSG : 0);
	assert_int_equal(packs_scrub_frame(s.rig.p, 1, 0, scrub), 1);
	for (uint32_t i = 0; i < NR; i++)
		assert_int_equal(scrub->bad[i / 64] >> i % 64 & 1, i / CODED_PER_PART % 3 == 1);
	free(scrub);
	coded_release(&s);
}

static void what_others_take_levels_of_stays(void **state)
{
	struct pack_parts parts;
	struct coded s;

	(void)state;
	memset(coded_gone, 0, sizeof(coded_gone));
	series_init(&s, &parts);
	s.rig.conf.fate = coded_mark_gone;
	coded_free(&s, 0, ROW / 4096, NR); /* the newest */
	rig_reopen(&s.rig);
	for (uint32_t i = ROW / 4096; i < NR; i++)
		assert_int_equal(coded_read(&s, i, 1), 0);
	coded_release(&s);
}

static void a_damaged_table_is_repaired(void **state)
{
	static const uint32_t where[][2] = { { 8, 8 }, { 108, 64 }, { 44, 64 }, { 0, 256 } };

	(void)state;
	memset(coded_gone, 0, sizeof(coded_gone));
	for (size_t i = 0; i < ARRAY_SIZE(where); i++) {
		struct pack_parts parts;
		struct coded s;

		series_init(&s, &parts);
		coded_repair_without(&s, where[i][0], where[i][1]);
		for (uint32_t k = 0; k < NR; k += 5)
			assert_int_equal(coded_read(&s, k, 1), 0);
		coded_release(&s);
	}
}

/* A later version may know of levels that are elsewhere, or of those of what has a base itself. */
static void other_levels_are_refused(void **state)
{
	static const struct coded_word words[] = {
		{ 0x90100000, 0 },
		{ 0x9ff20000, 0 },
		{ 0x90000000, -EOPNOTSUPP }, /* no bytes */
		{ 0x90100100, -EOPNOTSUPP }, /* not where a part begins */
		{ 0x90130000, -EOPNOTSUPP }, /* of one that has a base */
		{ 0x90140000, -EBADMSG }, /* the part itself */
		{ 0xa0100000, -EOPNOTSUPP },
	};
	struct pack_parts parts;
	struct coded s;

	(void)state;
	series_init(&s, &parts);
	coded_try_words(&s, 4, words, ARRAY_SIZE(words));
	coded_release(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_version_comes_back),	    cmocka_unit_test(levels_are_all_that_is_read),
		cmocka_unit_test(damage_reaches_as_far_as_levels),  cmocka_unit_test(what_others_take_levels_of_stays),
		cmocka_unit_test(a_damaged_table_is_repaired),	    cmocka_unit_test(other_levels_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
