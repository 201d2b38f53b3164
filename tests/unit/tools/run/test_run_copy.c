/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Copying a tree that can be gone on with: what is damaged on its way is found, what is done is not done again. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/util.h"
#include "tools/run/run_copy.h"

#define SIZE 3000000

struct rig {
	char top[64];
	int from, to;
};

/* Replaced by a FIFO just before it is opened; NULL: none. */
static const char *replaced;

static void replace(int dir, const char *name)
{
	if (!replaced || strcmp(name, replaced) != 0)
		return;
	replaced = NULL;
	assert_int_equal(unlinkat(dir, name, 0), 0);
	assert_int_equal(mkfifoat(dir, name, 0600), 0);
}

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode)
{
	replace(dir, name);
	return __real_openat(dir, name, flags, mode);
}

int __real_openat64(int dir, const char *name, int flags, ...);
int __wrap_openat64(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *name, int flags, mode_t mode)
{
	replace(dir, name);
	return __real_openat64(dir, name, flags, mode);
}

static void write_file(int dir, const char *name, uint32_t seed)
{
	uint32_t *p = malloc(SIZE);
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);

	assert_non_null(p);
	assert_true(fd >= 0);
	for (size_t i = 0; i < SIZE / sizeof(*p); i++)
		p[i] = seed = seed * 1664525 + 1013904223;
	assert_int_equal(io_pwrite(fd, p, SIZE, 0), 0);
	close(fd);
	free(p);
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	char name[96];

	assert_non_null(rig);
	snprintf(rig->top, sizeof(rig->top), "/tmp/ckptfs-test-copy.XXXXXX");
	assert_non_null(mkdtemp(rig->top));
	snprintf(name, sizeof(name), "%s/from", rig->top);
	assert_int_equal(mkdir(name, 0755), 0);
	rig->from = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(name, sizeof(name), "%s/to", rig->top);
	assert_int_equal(mkdir(name, 0755), 0);
	rig->to = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(rig->from, "deep", 0555), 0);
	write_file(rig->from, "a", 1);
	write_file(rig->from, "b", 2);
	assert_int_equal(truncate((snprintf(name, sizeof(name), "%s/from/b", rig->top), name), 20 * SIZE), 0);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;
	char command[128];

	io_set_hook(NULL);
	close(rig->from);
	close(rig->to);
	snprintf(command, sizeof(command), "rm -rf '%s'", rig->top);
	assert_int_equal(system(command), 0);
	free(rig);
	return 0;
}

static void a_copy_is_the_same_until_something_changes(void **state)
{
	struct rig *rig = *state;
	struct run_copy c = { 0 };
	struct stat a, b;

	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 1);
	assert_int_equal(fstatat(rig->from, "b", &a, 0), 0);
	assert_int_equal(fstatat(rig->to, "b", &b, 0), 0);
	assert_int_equal(a.st_size, b.st_size);
	assert_int_equal(b.st_mode & 07777, 0640);
	assert_true(b.st_blocks * 512 < 2 * SIZE); /* a hole stays one */
	assert_int_equal(fstatat(rig->to, "deep", &b, 0), 0);
	assert_int_equal(b.st_mode & 07777, 0555);

	assert_int_equal(mkdirat(rig->to, "more", 0700), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
	assert_int_equal(unlinkat(rig->to, "more", AT_REMOVEDIR), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 1);
	assert_int_equal(utimensat(rig->to, "a", NULL, 0), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
}

/* What a bad disk does to the second file. */
static void flip_a_byte(void *userdata, const struct io_event *ev, int64_t result)
{
	uint8_t byte;

	if (ev->op != IO_WRITE || result <= 0 || (*(uint64_t *)userdata)++ != 4)
		return;
	assert_int_equal(pread(ev->fd, &byte, 1, (off_t)ev->off + 100), 1);
	byte ^= 1;
	assert_int_equal(pwrite(ev->fd, &byte, 1, (off_t)ev->off + 100), 1);
}

static void bytes_that_came_out_wrong_are_found_and_written_again(void **state)
{
	struct rig *rig = *state;
	struct run_copy c = { 0 };
	uint64_t writes = 0;
	const struct io_hook hook = { .after = flip_a_byte, .userdata = &writes };

	io_set_hook(&hook);
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), -EBADMSG);
	assert_true(strcmp(c.path, "a") == 0 || strcmp(c.path, "b") == 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 1);
}

static bool may_go_on(void *userdata, _unused_ uint64_t copied)
{
	unsigned *steps = userdata;

	return *steps > 0 && (*steps)-- > 0;
}

static void one_that_is_stopped_anywhere_is_gone_on_with(void **state)
{
	struct rig *rig = *state;
	unsigned left, steps = 0;
	struct run_copy c = { .go_on = may_go_on, .userdata = &left };
	uint64_t writes = 0;
	int r;

	do {
		left = ++steps;
		r = run_copy_tree(&c, rig->from, rig->to);
		assert_true(r == 0 || r == -ETIME);
		assert_true(steps < 100);
		assert_int_equal(r < 0 ? 0 : 1, run_copy_is_same(rig->from, rig->to));
	} while (r < 0);
	assert_true(steps > 3);
	left = 100;
	c.bytes = 0;
	io_set_hook(&(const struct io_hook){ .after = flip_a_byte, .userdata = &writes });
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), 0);
	assert_int_equal(writes, 0); /* all of it was done */
}

/* Another user could have made them, where others can write to the directory. */
static void names_that_are_there_are_replaced_and_not_written_to(void **state)
{
	struct rig *rig = *state;
	struct run_copy c = { 0 };
	struct stat victim;
	char text[8] = "", name[96];
	int fd;

	assert_int_equal(mkfifoat(rig->from, "fifo", 0666), 0);
	assert_int_equal(fchmodat(rig->from, "fifo", 0666, 0), 0);
	assert_int_equal(symlinkat("a", rig->from, "soft"), 0);
	snprintf(name, sizeof(name), "%s/victim", rig->top);
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "mine", 4), 4);
	assert_int_equal(linkat(AT_FDCWD, name, rig->to, "a", 0), 0);
	assert_int_equal(symlinkat(name, rig->to, "fifo"), 0);
	assert_int_equal(symlinkat(name, rig->to, "soft"), 0);
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 1);
	assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
	assert_string_equal(text, "mine");
	assert_int_equal(fstat(fd, &victim), 0);
	assert_int_equal(victim.st_mode & 07777, 0600);
	assert_int_equal(victim.st_nlink, 1);
	assert_true(readlinkat(rig->to, "soft", text, sizeof(text)) == 1 && text[0] == 'a');
	close(fd);
}

/* Its owner can unseal it. */
static void a_file_that_becomes_a_fifo_does_not_block(void **state)
{
	struct rig *rig = *state;
	struct run_copy c = { 0 };

	replaced = "b";
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), -ESTALE);
	assert_string_equal(c.path, "b");
	assert_null(replaced);
}

/* Nor does the path of the deepest fit a system call. */
static void descriptors_do_not_grow_with_depth(void **state)
{
	enum { DEPTH = 1200 };
	struct rig *rig = *state;
	struct run_copy c = { 0 };
	struct rlimit before, few;
	int at = dup(rig->from);

	for (int i = 0; i < DEPTH; i++) {
		int below;

		assert_int_equal(mkdirat(at, "deeper", 0755), 0);
		assert_int_equal(mkdirat(at, "beside", 0755), 0);
		below = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(below >= 0);
		close(at);
		at = below;
	}
	write_file(at, "bottom", 3);
	close(at);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){ 32, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
	assert_int_equal(run_copy_tree(&c, rig->from, rig->to), 0);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 1);
	at = dup(rig->to);
	for (int i = 0; i < DEPTH; i++) {
		int below = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		assert_true(below >= 0);
		close(at);
		at = below;
	}
	assert_int_equal(utimensat(at, "bottom", NULL, 0), 0);
	close(at);
	assert_int_equal(run_copy_is_same(rig->from, rig->to), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_copy_is_the_same_until_something_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_that_came_out_wrong_are_found_and_written_again, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_stopped_anywhere_is_gone_on_with, setup, teardown),
		cmocka_unit_test_setup_teardown(names_that_are_there_are_replaced_and_not_written_to, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_becomes_a_fifo_does_not_block, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_do_not_grow_with_depth, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
