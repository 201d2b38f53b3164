/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Parts of a frame that are coded against others of it: everything that can be done to frames goes on as before. */
#include "tests/unit/store/pack/coded_rig.h"
#include "store/codec/twin.h"

#define STEP (3 * PACK_PART_BYTES) /* of a variable, in each of five versions: as compacting lays them */
#define NR (5 * STEP / 4096)

/* Each version is the one before it, changed in one byte of 16: against that one it is nearly nothing, by itself it
 * does not shrink. */
static void fill_versions(uint8_t *p)
{
	uint32_t x = 12345;

	for (uint32_t i = 0; i < STEP; i++) {
		x = x * 1664525 + 1013904223;
		p[i] = (uint8_t)(x >> 24);
	}
	for (uint32_t i = STEP; i < 5 * STEP; i++)
		p[i] = p[i - STEP] ^ (i % 16 == 5 ? (uint8_t)(i >> 8) : 0);
}

static void series_init(struct coded *s)
{
	struct pack_frame *f;

	coded_init(s);
	fill_versions(s->bytes);
	f = coded_open(s, NR);
	write_coded_against(&s->rig, f, s->bytes, 5 * STEP, 0, STEP);
	rig_sync(&s->rig);
}

static void every_version_comes_back(void **state)
{
	struct coded s;

	(void)state;
	series_init(&s);
	assert_in_range(s.rig.marks.counts.stored_bytes, STEP, 2 * STEP + STEP / 8); /* five of them */
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

static void junk_part(struct coded *s, uint32_t part)
{
	struct pack_frame_rec rec;

	assert_int_equal(packs_frame_rec(s->rig.p, 1, 0, &rec), 1);
	flip_byte(&s->rig, 1, pack_data_off(0) + (part == 0 ? 0 : rec.part_end[part - 1]) + 50);
}

/* A page needs the block that it is in and those that this is coded against, one of each version: not their
 * neighbours. */
static void a_page_needs_its_chain_and_nothing_else(void **state)
{
	struct coded s;

	(void)state;
	series_init(&s);
	for (uint32_t part = 3; part < 15; part += 3)
		junk_part(&s, part);
	rig_reopen(&s.rig);
	for (uint32_t i = 0; i < NR; i += 5)
		assert_int_equal(coded_read(&s, i, 1), i >= 3 * CODED_PER_PART && i / CODED_PER_PART % 3 == 0 ? -EBADMSG : 0);
	coded_release(&s);
}

/* What is coded against a damaged part is lost with it; what that was coded against is not. */
static void damage_reaches_what_is_coded_against_it(void **state)
{
	struct pack_scrub *scrub = malloc(sizeof(*scrub));
	struct coded s;

	(void)state;
	series_init(&s);
	junk_part(&s, 6); /* of the third version */
	rig_reopen(&s.rig);
	assert_int_equal(coded_read(&s, 12 * CODED_PER_PART, 1), -EBADMSG);
	assert_true(packs_is_damaged(s.rig.p, (struct addr){ .pack = 1, .off = pack_data_off(0) + 6 * PACK_PART_BYTES }));
	for (uint32_t i = 0; i < NR; i += 4)
		assert_int_equal(coded_read(&s, i, 1), i / CODED_PER_PART % 3 == 0 && i / CODED_PER_PART >= 6 ? -EBADMSG : 0);
	assert_int_equal(packs_scrub_frame(s.rig.p, 1, 0, scrub), 1);
	for (uint32_t i = 0; i < NR; i++)
		assert_int_equal(scrub->bad[i / 64] >> i % 64 & 1, i / CODED_PER_PART % 3 == 0 && i / CODED_PER_PART >= 6);
	free(scrub);
	coded_release(&s);
}

/* The first version does not get smaller: it is stored as it is, and has no checksum of its own. */
static void a_damaged_base_is_reported_where_it_is(void **state)
{
	struct addr page = { .pack = 1, .off = pack_data_off(0) };
	struct coded s;

	(void)state;
	series_init(&s);
	junk_part(&s, 0);
	rig_reopen(&s.rig);
	assert_int_equal(coded_read(&s, 3 * CODED_PER_PART, 1), -EBADMSG); /* the second version */
	assert_true(packs_is_damaged(s.rig.p, page));
	page.off += 4096;
	assert_false(packs_is_damaged(s.rig.p, page));
	coded_release(&s);
}

/* --- what is gone --- */

static void version_goes(struct coded *s, uint32_t version)
{
	coded_free(s, version * STEP / 4096, (version + 1) * STEP / 4096, NR);
}

/* Three are freed in every order: the others can be read, and the disk keeps a freed one until none needs it. */
static void what_is_gone_stays_while_others_need_it(void **state)
{
	static const uint32_t orders[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 4, 0, 2 }, { 1, 3, 0 } };
	struct pack_scrub *scrub = malloc(sizeof(*scrub));

	(void)state;
	for (size_t o = 0; o < ARRAY_SIZE(orders); o++) {
		struct coded s;

		series_init(&s);
		memset(coded_gone, 0, sizeof(coded_gone));
		s.rig.conf.fate = coded_mark_gone;
		rig_reopen(&s.rig);
		for (unsigned i = 0; i < 3; i++) {
			version_goes(&s, orders[o][i]);
			if (i == 1)
				rig_reopen(&s.rig);
			for (uint32_t k = 0; k < NR; k += 7)
				assert_int_equal(coded_read(&s, k, 1), coded_gone[k / 64] >> k % 64 & 1 ? -EBADMSG : 0);
			assert_int_equal(packs_scrub_frame(s.rig.p, 1, 0, scrub), 1);
			assert_int_equal(scrub->bad[0] | scrub->bad[1] | scrub->bad[2] | scrub->bad[3], 0);
		}
		coded_release(&s);
	}
	free(scrub);
}

static void space_comes_back_with_the_last_that_needs_it(void **state)
{
	struct coded s;
	blkcnt_t all;

	(void)state;
	series_init(&s);
	memset(coded_gone, 0, sizeof(coded_gone));
	all = pack_stat(&s.rig, 1).st_blocks;
	version_goes(&s, 0);
	assert_int_equal(pack_stat(&s.rig, 1).st_blocks, all);
	version_goes(&s, 4);
	version_goes(&s, 3);
	version_goes(&s, 2);
	assert_in_range(pack_stat(&s.rig, 1).st_blocks * 512, STEP, all * 512);
	version_goes(&s, 1);
	assert_true(pack_stat(&s.rig, 1).st_blocks * 512 <= 4 * 4096);
	coded_release(&s);
}

/* --- tables --- */

static void a_lost_table_is_found_again(void **state)
{
	static const uint32_t lost[][2] = { { 0, 512 }, { 44, 64 }, { 108, 64 }, { 100, 72 }, { 512, 512 } };
	struct coded s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++) {
		series_init(&s);
		coded_repair_without(&s, lost[i][0], lost[i][1]);
		if (lost[i][0] + lost[i][1] <= 256) { /* else fingerprints are lost, which files know */
			rig_reopen(&s.rig);
			assert_int_equal(coded_read(&s, 100, NR - 100), 0);
		}
		coded_release(&s);
	}
}

/* Every word of the table's bases, sealed or not: none is followed out of the frame. */
static void bases_that_cannot_be_are_refused(void **state)
{
	static const struct coded_word words[] = {
		{ 1, -EOPNOTSUPP },
		{ 0x10100000, -EOPNOTSUPP }, /* beyond any frame */
		{ 0x90000000, -EOPNOTSUPP },
		{ 0x40008000, -EOPNOTSUPP }, /* the last part */
		{ 0x40000008, -EBADMSG }, /* the part itself */
		{ 0x40010007, -EOPNOTSUPP },
		{ 0x40000007, 0 },
		{ 0xffffffff, -EOPNOTSUPP },
		{ 0x10000000 | STEP, -EBADMSG }, /* the part itself */
		{ 0x20000000 | (STEP - 1), 0 },
		{ 0x80000000 | STEP, -EBADMSG }, /* the part itself */
		{ 0x80000000 | (STEP - 1), 0 },
	};
	struct pack_table_disk d;
	struct coded s;
	int fd;

	(void)state;
	series_init(&s);
	coded_try_words(&s, 3, words, ARRAY_SIZE(words));
	fd = openat(s.rig.dirfd, pack_name(1).s, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &d, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	/* one that could be, but is another than the block's own: what it would need is not there */
	d.base[3] = le32_put(code_place(CODE_PLACE_SAME, PACK_PART_BYTES));
	d.seal = le64_put(pack_table_seal(&d, &s.rig.key));
	assert_int_equal(pwrite(fd, &d, PACK_BLOCK, pack_table_off(0)), PACK_BLOCK);
	close(fd);
	rig_reopen(&s.rig);
	assert_int_equal(coded_read(&s, 3 * CODED_PER_PART, 1), -EBADMSG);
	coded_release(&s);
}

/* --- rounded and widened --- */

#define LEAD 1u
#define OFF 5u
/* 64 KiB less the lead, of 16-bit floats, and the 32-bit ones that they were rounded from, in two parts before, from an
 * odd byte on. */
static void code_rounded(enum code_place how, uint8_t *p, uint8_t *ret, struct pack_parts *parts)
{
	struct code_type narrow = { CODE_BFLOAT, 2, false }, wide = { CODE_FLOAT, 4, how == CODE_PLACE_ROUNDED_BE };
	struct coder_spec spec = { .steps = { .type = narrow,
					      .base = CODE_BASE_XOR,
					      .split = CODE_SPLIT_BYTES,
					      .entropy = CODE_ENTROPY_LZ4,
					      .lead = LEAD } };
	uint32_t nr = (PACK_PART_BYTES - LEAD) / 2, at = 2 * PACK_PART_BYTES;
	uint8_t *base = malloc(PACK_PART_BYTES);
	struct code_work *w = code_work_new();
	int n;

	for (uint32_t i = 0, x = 99; i < at; i++, x = x * 1664525 + 1013904223)
		p[i] = (uint8_t)(x >> 24);
	p[at] = 77;
	/* the frame has one less than all: of the last two bytes nothing is known */
	twin_round(narrow, wide, p + OFF, nr - 1, p + at + LEAD);
	memset(p + at + PACK_PART_BYTES - 3, 1, 3);
	memset(base, 0, PACK_PART_BYTES);
	memcpy(base + LEAD, p + at + LEAD, 2 * (nr - 1));
	spec.steps.base_place = code_place(how, OFF);
	memcpy(ret, p, at);
	n = code_encode(w, &spec, p + at, PACK_PART_BYTES, base, LEAD + 2 * (nr - 1), ret + at);
	assert_in_range(n, 1, 2000);
	*parts = (struct pack_parts){ .end = { PACK_PART_BYTES, at, at + (uint32_t)n },
				      .base = { [2] = code_place(how, OFF) } };
	code_work_free(w);
	free(base);
}

/* 64 KiB less the lead: 32-bit floats with noise in the lower bits, and the 16-bit floats that they were rounded to. */
static void code_widened(enum code_place how, uint8_t *p, uint8_t *ret, struct pack_parts *parts)
{
	struct code_type narrow = code_place_type(how), wide = { CODE_FLOAT, 4, true };
	struct coder_spec spec = { .steps = { .type = wide,
					      .base = CODE_BASE_SUB,
					      .zigzag = true,
					      .split = CODE_SPLIT_BYTES,
					      .entropy = CODE_ENTROPY_LZ4,
					      .lead = LEAD } };
	uint32_t nr = (PACK_PART_BYTES - LEAD) / 4, at = 2 * PACK_PART_BYTES;
	uint8_t *base = calloc(1, PACK_PART_BYTES);
	struct code_work *w = code_work_new();
	int n;

	for (uint32_t i = 0, x = 99; i < at + PACK_PART_BYTES; i++, x = x * 1664525 + 1013904223)
		p[i] = (uint8_t)(x >> 24);
	twin_widen(narrow, wide, p + OFF, nr, base + LEAD);
	for (uint32_t i = 0; i < nr; i++) { /* rounded down: the upper half is that of the base, or nearly */
		memcpy(p + at + LEAD + 4 * i, base + LEAD + 4 * i, narrow.class == CODE_BFLOAT ? 2 : 3);
		p[at + LEAD + 4 * i + 2] &= 0x7f;
	}
	spec.steps.base_place = code_place(how, OFF);
	memcpy(ret, p, at);
	n = code_encode(w, &spec, p + at, PACK_PART_BYTES, base, LEAD + 4 * nr, ret + at);
	assert_in_range(n, 1, PACK_PART_BYTES / 2 + 2000);
	*parts = (struct pack_parts){ .end = { PACK_PART_BYTES, at, at + (uint32_t)n },
				      .base = { [2] = code_place(how, OFF) } };
	code_work_free(w);
	free(base);
}

static void a_base_may_be_rounded_or_widened(void **state)
{
	uint8_t *p = aligned_bytes(3 * PACK_PART_BYTES), *stored = malloc(4 * PACK_PART_BYTES), *got = malloc(4096);

	(void)state;
	for (enum code_place how = CODE_PLACE_ROUNDED_LE; how <= CODE_PLACE_WIDENED_FLOAT_BE; how++) {
		struct pack_parts parts;
		struct pack_frame *f;
		struct rig rig;
		struct addr a = ADDR_NONE;

		if (how == CODE_PLACE_MATCHED)
			continue;
		rig_init(&rig, (struct packs_conf){ .table_memory = MiB(1) });
		(code_place_is_rounded(how) ? code_rounded : code_widened)(how, p, stored, &parts);
		assert_int_equal(packs_frame_open(rig.p, PACK_BULK, 4096, &f), 0);
		for (uint32_t i = 0; i < 3 * CODED_PER_PART; i++)
			a = pack_frame_add(f, fp_of(&rig.key, p + i * 4096, 4096), p + i * 4096);
		assert_int_equal(packs_frame_write_coded(rig.p, f, stored, &parts), 0);
		rig_sync(&rig);
		for (unsigned round = 0; round < 2; round++) {
			assert_int_equal(packs_read(rig.p, a, 4096, got), 0);
			assert_memory_equal(got, p + 3 * PACK_PART_BYTES - 4096, 4096);
			rig_reopen(&rig);
		}
		rig_release(&rig);
	}
	free(p);
	free(stored);
	free(got);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_version_comes_back),
		cmocka_unit_test(a_page_needs_its_chain_and_nothing_else),
		cmocka_unit_test(damage_reaches_what_is_coded_against_it),
		cmocka_unit_test(a_damaged_base_is_reported_where_it_is),
		cmocka_unit_test(what_is_gone_stays_while_others_need_it),
		cmocka_unit_test(space_comes_back_with_the_last_that_needs_it),
		cmocka_unit_test(a_lost_table_is_found_again),
		cmocka_unit_test(bases_that_cannot_be_are_refused),
		cmocka_unit_test(a_base_may_be_rounded_or_widened),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("packs_bases", tests, NULL, NULL);
}
