/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/pack/pack_rig.h"

#include "base/checksum.h"
#include "store/codec/code_format.h"

static struct fp_key key;

static const struct pack_header header = {
	.compat = 0x80000001,
	.pack = 0x01020304,
	.store_id = "0123456789abcde",
	.node = 0x0506,
	.stream = PACK_SMALL,
	.created_ns = 0x1122334455667788,
};

static int set_up(void **state)
{
	static const uint8_t secret[FP_KEY_LEN] = { 7 };

	(void)state;
	fp_key_init(&key, FP_XXH3, secret);
	return 0;
}

static void table_of(uint32_t chunk_len, uint32_t nr_chunks, struct pack_table *t)
{
	t->chunk_len = chunk_len;
	t->nr_chunks = nr_chunks;
	for (uint32_t i = 0; i < nr_chunks; i++)
		t->fps[i] = (struct fp){ .lo = i * UINT64_C(0x0101010101010101), .hi = i };
}

static void a_header_decodes_to_what_was_encoded(void **state)
{
	struct pack_header_disk d;
	struct pack_header h;

	(void)state;
	pack_header_encode(&header, &d);
	assert_int_equal(pack_header_decode(&d, sizeof(d), &h), 0);
	assert_int_equal(h.compat, 0x80000001);
	assert_int_equal(h.incompat, 0);
	assert_int_equal(h.pack, 0x01020304);
	assert_memory_equal(h.store_id, header.store_id, 16);
	assert_int_equal(h.node, 0x0506);
	assert_int_equal(h.stream, PACK_SMALL);
	assert_true(h.created_ns == 0x1122334455667788);
}

static void any_changed_byte_of_a_header_is_found(void **state)
{
	struct pack_header_disk d;
	struct pack_header h;

	(void)state;
	pack_header_encode(&header, &d);
	for (size_t i = 0; i < sizeof(d); i++) {
		((uint8_t *)&d)[i] ^= 0x04;
		assert_int_equal(pack_header_decode(&d, sizeof(d), &h), -EBADMSG);
		((uint8_t *)&d)[i] ^= 0x04;
	}
	assert_int_equal(pack_header_decode(&d, sizeof(d) - 1, &h), -EBADMSG);
	assert_int_equal(pack_header_decode(&d, 0, &h), -EBADMSG);
}

static void a_header_of_another_version_is_refused(void **state)
{
	struct pack_header_disk good, d;
	struct pack_header h;

	(void)state;
	pack_header_encode(&header, &good);
	for (unsigned i = 0; i < 4; i++) {
		d = good;
		switch (i) {
		case 0:
			d.version = le32_put(PACK_VERSION + 1);
			break;
		case 1:
			d.incompat = le32_put(1);
			break;
		case 2:
			d.stream = le16_put(PACK_NR_STREAMS);
			break;
		case 3:
			d.pack = le32_put(0);
			break;
		}
		d.crc32c = le32_put(crc32c(&d, offsetof(struct pack_header_disk, crc32c)));
		assert_int_equal(pack_header_decode(&d, sizeof(d), &h), i == 3 ? -EBADMSG : -EOPNOTSUPP);
	}
}

static void a_table_decodes_to_what_was_encoded(void **state)
{
	static const struct {
		uint32_t chunk_len, nr_chunks;
	} cases[] = { { 4096, 256 }, { 4096, 1 }, { 65536, 16 }, { 12288, 85 }, { 1048576, 1 } };
	static struct pack_table t, got;
	struct pack_table_disk d;

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		table_of(cases[c].chunk_len, cases[c].nr_chunks, &t);
		pack_table_encode(&t, &key, 7, 2999, &d);
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 2999, &got), 0);
		assert_int_equal(got.chunk_len, cases[c].chunk_len);
		assert_int_equal(got.nr_chunks, cases[c].nr_chunks);
		assert_memory_equal(got.fps, t.fps, t.nr_chunks * sizeof(*t.fps));
	}
}

/* Every part smaller by 100 bytes, but for the last one. */
static void compress_table(struct pack_table *t, enum pack_codec codec)
{
	uint32_t plain_len = t->chunk_len * t->nr_chunks, nr = pack_nr_parts(plain_len);

	t->coding = (struct pack_coding){ .codec = codec };
	for (uint32_t i = 0; i < nr; i++)
		t->coding.part_end[i] =
			pack_part_start(&t->coding, i) + pack_part_len(plain_len, i) - (i + 1 < nr ? 100 : 0);
}

static void a_compressed_table_decodes_to_what_was_encoded(void **state)
{
	static const struct {
		uint32_t chunk_len, nr_chunks, stored_len;
	} cases[] = { { 4096, 256, 1048576 - 1500 }, { 4096, 17, 69632 - 100 }, { 12288, 85, 1044480 - 1500 },
		      { 1048576, 1, 1048576 - 1500 }, { 4096, 2, 8192 } };
	static struct pack_table t, got;
	struct pack_table_disk d;

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		table_of(cases[c].chunk_len, cases[c].nr_chunks, &t);
		compress_table(&t, c % 2 ? PACK_CODEC_LZ4 : PACK_CODEC_ZSTD);
		pack_table_encode(&t, &key, 7, 2999, &d);
		assert_int_equal(le32_get(d.stored_len), cases[c].stored_len);
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 2999, &got), 0);
		assert_memory_equal(&got.coding, &t.coding, sizeof(t.coding));
		assert_memory_equal(got.fps, t.fps, t.nr_chunks * sizeof(*t.fps));
	}
}

static void parts_that_make_no_sense_are_refused(void **state)
{
	static struct pack_table t, got;
	struct pack_table_disk good, d;

	(void)state;
	table_of(4096, 100, &t); /* 7 parts, the last one has 4 chunks */
	compress_table(&t, PACK_CODEC_LZ4);
	pack_table_encode(&t, &key, 7, 3, &good);
	for (unsigned i = 0; i < 11; i++) {
		d = good;
		/* clang-format off */
		switch (i) {
		case 0: d.part_end[0] = le32_put(0); break;
		case 1: d.part_end[0] = le32_put(65537); break;
		case 2: d.part_end[3] = d.part_end[2]; break;
		case 3: d.part_end[3] = le32_put(le32_get(d.part_end[2]) - 1); break;
		case 4: d.part_end[6] = le32_put(le32_get(d.part_end[6]) - 1); break; /* not stored_len */
		case 5: d.part_end[5] = le32_put(le32_get(d.part_end[5]) - 1); break; /* the last one is too long then */
		case 6: d.part_end[7] = le32_put(1); break;
		case 7: d.part_end[15] = d.part_end[6]; break;
		case 8: d.stored_len = le32_put(100 * 4096); break;
		case 9: d.part_end[4] = le32_put(UINT32_MAX); break;
		case 10: d.codec = PACK_CODEC_NONE; d.stored_len = le32_put(100 * 4096); break; /* has no parts */
		}
		/* clang-format on */
		d.seal = le64_put(pack_table_seal(&d, &key));
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), -EBADMSG);
	}
}

static void any_changed_byte_of_a_table_is_found(void **state)
{
	static struct pack_table t, got;
	struct pack_table_disk d;

	(void)state;
	table_of(4096, 200, &t);
	pack_table_encode(&t, &key, 7, 3, &d);
	for (size_t i = 0; i < sizeof(d); i++) {
		((uint8_t *)&d)[i] ^= 0x80;
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), -EBADMSG);
		((uint8_t *)&d)[i] ^= 0x80;
	}
	assert_int_equal(pack_table_decode(&d, sizeof(d) - 1, &key, 7, 3, &got), -EBADMSG);
	assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), 0);
}

static void a_table_counts_at_its_own_place_and_with_its_own_key_only(void **state)
{
	static const uint8_t secret[FP_KEY_LEN] = { 8 };
	static struct pack_table t, got;
	struct fp_key other;
	struct pack_table_disk d;

	(void)state;
	fp_key_init(&other, FP_XXH3, secret);
	table_of(4096, 2, &t);
	pack_table_encode(&t, &key, 7, 3, &d);
	assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 8, 3, &got), -EBADMSG);
	assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 4, &got), -EBADMSG);
	assert_int_equal(pack_table_decode(&d, sizeof(d), &other, 7, 3, &got), -EBADMSG);
}

static void a_sealed_table_that_makes_no_sense_is_refused(void **state)
{
	static struct pack_table t, got;
	struct pack_table_disk good, d;

	(void)state;
	table_of(8192, 10, &t);
	pack_table_encode(&t, &key, 7, 3, &good);
	for (unsigned i = 0; i < 15; i++) {
		int expected = -EBADMSG;

		d = good;
		/* clang-format off */
		switch (i) {
		case 0: d.version = le32_put(2); expected = -EOPNOTSUPP; break;
		case 1: d.kind = 3; expected = -EOPNOTSUPP; break;
		case 2: d.kind = 0; expected = -EOPNOTSUPP; break;
		case 3: d.codec = NR_PACK_CODECS; expected = -EOPNOTSUPP; break;
		case 4: d.flags = le16_put(1); expected = -EOPNOTSUPP; break;
		case 5: d.reserved[83] = 1; expected = -EOPNOTSUPP; break;
		case 6: d.chunk_len = le32_put(0); break;
		case 7: d.chunk_len = le32_put(8193); break;
		case 8: d.chunk_len = le32_put(2 * PACK_FRAME_BYTES); break;
		case 9: d.nr_chunks = le32_put(0); break;
		case 10: d.nr_chunks = le32_put(129); break;
		case 11: d.stored_len = le32_put(8192 * 9); break;
		case 12: d.fps[10][0] = 1; break;
		case 13: d.kind = PACK_TABLE_VARIED; break;
		case 14: d.base[1] = le32_put(code_place(CODE_PLACE_SAME, 0)); expected = -EOPNOTSUPP; break; /* it is not coded */
		}
		/* clang-format on */
		d.seal = le64_put(pack_table_seal(&d, &key));
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), expected);
	}
}

/* Lengths 1, 65536, 1000 ... */
static void varied_table_of(uint32_t nr_chunks, struct pack_table *t)
{
	*t = (struct pack_table){ .chunk_len = PACK_VARIED, .nr_chunks = nr_chunks };
	for (uint32_t i = 0; i < nr_chunks; i++) {
		t->fps[i] = (struct fp){ i + 1, i + 2 };
		t->ends[i] = (i == 0 ? 0 : t->ends[i - 1]) + (i == 0 ? 1 : i == 1 ? PACK_VARIED_LEN_MAX : 1000);
	}
}

static void a_varied_table_decodes_to_what_was_encoded(void **state)
{
	static const uint32_t nrs[] = { 1, 2, 100, PACK_VARIED_MAX };
	static struct pack_table t, got;
	struct pack_table_disk d;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(nrs); i++) {
		varied_table_of(nrs[i], &t);
		pack_table_encode(&t, &key, 7, 3, &d);
		memset(&got, 0, sizeof(got));
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), 0);
		assert_memory_equal(&got, &t, sizeof(t));
		assert_int_equal(le32_get(d.stored_len), t.ends[nrs[i] - 1]);
		assert_int_equal(d.kind, 2);
	}
}

static void a_sealed_varied_table_that_makes_no_sense_is_refused(void **state)
{
	static struct pack_table t, got;
	struct pack_table_disk good, d;

	(void)state;
	varied_table_of(100, &t);
	pack_table_encode(&t, &key, 7, 3, &good);
	for (unsigned i = 0; i < 9; i++) {
		d = good;
		/* clang-format off */
		switch (i) {
		case 0: d.chunk_len = le32_put(4096); break;
		case 1: d.nr_chunks = le32_put(0); break;
		case 2: d.nr_chunks = le32_put(99); break;
		case 3: d.nr_chunks = le32_put(226); break;
		case 4: d.nr_chunks = le32_put(UINT32_MAX); break;
		case 5: d.varied_reserved[14] = 1; break;
		case 6: d.varied[100].len = le16_put(1); break;
		case 7: d.stored_len = le32_put(t.ends[99] - 1); break;
		case 8: /* more than 1 MiB */
			for (unsigned k = 0; k < 17; k++)
				d.varied[k].len = le16_put(UINT16_MAX);
			d.stored_len = le32_put(17 * 65536 + 83 * 1000);
			break;
		}
		/* clang-format on */
		d.seal = le64_put(pack_table_seal(&d, &key));
		assert_int_equal(pack_table_decode(&d, sizeof(d), &key, 7, 3, &got), -EBADMSG);
	}
}

static void the_chunk_of_a_byte_is_found(void **state)
{
	static const uint32_t ends[] = { 1, 65537, 66537 };
	const struct pack_cuts varied = { PACK_VARIED, 3, ends }, equal = { 8192, 3, NULL };

	(void)state;
	assert_int_equal(pack_cut_at(&varied, 0), 0);
	assert_int_equal(pack_cut_at(&varied, 1), 1);
	assert_int_equal(pack_cut_at(&varied, 65536), 1);
	assert_int_equal(pack_cut_at(&varied, 65537), 2);
	assert_int_equal(pack_cut_at(&varied, 66537), 3);
	assert_int_equal(pack_cut_at(&varied, UINT32_MAX), 3);
	assert_int_equal(pack_cut_total(&varied), 66537);
	assert_int_equal(pack_cut_len(&varied, 1), 65536);
	assert_int_equal(pack_cut_at(&equal, 8191), 0);
	assert_int_equal(pack_cut_at(&equal, 8192), 1);
	assert_int_equal(pack_cut_total(&equal), 24576);
}

static void offsets_and_frames_follow_from_each_other(void **state)
{
	uint32_t frame, in;

	(void)state;
	assert_int_equal(pack_table_off(0), 4096);
	assert_int_equal(pack_data_off(0), 8192);
	assert_int_equal(pack_table_off(1), 258 * 4096);
	assert_int_equal(pack_data_off(2999), (1 + 2999u * 257 + 1) * 4096);
	assert_false(pack_place_of(0, &frame, &in));
	assert_false(pack_place_of(4095, &frame, &in));
	assert_false(pack_place_of(4096, &frame, &in));
	assert_false(pack_place_of(8191, &frame, &in));
	assert_true(pack_place_of(8192, &frame, &in));
	assert_int_equal(frame, 0);
	assert_int_equal(in, 0);
	assert_true(pack_place_of(258 * 4096 - 1, &frame, &in));
	assert_int_equal(frame, 0);
	assert_int_equal(in, PACK_FRAME_BYTES - 1);
	assert_false(pack_place_of(258 * 4096, &frame, &in));
	assert_true(pack_place_of(pack_data_off(2999) + 5, &frame, &in));
	assert_int_equal(frame, 2999);
	assert_int_equal(in, 5);
	assert_false(pack_place_of(pack_data_off(3000), &frame, &in));
	assert_false(pack_place_of(UINT32_MAX, &frame, &in));
}

static void what_decoding_takes_is_found(void **state)
{
	/* a frame of six parts and a half */
	const uint32_t plain_len = 13 * PACK_PART_BYTES / 2, same = code_place(CODE_PLACE_SAME, 0),
		       all_of_1 = code_place(CODE_PLACE_SAME, PACK_PART_BYTES),
		       left_of_2 = code_place(CODE_PLACE_MATCHED, 4), left_of_3 = code_place(CODE_PLACE_MATCHED, 8),
		       left_of_3_and_4 = code_place(CODE_PLACE_MATCHED, 24);
	const struct pack_coding c = { .codec = PACK_CODEC_CODED,
				       .base = { 0, same, all_of_1, left_of_2, left_of_3, left_of_3_and_4, left_of_2 } };
	static const struct {
		uint32_t wanted, all, left, with_bases;
	} cases[] = {
		{ 1u << 0, 0x01, 0, 0x01 },
		{ 1u << 1, 0x03, 0, 0x03 },
		{ 1u << 2, 0x07, 0, 0x07 }, /* names add up */
		{ 1u << 3, 0x0f, 0, 0x0f }, /* what is left in 2 cannot be had alone: it has no such base itself */
		{ 1u << 4, 0x18, 0x08, 0x1f }, /* they do not */
		{ 1u << 5, 0x38, 0x18, 0x3f },
		{ 1u << 5 | 1u << 3, 0x3f, 0x10, 0x3f }, /* 3 is wanted anyhow */
		{ 1u << 6, 0x47, 0, 0x47 },
		{ 0x7f, 0x7f, 0, 0x7f },
		{ 0, 0, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t left = 99;

		assert_int_equal(pack_to_decode(&c, plain_len, cases[i].wanted, &left), cases[i].all);
		assert_int_equal(left, cases[i].left);
		assert_int_equal(pack_with_bases(&c, plain_len, cases[i].wanted), cases[i].with_bases);
	}
}

static void names_of_packs_are_eight_hex_digits(void **state)
{
	static const char *const others[] = { "1.pack",	       "0000000A.pack",	 "00000000.pack",
					      "0000000a.pac",  "0000000a.pack.", "+000000a.pack",
					      " 000000a.pack", "index",		 "" };
	uint32_t pack;

	(void)state;
	assert_string_equal(pack_name(0x2a).s, "0000002a.pack");
	assert_string_equal(pack_name(UINT32_MAX).s, "ffffffff.pack");
	assert_true(pack_name_parse("deadbeef.pack", &pack));
	assert_int_equal(pack, 0xdeadbeef);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(pack_name_parse(others[i], &pack));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_decodes_to_what_was_encoded),
		cmocka_unit_test(any_changed_byte_of_a_header_is_found),
		cmocka_unit_test(a_header_of_another_version_is_refused),
		cmocka_unit_test(a_table_decodes_to_what_was_encoded),
		cmocka_unit_test(a_compressed_table_decodes_to_what_was_encoded),
		cmocka_unit_test(parts_that_make_no_sense_are_refused),
		cmocka_unit_test(any_changed_byte_of_a_table_is_found),
		cmocka_unit_test(a_table_counts_at_its_own_place_and_with_its_own_key_only),
		cmocka_unit_test(a_sealed_table_that_makes_no_sense_is_refused),
		cmocka_unit_test(a_varied_table_decodes_to_what_was_encoded),
		cmocka_unit_test(a_sealed_varied_table_that_makes_no_sense_is_refused),
		cmocka_unit_test(the_chunk_of_a_byte_is_found),
		cmocka_unit_test(offsets_and_frames_follow_from_each_other),
		cmocka_unit_test(what_decoding_takes_is_found),
		cmocka_unit_test(names_of_packs_are_eight_hex_digits),
	};

	return cmocka_run_group_tests_name("pack_format", tests, set_up, NULL);
}
