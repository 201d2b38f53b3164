/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/noatime.h"
#include "base/util.h"

static char top[64];

static int make_top(void **state _unused_)
{
	snprintf(top, sizeof(top), "/tmp/ckptfs-noatime.XXXXXX");
	return mkdtemp(top) && chdir(top) == 0 ? 0 : -1;
}

static int remove_top(void **state _unused_)
{
	static const char *const names[] = { "file", "pipe", "link", "link-to-pipe", "link-to-device" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(names[i]);
	return chdir("/") == 0 ? rmdir(top) : -1;
}

static void opens(const char *path, int flags)
{
	int fd = open_plain_noatime(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | flags);
	char c;

	assert_true(fd >= 0);
	assert_true((flags & O_DIRECTORY) || read(fd, &c, 1) == 1);
	close(fd);
}

static void refuses(int error, const char *path, int flags)
{
	assert_int_equal(open_plain_noatime(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | flags), -1);
	assert_int_equal(errno, error);
}

/* An open(2) of a FIFO blocks until there is a writer. */
static void only_files_and_directories_are_opened(void **state _unused_)
{
	int fd = open("file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
	assert_int_equal(mkfifo("pipe", 0600), 0);
	assert_int_equal(symlink("file", "link"), 0);
	assert_int_equal(symlink("pipe", "link-to-pipe"), 0);
	assert_int_equal(symlink("/dev/null", "link-to-device"), 0);
	opens("file", 0);
	opens("link", 0);
	opens(".", O_DIRECTORY);
	refuses(EINVAL, "pipe", 0);
	refuses(EINVAL, "link-to-pipe", 0);
	refuses(EINVAL, "link-to-device", 0);
	refuses(EINVAL, "link", O_NOFOLLOW);
	refuses(ENOTDIR, "file", O_DIRECTORY);
	refuses(ENOENT, "missing", 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_files_and_directories_are_opened),
	};

	return cmocka_run_group_tests(tests, make_top, remove_top);
}
