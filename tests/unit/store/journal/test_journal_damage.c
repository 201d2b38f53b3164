/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Torn tails and damage: which is which, and nothing wrong is ever accepted. */
#include "tests/unit/store/journal/rig.h"

#include <unistd.h>

#include "base/checksum.h"

#define SEGMENT KiB(16)
#define FIRST_LOG "0000000000000001.log"

/* Bytes of a group as rig_append() makes it. */
static uint64_t group_bytes(uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	rig_records(number, 0, &b);
	return journal_group_bytes(b.len);
}

/* Where group `number` of the first segment starts. */
static uint64_t group_off(uint64_t number)
{
	uint64_t off = JOURNAL_BLOCK;

	for (uint64_t n = 1; n < number; n++)
		off += group_bytes(n);
	return off;
}

/* Whichever byte of a group is damaged: the last one is dropped, one before it is an error; nothing else is lost. */
static void every_flipped_byte_of_a_group_is_noticed(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 5);
	rig_close(&rig);
	image = rig_load(&rig, FIRST_LOG, &len);
	for (uint64_t number = 4; number <= 5; number++)
		for (uint64_t i = 0; i < group_bytes(number); i++) {
			rig_store(&rig, FIRST_LOG, image, len);
			rig_flip(&rig, FIRST_LOG, group_off(number) + i, (uint8_t)(1 << i % 8));
			if (number == 4) {
				assert_int_equal(rig_try_open(&rig), -EBADMSG);
				continue;
			}
			rig_open(&rig);
			assert_int_equal(journal_last(rig.j), 4);
			rig_check(&rig, 0);
		}
}

static void every_flipped_byte_of_a_file_header_is_an_error(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	for (unsigned i = 0; i < JOURNAL_BLOCK; i++) {
		rig_flip(&rig, FIRST_LOG, i, 0x10);
		assert_int_equal(rig_try_open(&rig), -EBADMSG);
		rig_flip(&rig, FIRST_LOG, i, 0x10);
	}
	rig_open(&rig);
	rig_check(&rig, 0);
}

static void every_truncation_drops_only_what_it_cut(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 4);
	rig_close(&rig);
	image = rig_load(&rig, FIRST_LOG, &len);
	for (size_t cut = 0; cut <= group_off(5) + JOURNAL_BLOCK; cut++) {
		uint64_t whole = 0;

		rig_store(&rig, FIRST_LOG, image, cut);
		if (cut < JOURNAL_BLOCK) {
			assert_int_equal(rig_try_open(&rig), -EBADMSG);
			continue;
		}
		while (whole < 4 && group_off(whole + 2) <= cut)
			whole++;
		rig_open(&rig);
		assert_int_equal(journal_last(rig.j), whole);
		rig_append(&rig, 2);
		rig_check(&rig, 0);
		rig_open(&rig);
		assert_int_equal(journal_last(rig.j), whole + 2);
		rig_check(&rig, 0);
		rig_close(&rig);
		rig_wipe(&rig);
	}
}

/* A torn group is zeroed: a shorter one in its place is not followed by the rest of it. */
static void a_torn_tail_leaves_nothing_behind(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 2);
	assert_int_equal(rig_try_append(&rig, 6000), 0);
	rig_flip(&rig, FIRST_LOG, group_off(3) + 5000, 1);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 2);
	image = rig_load(&rig, FIRST_LOG, &len);
	assert_int_equal(len, SEGMENT);
	for (size_t i = group_off(3); i < len; i++)
		assert_int_equal(image[i], 0);
}

/* Group 3 torn, with the bytes of an intact later group inside its own payload: torn, not damaged. */
static void a_group_inside_a_payload_is_no_group(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct journal_group g = { .number = 4 };
	struct {
		uint8_t align[JOURNAL_BLOCK - sizeof(struct journal_group_disk)];
		struct journal_group_disk header;
		uint8_t rest[2 * JOURNAL_BLOCK]; /* too short to be compressed */
	} payload = { 0 };

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 2);
	memcpy(g.store_id, rig_id, sizeof(rig_id));
	journal_group_encode(&g, payload.rest, JOURNAL_BLOCK - sizeof(payload.header), &payload.header);
	assert_int_equal(journal_append(rig.j, &payload, sizeof(payload)), 0);
	rig_flip(&rig, FIRST_LOG, group_off(3) + sizeof(payload), 1);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 2);
}

static void a_lost_group_before_others_is_damage(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 6);
	rig_close(&rig);
	image = rig_load(&rig, FIRST_LOG, &len);
	memset(image + group_off(3), 0, group_bytes(3));
	rig_store(&rig, FIRST_LOG, image, len);
	assert_int_equal(rig_try_open(&rig), -EBADMSG);
	rig.conf.read_only = true;
	assert_int_equal(rig_try_open(&rig), -EBADMSG);
}

static void damage_in_an_older_segment_is_found_by_its_reader(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct rig_seen seen;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 100);
	rig_flip(&rig, FIRST_LOG, group_off(5) + 70, 1);
	rig_open(&rig);
	assert_int_equal(journal_last(rig.j), 100);
	assert_int_equal(rig_read(&rig, 0, 0, &seen), -EBADMSG);
	assert_int_equal(seen.last, 4);
	rig_check(&rig, 5); /* its header is intact */
	rig_check(&rig, 60);
}

static void a_missing_segment_is_damage(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 100);
	rig_close(&rig);
	assert_int_equal(unlinkat(rig.dirfd, FIRST_LOG, 0), 0);
	assert_int_equal(rig_try_open(&rig), -EBADMSG);
}

static void files_of_another_store_are_refused(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	rig.conf.store_id[5] ^= 1;
	assert_int_equal(rig_try_open(&rig), -EBADMSG);
}

static void a_later_version_is_refused_and_kept(void **state _unused_)
{
	static const size_t words[] = { offsetof(struct journal_file_disk, version),
					offsetof(struct journal_file_disk, incompat) };
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	struct journal_file_disk *d;
	size_t len;

	rig_init(&rig, SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 3);
	rig_close(&rig);
	image = rig_load(&rig, FIRST_LOG, &len);
	d = (struct journal_file_disk *)image;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		_cleanup_(freep) uint8_t *now = NULL;

		image[words[i]] ^= 2;
		d->crc32c = le32_put(crc32c(d, offsetof(struct journal_file_disk, crc32c)));
		rig_store(&rig, FIRST_LOG, image, len);
		assert_int_equal(rig_try_open(&rig), -EOPNOTSUPP);
		now = rig_load(&rig, FIRST_LOG, &len);
		assert_memory_equal(now, image, len);
		image[words[i]] ^= 2;
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_flipped_byte_of_a_group_is_noticed),
		cmocka_unit_test(every_flipped_byte_of_a_file_header_is_an_error),
		cmocka_unit_test(every_truncation_drops_only_what_it_cut),
		cmocka_unit_test(a_torn_tail_leaves_nothing_behind),
		cmocka_unit_test(a_group_inside_a_payload_is_no_group),
		cmocka_unit_test(a_lost_group_before_others_is_damage),
		cmocka_unit_test(damage_in_an_older_segment_is_found_by_its_reader),
		cmocka_unit_test(a_missing_segment_is_damage),
		cmocka_unit_test(files_of_another_store_are_refused),
		cmocka_unit_test(a_later_version_is_refused_and_kept),
	};

	log_to_file("/dev/null"); /* many expected complaints */
	return cmocka_run_group_tests_name("journal_damage", tests, NULL, NULL);
}
