/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Requests of which the reply waits for a commit, while the disk takes its time or fails. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mutex.h"
#include "base/util.h"
#include "fs/fs.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

#define MANY 100u /* more than the loop has threads */
#define FEW 10u /* more than it starts with, and fewer than it may start */
#define PAGE 4096u

static struct disk {
	struct mutex lock;
	struct cond changed;
	bool is_slow, is_broken;
} disk;

static int before(void *userdata, const struct io_event *ev)
{
	struct disk *d = userdata;
	bool is_broken;

	mutex_lock(&d->lock);
	while (ev->op == IO_SYNC && d->is_slow)
		cond_wait(&d->changed, &d->lock);
	is_broken = d->is_broken;
	mutex_unlock(&d->lock);
	return ev->op == IO_WRITE && is_broken ? -EIO : 0;
}

static void set_disk(bool is_slow, bool is_broken)
{
	mutex_lock(&disk.lock);
	disk.is_slow = is_slow;
	disk.is_broken = is_broken;
	cond_broadcast(&disk.changed);
	mutex_unlock(&disk.lock);
}

static struct fake_fd from, to; /* `to` is O_SYNC */

static int set_up(void **state)
{
	static const struct io_hook hook = { .before = before, .userdata = &disk };
	static const uint8_t page[PAGE] = "page";
	struct fake_kernel *k;

	mutex_init(&disk.lock);
	cond_init(&disk.changed);
	io_set_hook(&hook);
	k = fake_kernel_new();
	from = fake_create(k, NS_ROOT_INO, "from", O_RDWR);
	fake_write(k, from, page, sizeof(page));
	to = fake_create(k, NS_ROOT_INO, "to", O_WRONLY | O_SYNC);
	*state = k;
	return 0;
}

static int tear_down(void **state)
{
	fake_close(*state, from);
	fake_close(*state, to);
	fake_kernel_free(*state);
	io_set_hook(NULL);
	cond_release(&disk.changed);
	mutex_release(&disk.lock);
	return 0;
}

static uint64_t send_write(struct fake_kernel *k, unsigned page)
{
	struct {
		struct fuse_write_in in;
		uint8_t bytes[PAGE];
	} write = {
		.in = { .fh = to.handle, .offset = (uint64_t)page * PAGE, .size = PAGE, .flags = O_WRONLY | O_SYNC },
	};

	memset(write.bytes, (int)page + 1, sizeof(write.bytes));
	return fake_kernel_send(k, FUSE_WRITE, to.ino, 0, &write, sizeof(write));
}

static uint64_t send_allocation(struct fake_kernel *k, unsigned page)
{
	struct fuse_fallocate_in in = { .fh = to.handle, .offset = (uint64_t)page * PAGE, .length = PAGE };

	return fake_kernel_send(k, FUSE_FALLOCATE, to.ino, 0, &in, sizeof(in));
}

static uint64_t send_copy(struct fake_kernel *k, unsigned page)
{
	struct fuse_copy_file_range_in in = {
		.fh_in = from.handle,
		.nodeid_out = to.ino,
		.fh_out = to.handle,
		.off_out = (uint64_t)page * PAGE,
		.len = PAGE,
	};

	return fake_kernel_send(k, FUSE_COPY_FILE_RANGE, from.ino, 0, &in, sizeof(in));
}

/* While the disk does not sync, none of these requests is answered, and another one is. */
static void wait_for_many(struct fake_kernel *k, uint64_t (*send)(struct fake_kernel *k, unsigned page), size_t len)
{
	struct fuse_getattr_in in = { 0 };
	bool is_answered[MANY] = { false };
	struct fuse_write_out out = { 0 };
	uint64_t first = 0, asked, answered;
	size_t n;

	set_disk(true, false);
	for (unsigned i = 0; i < MANY; i++) {
		uint64_t number = send(k, i);

		first = i == 0 ? number : first;
	}
	asked = fake_kernel_send(k, FUSE_GETATTR, NS_ROOT_INO, 0, &in, sizeof(in));
	assert_int_equal(fake_kernel_receive(k, &answered, NULL, 0, NULL), 0);
	assert_int_equal(answered, asked);
	set_disk(false, false);
	for (unsigned i = 0; i < MANY; i++) {
		assert_int_equal(fake_kernel_receive(k, &answered, &out, sizeof(out), &n), 0);
		assert_in_range(answered, first, first + MANY - 1);
		assert_false(is_answered[answered - first]);
		is_answered[answered - first] = true;
		assert_int_equal(n, len);
		if (n > 0)
			assert_int_equal(out.size, PAGE);
	}
}

static void writes_that_wait_for_a_commit_occupy_no_thread(void **state)
{
	wait_for_many(*state, send_write, sizeof(struct fuse_write_out));
}

static void allocations_that_wait_for_a_commit_occupy_no_thread(void **state)
{
	wait_for_many(*state, send_allocation, 0);
}

static void copies_that_wait_for_a_commit_occupy_no_thread(void **state)
{
	wait_for_many(*state, send_copy, sizeof(struct fuse_write_out));
}

/* With -o sync a commit follows each change of names, in the thread that makes it. Others serve the rest. */
static void changes_of_names_that_wait_for_a_commit_leave_threads_to_others(void **state)
{
	struct {
		struct fuse_mkdir_in in;
		char name[8];
	} mkdir = { .in.mode = 0755 };
	struct fuse_getattr_in in = { 0 };
	uint64_t asked, answered;

	fake_kernel_fs(*state)->sync = true;
	set_disk(true, false);
	for (unsigned i = 0; i < FEW; i++) {
		snprintf(mkdir.name, sizeof(mkdir.name), "d%u", i);
		fake_kernel_send(*state, FUSE_MKDIR, NS_ROOT_INO, 0, &mkdir, sizeof(mkdir));
	}
	asked = fake_kernel_send(*state, FUSE_GETATTR, NS_ROOT_INO, 0, &in, sizeof(in));
	assert_int_equal(fake_kernel_receive(*state, &answered, NULL, 0, NULL), 0);
	assert_int_equal(answered, asked);
	set_disk(false, false);
	for (unsigned i = 0; i < FEW; i++)
		assert_int_equal(fake_kernel_receive(*state, &answered, NULL, 0, NULL), 0);
	fake_kernel_fs(*state)->sync = false;
}

static void a_failed_commit_fails_the_request(void **state)
{
	static uint64_t (*const send[])(struct fake_kernel *, unsigned) = { send_write, send_allocation, send_copy };
	uint64_t answered;

	for (size_t i = 0; i < ARRAY_SIZE(send); i++) {
		set_disk(false, true);
		send[i](*state, 2 * MANY + (unsigned)i);
		assert_int_equal(fake_kernel_receive(*state, &answered, NULL, 0, NULL), -EIO);
		set_disk(false, false);
		send[i](*state, 2 * MANY + (unsigned)i);
		assert_int_equal(fake_kernel_receive(*state, &answered, NULL, 0, NULL), 0);
	}
}

/* The bytes are in the file, so readers must not keep the old ones. */
static void a_failed_commit_drops_cached_pages(void **state)
{
	struct fake_fd reader = fake_open(*state, to.ino, O_RDONLY);
	uint64_t answered;

	fake_kernel_dropped(*state);
	set_disk(false, true);
	send_write(*state, 3 * MANY);
	assert_int_equal(fake_kernel_receive(*state, &answered, NULL, 0, NULL), -EIO);
	assert_int_equal(fake_kernel_dropped(*state).ino, to.ino);
	set_disk(false, false);
	fake_close(*state, reader);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_that_wait_for_a_commit_occupy_no_thread),
		cmocka_unit_test(allocations_that_wait_for_a_commit_occupy_no_thread),
		cmocka_unit_test(copies_that_wait_for_a_commit_occupy_no_thread),
		cmocka_unit_test(changes_of_names_that_wait_for_a_commit_leave_threads_to_others),
		cmocka_unit_test(a_failed_commit_fails_the_request),
		cmocka_unit_test(a_failed_commit_drops_cached_pages),
	};

	return cmocka_run_group_tests_name("write", tests, set_up, tear_down);
}
