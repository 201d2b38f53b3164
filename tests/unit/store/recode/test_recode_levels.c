/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Steps with equal exponents and new mantissas: all are coded against the levels of the newest, and every byte of every
 * file stays, even if the other files are changed or deleted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "store/codec/code_format.h"
#include "store/engine_state.h"
#include "store/file/content_state.h"
#include "store/pack/pack_format.h"
#include "tests/unit/store/rig.h"

#define HEAD 778u
#define VARIABLE (MiB(1) + KiB(200) + 24)
#define LEN (HEAD + VARIABLE)
#define FIRST 100u
#define STEPS 7u

static const struct coding_shape floats = { .type = { CODE_FLOAT, 4, false } };

static uint64_t noise(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static void fill(uint8_t *p, unsigned step)
{
	rig_pattern(p, LEN, 5);
	for (uint32_t i = 0; i < VARIABLE / 4; i++) {
		uint64_t x = noise(i), y = noise(i + (uint64_t)(step + 1) * VARIABLE);
		uint32_t bits = (uint32_t)(100 + (x >> 60)) << 23 | (uint32_t)(x >> 20 & 0x700000) |
				(uint32_t)(y >> 40 & 0xfffff);

		memcpy(p + HEAD + 4 * i, &bits, 4);
	}
}

/* Bytes of a file that look like a block by levels of a whole part, although they are noise after its header. */
static void forge_block(uint8_t *ret)
{
	const struct coder_spec like = coding_by_levels(floats.type);
	struct code_header h = like.steps;
	uint32_t len[CODE_NR_SECTIONS_MAX], at, nr;
	struct le32 *words = (struct le32 *)(ret + sizeof(struct code_header_disk));

	h.lead = (PACK_BLOCK - HEAD) % 4;
	h.stored_len = PACK_PART_BYTES - sizeof(struct code_header_disk);
	for (h.plain_len = PACK_PART_BYTES, at = 0; at != PACK_PART_BYTES; h.plain_len--) {
		nr = code_sections(&h, len);
		at = sizeof(struct code_header_disk) + nr * sizeof(*words);
		for (unsigned i = 0; i < nr; i++)
			at += len[i];
	}
	h.plain_len++;
	rig_pattern(ret, PACK_PART_BYTES, 77);
	for (unsigned i = 0; i < nr; i++)
		words[i] = le32_put(len[i] | (uint32_t)CODE_SECTION_RAW << 30);
	code_header_encode(&h, words, (struct code_header_disk *)ret);
}

static uint64_t forged_at; /* of the fifth step; 0: it has none */

static void fill_and_forge(uint8_t *p, unsigned step)
{
	fill(p, step);
	if (step == 4 && forged_at > 0)
		forge_block(p + forged_at);
}

static void check_steps(struct rig *rig, unsigned nr, unsigned dropped)
{
	rig_check_steps(rig, FIRST, nr, dropped, LEN, fill_and_forge);
}

struct plan {
	uint64_t inos[STEPS];
	struct compact_extent x[STEPS];
	struct compact_variable variable[STEPS];
	struct compact_result result[STEPS];
};

/* So many steps, written and compacted: how many are coded against others, and what all take. */
static unsigned write_and_compact(struct rig *rig, unsigned nr, uint64_t *ret_after)
{
	struct plan *p = calloc(1, sizeof(*p));
	struct compact_conf conf = { .inos = p->inos,
				     .variable = p->variable,
				     .nr_variables = nr,
				     .result = p->result,
				     .block = KiB(64),
				     .chain = 4 };
	struct compact_report report;
	uint8_t *bytes = malloc(LEN);
	unsigned nr_by_levels = 0;

	for (unsigned i = 0; i < nr; i++) {
		fill_and_forge(bytes, i);
		rig_write_bytes(rig, FIRST + i, bytes, LEN);
		p->inos[i] = FIRST + i;
		p->x[i] = (struct compact_extent){ i, HEAD, VARIABLE };
		p->variable[i] = (struct compact_variable){ "moment", floats, &p->x[i], 1, i, 0 };
	}
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(engine_compact(rig->e, &conf, &report), 0);
	assert_true(report.complete);
	*ret_after = 0;
	for (unsigned i = 0; i < nr; i++) {
		const struct code_header *h = &p->result[i].coder.steps;

		nr_by_levels += h->split == CODE_SPLIT_LEVELS && h->base == CODE_BASE_SUB;
		*ret_after += p->result[i].after;
	}
	free(bytes);
	free(p);
	return nr_by_levels;
}

/* What each part of a step has as its base: levels of whole parts that have none. *ret: of how many. */
static void check_bases(struct rig *rig, unsigned step, unsigned *ret)
{
	struct content *c = rig_content(rig, FIRST + step);
	struct extent_list l = { 0 };

	for (uint64_t off = 0; off < LEN; off += SEGMENT_SIZE) {
		l.nr = 0;
		mutex_lock(&c->lock);
		assert_int_equal(content_extents(c, off, MIN((uint64_t)SEGMENT_SIZE, LEN - off), &l), 0);
		mutex_unlock(&c->lock);
		for (size_t k = 0; k < l.nr; k++) {
			struct addr a = l.x[k].addr;
			struct code_header h;
			uint32_t in;

			if (packs_block_header(rig->e->packs, a, &h, &in) <= 0 || h.base_place == 0)
				continue;
			assert_int_equal(code_place_how(h.base_place), CODE_PLACE_LEVELS);
			assert_int_equal(code_place_off(h.base_place) % PACK_PART_BYTES, 0);
			a.off = a.off - pack_in_frame(a) + code_place_off(h.base_place);
			assert_int_equal(packs_block_header(rig->e->packs, a, &h, &in), 1);
			assert_int_equal(h.base_place, 0);
			(*ret)++;
		}
	}
	extent_list_release(&l);
	content_close(c);
}

static void steps_are_coded_against_levels(void **state)
{
	struct rig *rig = *state;
	unsigned nr = 0, nr_newest = 0;
	uint64_t after;

	assert_int_equal(write_and_compact(rig, 5, &after), 1); /* one row of five */
	/* 27 bits of 32 by itself, 20 against the others; and tables */
	assert_in_range(after, VARIABLE * 5 * 20 / 32, VARIABLE * 5 * 23 / 32);
	for (unsigned i = 0; i < 4; i++)
		check_bases(rig, i, &nr);
	check_bases(rig, 4, &nr_newest);
	assert_true(nr > 0);
	assert_int_equal(nr_newest, 0);
	for (unsigned i = 0; i < 3; i++) {
		check_steps(rig, 5, 0);
		if (i == 0)
			rig_crash(rig);
		else
			rig_fsck(rig); /* and an index from packs and journal */
	}
	assert_int_equal(rig_scrub(rig, &(struct scrub_conf){ .restart = true }).nr_damaged, 0);
}

/* Six are two groups of three, not five and one that is left over. */
static void groups_have_about_as_many(void **state)
{
	struct rig *rig = *state;
	uint64_t after;

	assert_int_equal(write_and_compact(rig, 6, &after), 2);
	check_steps(rig, 6, 0);
}

/* Whichever steps go, in whichever order: the others are there, before and after they have been moved. */
static void steps_go_and_the_others_stay(void **state)
{
	static const unsigned orders[][4] = { { 0, 1, 2, 3 }, { 4, 3, 2, 1 }, { 2, 4, 0, 1 } };
	struct rig *rig = *state;
	uint64_t after;

	for (unsigned o = 0; o < ARRAY_SIZE(orders); o++) {
		unsigned dropped = 0;

		write_and_compact(rig, 5, &after);
		for (unsigned i = 0; i < 4; i++) {
			rig_drop(rig, FIRST + orders[o][i]);
			dropped |= 1u << orders[o][i];
			rig_collect(rig, &(struct gc_conf){ .delete = true, .place = true });
			check_steps(rig, 5, dropped);
			if (i % 2 == 1) {
				unsigned nr = 0;

				rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 100, .place = true });
				rig_crash(rig);
				check_steps(rig, 5, dropped);
				for (unsigned k = 0; k < 4; k++)
					if (!(dropped >> k & 1))
						check_bases(rig, k, &nr);
				/* what came along with the newest is coded against it again */
				assert_true(nr > 0 || i == 3 || dropped & 1u << 4);
			}
		}
		rig_fsck(rig);
		check_steps(rig, 5, dropped);
		for (unsigned i = 0; i < 5; i++)
			rig_drop(rig, FIRST + i);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
	}
}

/* What a part has as it is, as it does not get smaller, may look like a block: it has no levels for others. */
static void bytes_of_a_file_are_no_levels(void **state)
{
	struct rig *rig = *state;
	uint64_t after;

	for (uint64_t page = 1; page <= PACK_PART_BYTES / PACK_BLOCK; page++) {
		forged_at = page * PACK_BLOCK; /* one of them is where a part begins */
		assert_int_equal(write_and_compact(rig, 5, &after), 1);
		check_steps(rig, 5, 0);
		rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = 100 });
		check_steps(rig, 5, 0);
		for (unsigned i = 0; i < 5; i++)
			rig_drop(rig, FIRST + i);
		rig_collect(rig, &(struct gc_conf){ .delete = true });
	}
	forged_at = 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(steps_are_coded_against_levels),
		rig_test(groups_have_about_as_many),
		rig_test(steps_go_and_the_others_stay),
		rig_test(bytes_of_a_file_are_no_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
