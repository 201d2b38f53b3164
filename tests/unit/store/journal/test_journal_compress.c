/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Groups that are compressed: as small as they can be, and read back as what was appended. */
#include "tests/unit/store/journal/rig.h"

#define FIRST_LOG "0000000000000001.log"
#define SEGMENT MiB(1)

/* One record of `len` bytes; of every `period` of them the first is `number`. */
static void regular_record(uint8_t number, size_t len, size_t period, struct buf *ret)
{
	_cleanup_(freep) uint8_t *p = calloc(1, len);

	assert_non_null(p);
	for (size_t i = 0; i < len; i += period)
		p[i] = number;
	buf_clear(ret);
	journal_record_add(ret, number, p, len);
	assert_int_equal(buf_error(ret), 0);
}

/* The group that the journal says is there is these records. */
static void assert_group(struct rig *rig, uint64_t number, const struct buf *want)
{
	_cleanup_(journal_reader_freep) struct journal_reader *rd = NULL;
	const void *records;
	bool snapshot;
	uint64_t n;
	size_t len;

	assert_int_equal(journal_read(rig->j, number - 1, &rd), 0);
	assert_int_equal(journal_read_next(rd, &n, &snapshot, &records, &len), 1);
	assert_int_equal(n, number);
	assert_int_equal(len, want->len);
	assert_memory_equal(records, want->data, len);
}

static void regular_records_take_less_than_they_have(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	for (uint8_t number = 1; number <= 4; number++) {
		regular_record(number, 200000, 7, &b);
		assert_int_equal(journal_append(rig.j, b.data, b.len), 0);
	}
	assert_in_range(journal_bytes_since_snapshot(rig.j), 4 * JOURNAL_BLOCK, 40000);
	for (int i = 0; i < 2; i++) {
		for (uint8_t number = 1; number <= 4; number++) {
			regular_record(number, 200000, 7, &b);
			assert_group(&rig, number, &b);
		}
		rig_open(&rig);
		assert_int_equal(journal_last(rig.j), 4);
	}
}

/* Noise, and groups too short to save a block, are as they were before there was compression. */
static void what_gets_no_smaller_is_left_alone(void **state _unused_)
{
	static const struct {
		size_t len;
		bool regular, compressed;
	} cases[] = { { 1500, true, false }, { 5000, true, true }, { 5000, false, false }, { 300000, false, false } };
	_cleanup_(freep) uint8_t *image = NULL;
	_cleanup_(rig_release) struct rig rig;
	size_t len, off = JOURNAL_BLOCK;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(freep) uint8_t *p = calloc(1, cases[i].len);

		if (!cases[i].regular)
			rig_noise(i, p, cases[i].len);
		assert_int_equal(journal_append(rig.j, p, cases[i].len), 0);
	}
	image = rig_load(&rig, FIRST_LOG, &len);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const void *payload;
		struct journal_group g;

		assert_int_equal(journal_group_decode(image + off, len - off, &g, &payload), 0);
		assert_int_equal(g.flags, cases[i].compressed ? JOURNAL_GROUP_ZSTD : 0);
		assert_int_equal(g.records_len, cases[i].len);
		if (!cases[i].compressed)
			assert_int_equal(g.payload_len, cases[i].len);
		off += journal_group_bytes(g.payload_len);
	}
}

static void a_large_group_needs_no_large_segment(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	regular_record(9, MiB(48), 4096, &b);
	assert_int_equal(journal_append(rig.j, b.data, b.len), 0);
	assert_int_equal(rig_size(&rig, FIRST_LOG), SEGMENT);
	rig_append(&rig, 1);
	rig_open(&rig);
	assert_group(&rig, 1, &b);
	assert_int_equal(journal_last(rig.j), 2);
}

/* Each byte of it: the group was the last one and is as if torn, or others follow and it is damage. */
static void a_damaged_byte_is_found(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	regular_record(1, 100000, 1000, &b);
	assert_int_equal(journal_append(rig.j, b.data, b.len), 0);
	rig_append(&rig, 1);
	rig_close(&rig);
	image = rig_load(&rig, FIRST_LOG, &len);
	for (size_t off = JOURNAL_BLOCK; off < 2 * JOURNAL_BLOCK; off++) {
		rig_store(&rig, FIRST_LOG, image, len);
		rig_flip(&rig, FIRST_LOG, off, 0x10);
		assert_int_equal(rig_try_open(&rig), -EBADMSG);
	}
}

static void a_snapshot_is_compressed_part_by_part(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_stats stats;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	assert_int_equal(rig_try_snapshot(&rig, 2, 1000, 10000), 0);
	journal_stats(rig.j, &stats);
	assert_in_range(stats.snapshot_bytes, 10 * JOURNAL_BLOCK, MiB(1));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_read(&rig, 0, 10000, &seen), 0);
		assert_int_equal(seen.nr_records, 1000);
		assert_true(seen.nr_parts >= 9);
		rig_open(&rig);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(regular_records_take_less_than_they_have),
		cmocka_unit_test(what_gets_no_smaller_is_left_alone),
		cmocka_unit_test(a_large_group_needs_no_large_segment),
		cmocka_unit_test(a_damaged_byte_is_found),
		cmocka_unit_test(a_snapshot_is_compressed_part_by_part),
	};

	log_to_file("/dev/null"); /* expected complaints */
	return cmocka_run_group_tests_name("journal_compress", tests, NULL, NULL);
}
