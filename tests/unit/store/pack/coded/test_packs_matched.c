/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parts that name runs of others in their frame: read, damaged, freed and found again like any with a base. */
#include "tests/unit/store/pack/coded_rig.h"

#include "store/codec/matching.h"

#define LEN (12 * PACK_PART_BYTES)
#define NR (LEN / 4096)
#define BACK (5 * PACK_PART_BYTES + 4096) /* from a row to where it was before */

struct frame {
	struct coded c;
	struct pack_parts parts;
};

static void fill(uint8_t *p)
{
	for (uint32_t i = 0; i < LEN / 8; i++) {
		uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

		x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9;
		memcpy(p + 8 * i, i % 100 < 70 && 8 * i >= BACK ? (void *)(p + 8 * i - BACK) : (void *)&x, 8);
	}
}

static void frame_init(struct frame *f)
{
	uint8_t *stored = malloc(MATCHING_ROOM);
	struct code_work *work = code_work_new();
	uint32_t leads[MATCH_PARTS] = { 0 };
	struct pack_frame *to;
	struct matching m;

	*f = (struct frame){ 0 };
	coded_init(&f->c);
	fill(f->c.bytes);
	assert_int_equal(matching_init(&m, work, &(struct coding_shape){ .type = { CODE_UINT, 8, false } }, 0, NULL), 0);
	assert_in_range(matching_frame(&m, f->c.bytes, LEN, leads, stored, f->parts.end, f->parts.base), LEN / 2,
			LEN * 3 / 4);
	to = coded_open(&f->c, NR);
	assert_int_equal(packs_frame_write_coded(f->c.rig.p, to, stored, &f->parts), 0);
	rig_sync(&f->c.rig);
	matching_release(&m);
	code_work_free(work);
	free(stored);
}

/* Parts that it takes to decode this one, itself too: of others what is left in them, and so none of theirs. */
static uint32_t needs(const struct frame *f, uint32_t part)
{
	return 1u << part | code_place_parts(f->parts.base[part]);
}

static void pages_come_back(void **state)
{
	struct frame f;
	unsigned named = 0;

	(void)state;
	frame_init(&f);
	for (uint32_t i = 0; i < LEN / PACK_PART_BYTES; i++) {
		named += code_place_parts(f.parts.base[i]) > 0;
		assert_true(__builtin_popcount(needs(&f, i)) <= (int)MATCH_DECODED_MAX);
	}
	assert_true(named >= 5);
	for (unsigned round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < NR; i += 3)
			assert_int_equal(coded_read(&f.c, i, 1), 0);
		assert_int_equal(coded_read(&f.c, 0, NR), 0);
		assert_int_equal(coded_read(&f.c, NR / 2, NR / 2), 0);
		rig_reopen(&f.c.rig);
		for (uint32_t i = NR; i-- > 0;) /* of what is named there was only what is left so far */
			assert_int_equal(coded_read(&f.c, i, 1), 0);
		rig_reopen(&f.c.rig);
	}
	coded_release(&f.c);
}

static void junk_all(struct frame *f)
{
	for (uint32_t i = 0, start = 0; i < LEN / PACK_PART_BYTES; start = f->parts.end[i++])
		flip_byte(&f->c.rig, 1, pack_data_off(0) + start + 3000);
}

/* The next read finds bytes that were decoded for the last one, although the disk has lost them since. */
static void what_was_decoded_is_held(void **state)
{
	uint32_t part = LEN / PACK_PART_BYTES - 1, named;
	struct frame f;

	(void)state;
	frame_init(&f);
	named = code_place_parts(f.parts.base[part]);
	assert_true(named > 0);
	assert_int_equal(coded_read(&f.c, part * CODED_PER_PART, 1), 0);
	junk_all(&f);
	assert_int_equal(coded_read(&f.c, part * CODED_PER_PART, CODED_PER_PART), 0); /* whole */
	for (uint32_t i = 0; i < part; i++) /* of those that name others there is only what is left */
		if (named >> i & 1)
			assert_int_equal(coded_read(&f.c, i * CODED_PER_PART, 1), f.parts.base[i] > 0 ? -EBADMSG : 0);
	rig_reopen(&f.c.rig);
	assert_int_equal(coded_read(&f.c, part * CODED_PER_PART, 1), -EBADMSG);
	coded_release(&f.c);

	/* a reader of files that end anywhere: what it has read serves those that name it */
	frame_init(&f);
	rig_reopen(&f.c.rig);
	assert_int_equal(coded_read(&f.c, 0, part * CODED_PER_PART), 0);
	for (uint32_t i = 0; i < part; i++)
		flip_byte(&f.c.rig, 1, pack_data_off(0) + (i > 0 ? f.parts.end[i - 1] : 0) + 3000);
	assert_int_equal(coded_read(&f.c, part * CODED_PER_PART, CODED_PER_PART), 0);
	coded_release(&f.c);
}

static void damage_reaches_those_that_need_it(void **state)
{
	struct frame f;

	(void)state;
	for (uint32_t bad = 0; bad < 4; bad++) {
		frame_init(&f);
		flip_byte(&f.c.rig, 1, pack_data_off(0) + (bad > 0 ? f.parts.end[bad - 1] : 0) + 3000);
		rig_reopen(&f.c.rig);
		for (uint32_t part = LEN / PACK_PART_BYTES; part-- > 0;)
			if (part != bad || f.parts.end[bad] - (bad > 0 ? f.parts.end[bad - 1] : 0) < PACK_PART_BYTES)
				assert_int_equal(coded_read(&f.c, part * CODED_PER_PART, 1),
						 needs(&f, part) >> bad & 1 ? -EBADMSG : 0);
		coded_release(&f.c);
	}
}

static void what_is_gone_stays_while_others_need_it(void **state)
{
	struct pack_scrub *scrub = malloc(sizeof(*scrub));
	struct frame f;
	blkcnt_t all;

	(void)state;
	frame_init(&f);
	memset(coded_gone, 0, sizeof(coded_gone));
	f.c.rig.conf.fate = coded_mark_gone;
	rig_reopen(&f.c.rig);
	all = pack_stat(&f.c.rig, 1).st_blocks;
	for (uint32_t part = 0; part < 8; part++) {
		coded_free(&f.c, part * CODED_PER_PART, (part + 1) * CODED_PER_PART, NR);
		for (uint32_t i = (part + 1) * CODED_PER_PART; i < NR; i += 5)
			assert_int_equal(coded_read(&f.c, i, 1), 0);
		assert_int_equal(packs_scrub_frame(f.c.rig.p, 1, 0, scrub), 1);
		assert_int_equal(scrub->bad[0] | scrub->bad[1] | scrub->bad[2] | scrub->bad[3], 0);
	}
	coded_free(&f.c, 0, NR, NR);
	assert_true(pack_stat(&f.c.rig, 1).st_blocks < all / 8);
	free(scrub);
	coded_release(&f.c);
}

static void a_lost_table_is_found_again(void **state)
{
	static const uint32_t lost[][2] = { { 0, 256 }, { 44, 64 }, { 108, 64 } };
	struct frame f;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
		frame_init(&f);
		coded_repair_without(&f.c, lost[i][0], lost[i][1]);
		rig_reopen(&f.c.rig);
		assert_int_equal(coded_read(&f.c, 0, NR), 0);
		coded_release(&f.c);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_come_back),
		cmocka_unit_test(what_was_decoded_is_held),
		cmocka_unit_test(damage_reaches_those_that_need_it),
		cmocka_unit_test(what_is_gone_stays_while_others_need_it),
		cmocka_unit_test(a_lost_table_is_found_again),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_matched", tests, NULL, NULL);
}
