/* SPDX-License-Identifier: GPL-3.0-or-later */
/* ENOSPC and EIO at every I/O call: nothing acknowledged is lost, trying again works, and so does reopening. */
#include "tests/unit/store/journal/rig.h"

#include <fcntl.h>
#include <unistd.h>

struct fault {
	int error;
	bool cut;    /* a write is cut short instead of not being made */
	bool sticks; /* all calls from the first on fail, reads excepted */
	unsigned at; /* which call, from 0 */
	unsigned nr; /* calls seen */
	bool fired;
};

static int fail_one(void *userdata, const struct io_event *ev)
{
	struct fault *f = userdata;

	if (ev->op == IO_READ && (f->error == -ENOSPC || f->sticks))
		return 0;
	if (f->cut && ev->op != IO_WRITE)
		return 0;
	if (f->nr++ != f->at && !(f->sticks && f->nr > f->at))
		return 0;
	f->fired = true;
	return f->cut ? (int)(ev->len / 2 + 1) : f->error;
}

static void open_and_check(struct rig *rig, uint64_t least, uint64_t most)
{
	rig_open(rig);
	assert_in_range(journal_last(rig->j), least, most);
	rig_check(rig, 0);
	rig_append(rig, 3);
	rig_check(rig, 0);
}

/* Runs a life with the fault at each call in turn. */
static unsigned at_every_call(struct fault fault, enum rig_on_error on_error)
{
	for (;; fault.at++) {
		_cleanup_(rig_release) struct rig rig;
		struct io_hook hook = { .before = fail_one, .userdata = &fault };
		bool done;

		fault.nr = 0;
		fault.fired = false;
		rig_init(&rig, RIG_LIFE_SEGMENT);
		io_set_hook(&hook);
		done = rig_live(&rig, fault.error, on_error);
		io_set_hook(NULL);
		if (done) {
			rig_check(&rig, 0);
			open_and_check(&rig, rig.acked, rig.acked);
		} else
			open_and_check(&rig, rig.acked, rig.acked + 1);
		if (!fault.fired)
			return fault.at;
	}
}

static void a_failed_call_can_be_tried_again(void **state _unused_)
{
	assert_true(at_every_call((struct fault){ .error = -EIO }, RIG_RETRY) > 100);
	assert_true(at_every_call((struct fault){ .error = -ENOSPC }, RIG_RETRY) > 100);
	assert_true(at_every_call((struct fault){ .error = -ENOSPC, .cut = true }, RIG_RETRY) > 30);
}

static void after_a_failed_call_the_journal_opens(void **state _unused_)
{
	at_every_call((struct fault){ .error = -EIO }, RIG_STOP);
	at_every_call((struct fault){ .error = -ENOSPC }, RIG_STOP);
	at_every_call((struct fault){ .error = -ENOSPC, .cut = true }, RIG_STOP);
	at_every_call((struct fault){ .error = -EIO, .sticks = true }, RIG_STOP);
}

struct only {
	enum io_op op;
	unsigned left; /* times to fail */
	int error;
};

static int fail_only(void *userdata, const struct io_event *ev)
{
	struct only *o = userdata;

	if (ev->op != o->op || o->left == 0)
		return 0;
	o->left--;
	return o->error;
}

/* What a failed fdatasync leaves is unknown: the group must be elsewhere too. */
static void after_a_failed_sync_the_group_is_in_a_new_segment(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct only only = { IO_SYNC, 1, -EIO };
	struct io_hook hook = { .before = fail_only, .userdata = &only };
	uint8_t nothing[3 * JOURNAL_BLOCK] = { 0 };
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len, off = JOURNAL_BLOCK;

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 4);
	io_set_hook(&hook);
	rig_append(&rig, 1);
	io_set_hook(NULL);
	assert_int_equal(only.left, 0);
	assert_true(rig_has(&rig, "0000000000000005.log"));
	rig_append(&rig, 2);
	rig_check(&rig, 0);
	rig_close(&rig);

	image = rig_load(&rig, "0000000000000001.log", &len);
	for (uint64_t n = 1; n < 5; n++) {
		struct journal_group g;

		assert_int_equal(journal_group_header_decode(image + off, len - off, &g), 0);
		off += journal_group_bytes(g.payload_len);
	}
	memcpy(image + off, nothing, sizeof(nothing)); /* never reached the disk */
	rig_store(&rig, "0000000000000001.log", image, len);
	open_and_check(&rig, 7, 7);
}

static void another_file_fails(void *userdata, const struct io_event *ev, int64_t result _unused_)
{
	struct only *o = userdata;

	if (ev->op != o->op || o->left == 0)
		return;
	o->left--;
	io_sync_failed();
}

/* The drive may have dropped the group with it, whatever the group's own sync says. */
static void a_failed_sync_of_another_file_puts_the_group_in_a_new_segment(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct only only = { IO_WRITE, 1, 0 };
	struct io_hook hook = { .after = another_file_fails, .userdata = &only };

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 4);
	io_set_hook(&hook);
	rig_append(&rig, 1);
	io_set_hook(NULL);
	assert_int_equal(only.left, 0);
	assert_true(rig_has(&rig, "0000000000000005.log"));
	rig_append(&rig, 2);
	open_and_check(&rig, 7, 7);
}

static void a_sync_that_keeps_failing_is_an_error_until_it_works(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct only only = { IO_SYNC, 1000, -EIO };
	struct io_hook hook = { .before = fail_only, .userdata = &only };

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 4);
	io_set_hook(&hook);
	for (int i = 0; i < 5; i++)
		assert_int_equal(rig_try_append(&rig, 2000), -EIO);
	assert_int_equal(journal_last(rig.j), 4);
	rig_check(&rig, 0);
	only.left = 0;
	rig_append(&rig, 3);
	rig_check(&rig, 0);
	open_and_check(&rig, 7, 7);
}

/* The directory sync after a rollover fails: the new file may be there after a crash, so the old one is done. */
static void after_a_failed_directory_sync_the_old_segment_is_not_used(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct only only = { IO_SYNC_DIR, 1, -EIO };
	struct io_hook hook = { .before = fail_only, .userdata = &only };

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 2);
	io_set_hook(&hook);
	assert_int_equal(rig_try_append(&rig, 7000), -EIO);
	assert_true(rig_has(&rig, "0000000000000003.log"));
	rig_append(&rig, 1); /* would fit into the old one */
	rig_check(&rig, 0);
	open_and_check(&rig, 3, 3);
}

/* A failed write is cleared before the next: no byte of the longer group follows the shorter one. */
static void a_failed_write_leaves_no_bytes(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct fault fault = { .error = -ENOSPC, .cut = true };
	struct io_hook hook = { .before = fail_one, .userdata = &fault };
	_cleanup_(freep) uint8_t *image = NULL;
	size_t len, used = 0;

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	io_set_hook(&hook);
	assert_int_equal(rig_try_append(&rig, 6000), -ENOSPC);
	rig_append(&rig, 1);
	image = rig_load(&rig, "0000000000000001.log", &len);
	for (size_t i = 0; i < len; i++)
		if (image[i] != 0)
			used = i + 1;
	assert_true(used < 2 * JOURNAL_BLOCK);
}

/* A disk without a free block: nothing can be created. */
static int refuse_new_files(void *userdata _unused_, const struct io_event *ev)
{
	return ev->op == IO_OPEN ? -ENOSPC : 0;
}

static void a_full_disk_takes_a_segment_more(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct io_hook hook = { .before = refuse_new_files };
	struct journal_stats before, after;
	unsigned n = 0;
	int r;

	rig_init(&rig, KiB(64));
	rig_open(&rig);
	rig_append(&rig, 3);
	journal_stats(rig.j, &before);
	assert_int_equal(before.nr_files, 2);
	io_set_hook(&hook);
	while ((r = rig_try_append(&rig, 0)) == 0)
		n++;
	assert_int_equal(r, -ENOSPC);
	assert_in_range(n, 64, 256); /* of 512 to 1024 bytes each */
	assert_int_equal(rig_try_snapshot(&rig, n, 2, 100), -ENOSPC);
	rig_check(&rig, 0);
	rig_open(&rig); /* still full */
	assert_int_equal(journal_last(rig.j), n + 3);
	assert_int_equal(rig_try_append(&rig, 2000), -ENOSPC);
	io_set_hook(NULL);
	rig_append(&rig, 10);
	rig_check(&rig, 0);
	journal_stats(rig.j, &after);
	assert_int_equal(after.nr_files, 4); /* two full ones, the current one, a new spare */
}

/* A disk with little room: large files of zeros find none. */
static int refuse_large_writes(void *userdata _unused_, const struct io_event *ev)
{
	return ev->op == IO_WRITE && ev->len > KiB(256) ? -ENOSPC : 0;
}

static void where_a_large_segment_has_no_room_a_small_one_does(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct io_hook hook = { .before = refuse_large_writes };

	rig_init(&rig, 0);
	rig_open(&rig);
	io_set_hook(&hook);
	for (unsigned i = 0; i < 50; i++) /* 5 MiB: the first segment and the spare have 3 */
		assert_int_equal(rig_try_append(&rig, KiB(100)), 0);
	assert_int_equal(rig_try_append(&rig, KiB(300)), -ENOSPC);
	io_set_hook(NULL);
	rig_check(&rig, 0);
	rig_open(&rig);
	rig_check(&rig, 0);
}

/* When the disk is full and there is no spare, the first segment that a snapshot drops becomes it. */
static void a_dropped_segment_becomes_the_spare(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	_cleanup_(freep) uint8_t *image = NULL;
	struct only only = { IO_OPEN, 0, -ENOSPC };
	struct io_hook hook = { .before = fail_only, .userdata = &only };
	size_t len;

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig_open(&rig);
	rig_append(&rig, 20);
	io_set_hook(&hook);
	only.left = 1000;
	while (rig_has(&rig, "spare"))
		rig_append(&rig, 1);
	only.left = 0;
	assert_int_equal(rig_try_snapshot(&rig, journal_last(rig.j), 2, RIG_SNAPSHOT_RECORD), 0);
	image = rig_load(&rig, "spare", &len);
	assert_int_equal(len, RIG_LIFE_SEGMENT);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(image[i], 0);
	rig_append(&rig, 30);
	rig_check(&rig, 0);
	open_and_check(&rig, journal_last(rig.j), journal_last(rig.j));
}

static void a_caller_can_make_the_spare_when_it_has_time(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;

	rig_init(&rig, RIG_LIFE_SEGMENT);
	rig.conf.spare_by_caller = true;
	rig_open(&rig);
	rig_append(&rig, 1);
	assert_false(rig_has(&rig, "spare"));
	assert_int_equal(journal_prepare(rig.j), 0);
	assert_int_equal(rig_size(&rig, "spare"), RIG_LIFE_SEGMENT);
	assert_int_equal(journal_prepare(rig.j), 0);
	rig_append(&rig, 50); /* with the spare, then without */
	open_and_check(&rig, journal_last(rig.j), journal_last(rig.j));
}

/* On a full disk only every MiB of appends is worth an attempt and a line in the log. */
static void a_spare_that_cannot_be_had_is_not_asked_for_all_the_time(void **state _unused_)
{
	_cleanup_(rig_release) struct rig rig;
	struct only only = { IO_OPEN, 1000, -ENOSPC };
	struct io_hook hook = { .before = fail_only, .userdata = &only };

	rig_init(&rig, MiB(4));
	rig_open(&rig);
	assert_int_equal(rig_try_append(&rig, MiB(1)), 0); /* takes the spare of 2 MiB, gets another */
	io_set_hook(&hook);
	assert_int_equal(rig_try_append(&rig, MiB(2)), 0); /* takes that, gets none */
	assert_int_equal(only.left, 999);
	for (int i = 0; i < 90; i++)
		assert_int_equal(rig_try_append(&rig, 10000), 0);
	assert_int_equal(only.left, 999);
	for (int i = 0; i < 10; i++)
		assert_int_equal(rig_try_append(&rig, 10000), 0);
	assert_int_equal(only.left, 998);
	rig_check(&rig, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_call_can_be_tried_again),
		cmocka_unit_test(after_a_failed_call_the_journal_opens),
		cmocka_unit_test(after_a_failed_sync_the_group_is_in_a_new_segment),
		cmocka_unit_test(a_failed_sync_of_another_file_puts_the_group_in_a_new_segment),
		cmocka_unit_test(a_sync_that_keeps_failing_is_an_error_until_it_works),
		cmocka_unit_test(after_a_failed_directory_sync_the_old_segment_is_not_used),
		cmocka_unit_test(a_failed_write_leaves_no_bytes),
		cmocka_unit_test(a_full_disk_takes_a_segment_more),
		cmocka_unit_test(where_a_large_segment_has_no_room_a_small_one_does),
		cmocka_unit_test(a_dropped_segment_becomes_the_spare),
		cmocka_unit_test(a_caller_can_make_the_spare_when_it_has_time),
		cmocka_unit_test(a_spare_that_cannot_be_had_is_not_asked_for_all_the_time),
	};

	log_to_file("/dev/null");
	return cmocka_run_group_tests_name("journal_faults", tests, NULL, NULL);
}
