/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Records split into columns, and how long records are found to be. */
#include "tests/unit/store/codec/code_rig.h"

#include <errno.h>
#include <math.h>

#include "base/checksum.h"
#include "store/codec/code_columns.h"
#include "store/codec/coding.h"

#define LEN 65536
#define ATOM 88

struct rig {
	struct code_work *work;
	uint8_t plain[LEN + 8], base[LEN + 8], block[CODE_BLOCK_MAX(LEN)], got[LEN + 1];
};

static int rig_new(void **state)
{
	return work_rig_new(state, sizeof(struct rig));
}

static struct coder_spec columns(uint32_t record, enum code_base base)
{
	return (struct coder_spec){ .steps = { .type = { CODE_BYTES, 1, false },
					       .base = base,
					       .split = CODE_SPLIT_COLUMNS,
					       .entropy = CODE_ENTROPY_ZSTD,
					       .stride = { record } },
				    .level = 1 };
}

static double uniform(void)
{
	return (double)rand() / RAND_MAX + (double)rand() / RAND_MAX * 0x1p-31;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform() + 1e-12)) * cos(6.283185307179586 * uniform());
}

/* As LAMMPS writes atoms: how many doubles follow, place, number, type, group, image, speed; from byte `from` on. */
static void fill_atoms(uint8_t *p, size_t len, size_t from)
{
	for (size_t at = from, i = 0; at + ATOM <= len; at += ATOM, i++) {
		uint64_t whole[4] = { i + 1, 1, 1, 537395712 };
		double atom[11] = { 11 };

		for (unsigned k = 0; k < 3; k++) {
			atom[1 + k] = (double)(i / 100) * 0.1 + uniform();
			atom[8 + k] = 1.7 * normal();
		}
		memcpy(&atom[4], whole, sizeof(whole));
		memcpy(p + at, atom, ATOM);
	}
}

static void round_trip(struct rig *rig, const struct coder_spec *spec, size_t len, size_t base_len)
{
	int n = code_encode(rig->work, spec, rig->plain, len, rig->base, base_len, rig->block);

	assert_in_range(n, 1, CODE_BLOCK_MAX(len));
	memset(rig->got, 0xee, sizeof(rig->got));
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, rig->base, base_len, rig->got, len), (int)len);
	assert_memory_equal(rig->got, rig->plain, len);
	assert_int_equal(rig->got[len], 0xee);
}

/* Of any length, with a base that ends anywhere in them, or none. */
static void all_records_come_back(void **state)
{
	struct rig *rig = *state;

	srand(1);
	for (uint32_t record = CODE_RECORD_MIN; record <= CODE_RECORD_MAX; record++)
		for (unsigned pattern = 0; pattern < 6; pattern++) {
			size_t len = pattern == 0 ? record - 1 : pattern == 1 ? record : record * 20 + (size_t)rand() % 100;
			struct coder_spec spec = columns(record, pattern % 2 ? CODE_BASE_SUB : CODE_BASE_NONE);

			/* columns that stay, that count, that are those of the base with little changed, and noise */
			for (size_t i = 0; i < len; i++) {
				unsigned column = (unsigned)(i % record) % 4;

				rig->base[i] = (uint8_t)rand();
				rig->plain[i] = (uint8_t)(column == 0 ? 7u :
							  column == 1 ? i / record :
							  column == 2 ? rig->base[i] + (rand() % 8 == 0 ? 1u : 0u) :
									(unsigned)rand());
			}
			round_trip(rig, &spec, len, pattern % 2 ? len * pattern / 5 : 0);
		}
}

static void records_are_found_wherever_they_begin(void **state)
{
	struct rig *rig = *state;

	srand(2);
	for (size_t from = 0; from < 8; from += 3) {
		fill_atoms(rig->plain, LEN, from);
		assert_int_equal(code_columns_find_record(rig->plain, LEN), ATOM);
	}
	for (size_t i = 0; i < LEN; i++) /* floats of 4 bytes, in three dimensions and with a byte more: 13 */
		rig->plain[i] = (uint8_t)(i % 13 == 12 ? 1 : i % 13 % 4 == 3 ? 0x3f : rand());
	assert_int_equal(code_columns_find_record(rig->plain, LEN), 13);
	for (size_t i = 0; i + 8 <= LEN; i += 8) {
		double x = normal();

		memcpy(rig->plain + i, &x, 8);
	}
	assert_int_equal(code_columns_find_record(rig->plain, LEN), 8);
}

static void what_are_no_records_is_reported(void **state)
{
	struct rig *rig = *state;

	srand(3);
	memset(rig->plain, 0, LEN);
	assert_int_equal(code_columns_find_record(rig->plain, LEN), 0);
	for (size_t i = 0; i < LEN; i++)
		rig->plain[i] = (uint8_t)rand();
	assert_int_equal(code_columns_find_record(rig->plain, LEN), 0);
	assert_int_equal(code_columns_find_record(rig->plain, 100), 0);
	for (size_t i = 0; i < LEN; i++) /* long runs */
		rig->plain[i] = (uint8_t)(i / 1000);
	assert_int_equal(code_columns_find_record(rig->plain, LEN), 0);
}

/* 36 of 88 bytes are noise, and 5 more what is left of exponents: general compressors leave 48 and more. */
static void atoms_of_which_nothing_is_known_are_small(void **state)
{
	const struct coding_shape bytes = { .type = { CODE_BYTES, 1, false } };
	struct coder_spec zstd = { .steps = { .type = bytes.type, .entropy = CODE_ENTROPY_ZSTD }, .level = 3 };
	struct rig *rig = *state;
	struct coding c;
	int n = 0, plain;

	srand(4);
	fill_atoms(rig->plain, LEN, 5);
	assert_int_equal(coding_init(&c, rig->work, &bytes, false, 0, NULL), 0);
	for (unsigned i = 0; i < 8; i++)
		n = coding_block(&c, rig->plain, LEN, NULL, 0, rig->block);
	assert_int_equal(coding_chosen(&c)->steps.split, CODE_SPLIT_COLUMNS);
	assert_int_equal(coding_chosen(&c)->steps.stride[0], ATOM);
	assert_memory_equal(code_name(coding_chosen(&c)).s, "columns(88) ", 12); /* zstd:1 or huffman, as time tells */
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, LEN), LEN);
	assert_memory_equal(rig->got, rig->plain, LEN);
	coding_release(&c);
	plain = code_encode(rig->work, &zstd, rig->plain, LEN, NULL, 0, rig->block);
	assert_in_range(n, LEN * 40 / ATOM, LEN * 43 / ATOM);
	assert_in_range(plain, LEN * 47 / ATOM, LEN);
}

/* Numbers and places hardly change, speeds do: each column is taken from the base or not, as it pays. */
static void columns_take_what_pays_of_a_base(void **state)
{
	struct rig *rig = *state;
	struct coder_spec spec = columns(ATOM, CODE_BASE_NONE);
	int alone, against;

	srand(5);
	fill_atoms(rig->base, LEN, 0);
	memcpy(rig->plain, rig->base, LEN);
	for (size_t at = 0; at + ATOM <= LEN; at += ATOM)
		for (unsigned k = 64; k < ATOM; k++)
			rig->plain[at + k] ^= k % 8 == 7 ? 0 : (uint8_t)rand();
	alone = code_encode(rig->work, &spec, rig->plain, LEN, NULL, 0, rig->block);
	spec = columns(ATOM, CODE_BASE_SUB);
	round_trip(rig, &spec, LEN, LEN);
	against = code_encode(rig->work, &spec, rig->plain, LEN, rig->base, LEN, rig->block);
	assert_in_range(against, LEN * 20 / ATOM, LEN * 24 / ATOM);
	assert_in_range(alone, against * 3 / 2, LEN);
	rig->base[1000] ^= 1;
	assert_int_equal(code_decode(rig->work, rig->block, (size_t)against, rig->base, LEN, rig->got, LEN), -EBADMSG);
}

static void steps_that_are_no_columns_are_refused(void **state)
{
	struct code_header good = columns(24, CODE_BASE_SUB).steps, h;

	(void)state;
	assert_true(code_steps_valid(&good));
	for (unsigned i = 0; i < 6; i++) {
		h = good;
		switch (i) {
		case 0: h.type = (struct code_type){ CODE_UINT, 1, false }; break;
		case 1: h.base = CODE_BASE_XOR; break;
		case 2: h.predict = CODE_PREDICT_DELTA; break;
		case 3: h.stride[0] = CODE_RECORD_MIN - 1; break;
		case 4: h.stride[0] = CODE_RECORD_MAX + 1; break;
		default: h.stride[1] = 1;
		}
		assert_false(code_steps_valid(&h));
	}
}

/* A block that says that columns are stored in a way there is none, or against a base that it has not. */
static void columns_stored_in_no_known_way_are_refused(void **state)
{
	const size_t how = sizeof(struct code_header_disk) + 5 * sizeof(struct le32); /* 4 columns, and how each is stored */
	struct rig *rig = *state;
	struct coder_spec spec = columns(4, CODE_BASE_NONE);
	struct code_header_disk *d = (struct code_header_disk *)rig->block;
	int n;

	spec.steps.entropy = CODE_ENTROPY_NONE;
	for (size_t i = 0; i < 400; i++)
		rig->plain[i] = (uint8_t)(i % 4 == 1 ? i / 4 : 9);
	n = code_encode(rig->work, &spec, rig->plain, 400, NULL, 0, rig->block);
	assert_int_equal(d->split, CODE_SPLIT_COLUMNS);
	assert_int_equal(rig->block[how + 1], CODE_COLUMN_DELTA);
	for (uint8_t way = CODE_COLUMN_BASE; way <= NR_CODE_COLUMNS; way++) {
		rig->block[how] = way;
		d->crc = le32_put(crc32c_add(crc32c(d, offsetof(struct code_header_disk, crc)), d + 1,
					     (size_t)n - sizeof(*d)));
		assert_int_equal(code_decode(rig->work, rig->block, (size_t)n, NULL, 0, rig->got, 400), -EBADMSG);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_records_come_back, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(records_are_found_wherever_they_begin, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(what_are_no_records_is_reported, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(atoms_of_which_nothing_is_known_are_small, rig_new, work_rig_free),
		cmocka_unit_test_setup_teardown(columns_take_what_pays_of_a_base, rig_new, work_rig_free),
		cmocka_unit_test(steps_that_are_no_columns_are_refused),
		cmocka_unit_test_setup_teardown(columns_stored_in_no_known_way_are_refused, rig_new, work_rig_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
