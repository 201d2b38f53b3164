/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Each ioctl of the table, as the kernel sends it: what is refused, to which users and on which descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/fs.h"
#include "fs/ops/ops_ioctl.h"
#include "fs/posix/namespace.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

#define ORDINARY (geteuid() + 1) /* neither root nor the mounting user */

struct world {
	struct fake_kernel *k;
	struct fake_fd dir, read, write;
};

static int set_up(void **state)
{
	static struct world w;
	struct names_new n = { .mode = S_IFDIR | 0755 };
	struct cred root = { 0 };
	struct fake_fd made;
	struct stat st;

	w.k = fake_kernel_new();
	assert_int_equal(names_make(fake_kernel_fs(w.k), NS_ROOT_INO, "d", &n, &root, &st), 0);
	made = fake_create(w.k, st.st_ino, "f", O_RDWR);
	fake_write(w.k, made, "content", 7);
	w.dir = fake_opendir(w.k, st.st_ino);
	w.read = fake_open(w.k, made.ino, O_RDONLY);
	w.write = fake_open(w.k, made.ino, O_WRONLY);
	fake_close(w.k, made);
	*state = &w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	fake_close(w->k, w->read);
	fake_close(w->k, w->write);
	fake_close(w->k, w->dir);
	fake_kernel_free(w->k);
	return 0;
}

static int try(struct world *w, const struct ioctl_entry *e, struct fake_fd fd, uint32_t uid, uint32_t size,
	       uint32_t version, uint32_t command)
{
	uint32_t arg[4096] = { size, version, command };
	size_t n;
	int r = fake_ioctl(w->k, fd, uid, e->number, arg, &n);

	if (r == 0)
		assert_true(n == 0 || n == e->out);
	return r;
}

static void rows_are_distinct_and_complete(void **state _unused_)
{
	for (size_t i = 0; i < ioctl_table_nr; i++) {
		const struct ioctl_entry *e = &ioctl_table[i];

		assert_ptr_equal(ioctl_find(e->number), e);
		assert_true(e->handler && e->name && e->type && e->about);
		assert_true(e->access == IOCTL_NO_ACCESS || e->on == IOCTL_ON_FILE);
		if (!e->has_head)
			continue;
		assert_int_equal(e->in, _IOC_SIZE(e->number));
		assert_int_equal(e->out, _IOC_DIR(e->number) & _IOC_READ ? e->in : 0);
	}
	assert_null(ioctl_find(_IO('K', 99)));
}

static void size_and_version_are_checked_first(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ioctl_table_nr; i++) {
		const struct ioctl_entry *e = &ioctl_table[i];
		struct fake_fd fd = e->on == IOCTL_ON_FILE ? w->read : w->dir;

		if (!e->has_head)
			continue;
		assert_int_equal(try(w, e, fd, 0, (uint32_t)e->in - 1, CKPTFS_IOC_VERSION, 0), -EINVAL);
		assert_int_equal(try(w, e, fd, 0, (uint32_t)e->in, CKPTFS_IOC_VERSION + 1, 0), -EINVAL);
		assert_int_equal(try(w, e, fd, 0, 0, 0, 0), -EINVAL);
	}
}

static void kind_of_descriptor_is_checked(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ioctl_table_nr; i++) {
		const struct ioctl_entry *e = &ioctl_table[i];
		uint32_t size = (uint32_t)e->in;

		if (e->on == IOCTL_ON_FILE)
			assert_int_equal(try(w, e, w->dir, 0, size, CKPTFS_IOC_VERSION, 0), -EISDIR);
		if (e->on == IOCTL_ON_DIRECTORY)
			assert_int_equal(try(w, e, w->read, 0, size, CKPTFS_IOC_VERSION, 0), -ENOTDIR);
		if (e->access == IOCTL_READ)
			assert_int_equal(try(w, e, w->write, 0, size, CKPTFS_IOC_VERSION, 0), -EBADF);
		if (e->access == IOCTL_WRITE)
			assert_int_equal(try(w, e, w->read, 0, size, CKPTFS_IOC_VERSION, 0), -EBADF);
	}
}

static void commands_for_operators_are_refused_to_others(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ioctl_table_nr; i++) {
		const struct ioctl_entry *e = &ioctl_table[i];
		struct fake_fd fd = e->on == IOCTL_ON_FILE ? w->read : w->dir;

		for (uint32_t command = 0; command < 40; command++) {
			bool is_refused = e->operator_only == IOCTL_ALL_COMMANDS ||
					  (command < IOCTL_NR_COMMANDS && e->operator_only & IOCTL_COMMAND(command));

			if (is_refused)
				assert_int_equal(try(w, e, fd, ORDINARY, (uint32_t)e->in, CKPTFS_IOC_VERSION, command),
						 -EPERM);
		}
	}
}

static void unknown_numbers_and_commands_are_refused(void **state)
{
	static const unsigned with_commands[] = { CKPTFS_IOC_GC,       CKPTFS_IOC_SCRUB,   CKPTFS_IOC_SEAL,
						  CKPTFS_IOC_COMPACT,  CKPTFS_IOC_CLUSTER, CKPTFS_IOC_MOUNT,
						  CKPTFS_IOC_EXCLUSIVE };
	struct world *w = *state;
	struct ckptfs_gc old = { .size = sizeof(old) };

	assert_int_equal(fake_ioctl(w->k, w->dir, 0, _IO('K', 99), &old, NULL), -ENOTTY);
	/* the number of a known one, with another size */
	assert_int_equal(fake_ioctl(w->k, w->dir, 0, _IOWR('K', 5, uint64_t), &old, NULL), -ENOTTY);
	for (size_t i = 0; i < ARRAY_SIZE(with_commands); i++) {
		const struct ioctl_entry *e = ioctl_find(with_commands[i]);

		for (uint32_t command = 30; command < 70; command++)
			assert_int_equal(try(w, e, w->dir, 0, (uint32_t)e->in, CKPTFS_IOC_VERSION, command), -EINVAL);
	}
}

/* As copy_file_range(2) and FICLONE: such a descriptor writes at the end only. */
static void clone_refuses_a_target_open_for_appending(void **state)
{
	struct world *w = *state;
	struct ckptfs_handle h = { .size = sizeof(h), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_clone c = { .size = sizeof(c), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_stat s = { .size = sizeof(s), .version = CKPTFS_IOC_VERSION };
	struct fake_fd made = fake_create(w->k, w->dir.ino, "log", O_RDWR), append;

	fake_write(w->k, made, "log", 3);
	append = fake_open(w->k, made.ino, O_WRONLY | O_APPEND);
	assert_int_equal(fake_ioctl(w->k, w->read, 0, CKPTFS_IOC_HANDLE, &h, NULL), 0);
	c.from = h.handle;
	assert_int_equal(fake_ioctl(w->k, append, 0, CKPTFS_IOC_CLONE, &c, NULL), -EBADF);
	assert_int_equal(fake_ioctl(w->k, made, 0, CKPTFS_IOC_STAT, &s, NULL), 0);
	assert_int_equal(s.file_size, 3);
	assert_int_equal(fake_ioctl(w->k, made, 0, CKPTFS_IOC_CLONE, &c, NULL), 0);
	assert_int_equal(c.done, 7);
	fake_close(w->k, append);
	fake_close(w->k, made);
}

static int exclusive(struct world *w, struct fake_fd dir, struct ckptfs_exclusive *x, uint32_t command)
{
	x->size = sizeof(*x);
	x->version = CKPTFS_IOC_VERSION;
	x->command = command;
	return fake_ioctl(w->k, dir, ORDINARY, CKPTFS_IOC_EXCLUSIVE, x, NULL);
}

static void set_mode(struct world *w, uint64_t ino, uint32_t mode)
{
	struct fuse_setattr_in in = { .valid = FATTR_MODE, .mode = mode };

	assert_int_equal(fake_kernel_ask(w->k, FUSE_SETATTR, ino, 0, &in, sizeof(in), NULL, 0, NULL), 0);
}

/* The errno that the query ends with; between ADD and RUN the change is made. */
static int ask_after(struct world *w, void (*change)(struct world *w, uint64_t dir, uint64_t file), uint64_t *ret_files)
{
	struct fs *fs = fake_kernel_fs(w->k);
	struct names_new n = { .mode = S_IFDIR | 0755 };
	struct cred root = { 0 };
	struct ckptfs_exclusive x = { 0 };
	struct fake_fd dir, file;
	struct stat st;
	int r;

	assert_int_equal(names_make(fs, w->dir.ino, "x", &n, &root, &st), 0);
	dir = fake_opendir(w->k, st.st_ino);
	file = fake_create(w->k, dir.ino, "f", O_RDWR);
	assert_int_equal(exclusive(w, dir, &x, CKPTFS_EXCLUSIVE_BEGIN), 0);
	assert_int_equal(exclusive(w, dir, &x, CKPTFS_EXCLUSIVE_ADD), 0);
	change(w, dir.ino, file.ino);
	r = exclusive(w, dir, &x, CKPTFS_EXCLUSIVE_RUN);
	while (r == 0 && (r = exclusive(w, dir, &x, CKPTFS_EXCLUSIVE_STATUS)) == 0 && x.running)
		usleep(1000);
	assert_int_equal(r, 0);
	*ret_files = x.files;
	r = x.error;
	assert_int_equal(exclusive(w, dir, &x, CKPTFS_EXCLUSIVE_END), 0);
	fake_close(w->k, file);
	names_unlink(fs, dir.ino, "f");
	names_unlink(fs, dir.ino, "new");
	fake_close(w->k, dir);
	assert_int_equal(names_rmdir(fs, w->dir.ino, "x"), 0);
	return r;
}

static void change_nothing(struct world *w _unused_, uint64_t dir _unused_, uint64_t file _unused_)
{
}

static void close_file(struct world *w, uint64_t dir _unused_, uint64_t file)
{
	set_mode(w, file, S_IFREG | 0600);
}

static void close_directory(struct world *w, uint64_t dir, uint64_t file _unused_)
{
	set_mode(w, dir, S_IFDIR | 0711);
}

static void add_closed_file(struct world *w, uint64_t dir, uint64_t file _unused_)
{
	struct fake_fd new = fake_create(w->k, dir, "new", O_RDWR);

	set_mode(w, new.ino, S_IFREG | 0600);
	fake_close(w->k, new);
}

static void remove_file(struct world *w, uint64_t dir, uint64_t file _unused_)
{
	names_unlink(fake_kernel_fs(w->k), dir, "f");
}

static void exclusive_counts_only_what_its_caller_may_read_at_run(void **state)
{
	struct world *w = *state;
	uint64_t files;

	assert_int_equal(ask_after(w, change_nothing, &files), 0);
	assert_int_equal(files, 1);
	assert_int_equal(ask_after(w, remove_file, &files), 0);
	assert_int_equal(files, 0);
	assert_int_equal(ask_after(w, close_file, &files), EACCES);
	assert_int_equal(ask_after(w, close_directory, &files), EACCES);
	assert_int_equal(ask_after(w, add_closed_file, &files), EACCES);
}

static void argument_comes_back_where_the_number_says_so(void **state)
{
	struct world *w = *state;
	struct ckptfs_handle h = { .size = sizeof(h), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_stat s = { .size = sizeof(s), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_gc gc = { .size = sizeof(gc), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_sync sync = { .size = sizeof(sync), .version = CKPTFS_IOC_VERSION };
	unsigned flags = 7;
	size_t n;

	assert_int_equal(fake_ioctl(w->k, w->read, ORDINARY, CKPTFS_IOC_HANDLE, &h, &n), 0);
	assert_int_equal(n, sizeof(h));
	assert_true(h.handle != 0);
	assert_int_equal(fake_ioctl(w->k, w->read, ORDINARY, CKPTFS_IOC_STAT, &s, &n), 0);
	assert_int_equal(s.file_size, 7);
	assert_int_equal(fake_ioctl(w->k, w->dir, ORDINARY, CKPTFS_IOC_GC, &gc, &n), 0);
	assert_int_equal(n, sizeof(gc));
	assert_int_equal(fake_ioctl(w->k, w->dir, ORDINARY, CKPTFS_IOC_SYNC, &sync, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(fake_ioctl(w->k, w->dir, ORDINARY, FS_IOC_GETFLAGS, &flags, &n), 0);
	assert_int_equal(n, sizeof(flags));
	assert_int_equal(flags, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_distinct_and_complete),
		cmocka_unit_test(size_and_version_are_checked_first),
		cmocka_unit_test(kind_of_descriptor_is_checked),
		cmocka_unit_test(commands_for_operators_are_refused_to_others),
		cmocka_unit_test(unknown_numbers_and_commands_are_refused),
		cmocka_unit_test(clone_refuses_a_target_open_for_appending),
		cmocka_unit_test(exclusive_counts_only_what_its_caller_may_read_at_run),
		cmocka_unit_test(argument_comes_back_where_the_number_says_so),
	};

	return cmocka_run_group_tests_name("ioctl", tests, set_up, tear_down);
}
