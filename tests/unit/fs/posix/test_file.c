/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fs/fs.h"
#include "fs/posix/file.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

#define MANY 200000u /* closed in the order in which they were opened, with a list this takes minutes */

static int set_up(void **state)
{
	*state = fake_kernel_new();
	return 0;
}

static int tear_down(void **state)
{
	fake_kernel_free(*state);
	return 0;
}

static struct file *open_file(struct fs *fs, uint64_t ino)
{
	struct file *f;

	assert_int_equal(file_open(fs, ino, O_RDONLY, &f), 0);
	return f;
}

static uint64_t handle_of(struct fs *fs, struct file *f)
{
	uint64_t handle = 0;

	assert_int_equal(file_handle(fs, f, &handle), 0);
	assert_true(handle != 0);
	return handle;
}

static void a_handle_is_valid_while_its_file_is_open(void **state)
{
	struct fs *fs = fake_kernel_fs(*state);
	struct fake_fd a = fake_create(*state, NS_ROOT_INO, "a", O_WRONLY),
		       b = fake_create(*state, NS_ROOT_INO, "b", O_WRONLY);
	struct file *of_a = open_file(fs, a.ino), *again = open_file(fs, a.ino), *of_b = open_file(fs, b.ino);
	uint64_t handle = handle_of(fs, of_a), other = handle_of(fs, of_b);

	assert_int_equal(handle_of(fs, of_a), handle);
	assert_true(handle_of(fs, again) != handle);
	assert_int_equal(file_of_handle(fs, handle), a.ino);
	assert_int_equal(file_of_handle(fs, other), b.ino);
	assert_int_equal(file_of_handle(fs, handle ^ other), 0);
	file_close(fs, of_a);
	assert_int_equal(file_of_handle(fs, handle), 0);
	assert_int_equal(file_of_handle(fs, other), b.ino);
	file_close(fs, again);
	file_close(fs, of_b);
	fake_close(*state, a);
	fake_close(*state, b);
}

static void many_handles_are_dropped_oldest_first(void **state)
{
	struct fs *fs = fake_kernel_fs(*state);
	struct fake_fd fd = fake_create(*state, NS_ROOT_INO, "many", O_WRONLY);
	struct file **files = calloc(MANY, sizeof(struct file *));

	assert_non_null(files);
	for (size_t i = 0; i < MANY; i++) {
		files[i] = open_file(fs, fd.ino);
		handle_of(fs, files[i]);
	}
	for (size_t i = 0; i < MANY; i++) {
		uint64_t handle = files[i]->handle;

		assert_int_equal(file_of_handle(fs, handle), fd.ino);
		file_close(fs, files[i]);
		assert_int_equal(file_of_handle(fs, handle), 0);
	}
	free(files);
	fake_close(*state, fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_handle_is_valid_while_its_file_is_open),
		cmocka_unit_test(many_handles_are_dropped_oldest_first),
	};

	return cmocka_run_group_tests_name("file", tests, set_up, tear_down);
}
