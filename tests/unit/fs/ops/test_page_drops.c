/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Which pages the daemon drops from the kernel's cache, always before the reply (docs/decisions/fuse.md, "Page cache
 * coherence"). Newer kernels drop pages of direct writes themselves, so on those a mount does not show whether the daemon
 * does.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "client/ioctl.h"
#include "fs/fs.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

#define LEN 5000u

static uint64_t nr_files;

static struct fake_fd create(struct fake_kernel *k, int flags)
{
	char name[32];

	snprintf(name, sizeof(name), "f%" PRIu64, nr_files++);
	return fake_create(k, NS_ROOT_INO, name, flags);
}

/* What is dropped before the reply. */
static struct fake_drop write_at(struct fake_kernel *k, struct fake_fd fd, int flags, uint64_t off)
{
	struct {
		struct fuse_write_in in;
		uint8_t bytes[LEN];
	} write = { .in = { .fh = fd.handle, .offset = off, .size = LEN, .flags = (uint32_t)flags } };
	struct fuse_write_out out = { 0 };

	memset(write.bytes, 'x', sizeof(write.bytes));
	fake_kernel_dropped(k);
	assert_int_equal(fake_kernel_ask(k, FUSE_WRITE, fd.ino, 0, &write, sizeof(write), &out, sizeof(out), NULL), 0);
	assert_int_equal(out.size, LEN);
	return fake_kernel_dropped(k);
}

static void assert_last(struct fake_drop d, struct fake_fd of, int64_t off, int64_t len)
{
	assert_int_equal(d.ino, of.ino);
	assert_int_equal(d.off, off);
	assert_int_equal(d.len, len);
}

static void assert_only(struct fake_drop d, struct fake_fd of, int64_t off, int64_t len)
{
	assert_int_equal(d.nr, 1);
	assert_last(d, of, off, len);
}

static void beside_a_reader_a_direct_write_drops_its_range(void **state)
{
	struct fake_fd writer = create(*state, O_WRONLY), reader = fake_open(*state, writer.ino, O_RDONLY);

	assert_only(write_at(*state, writer, O_WRONLY, 12345), writer, 12345, LEN);
	assert_only(write_at(*state, writer, O_WRONLY, 0), writer, 0, LEN);
	fake_close(*state, reader);
	fake_close(*state, writer);
	writer = fake_open(*state, writer.ino, O_WRONLY);
	reader = fake_open(*state, writer.ino, O_RDWR); /* whatever may read */
	assert_only(write_at(*state, writer, O_WRONLY, 777), writer, 777, LEN);
	fake_close(*state, reader);
	fake_close(*state, writer);
}

/* Pages that readers have left go all at once, and again after the next reader. */
static void after_readers_a_direct_write_drops_all_pages_once(void **state)
{
	struct fake_fd writer = create(*state, O_WRONLY);

	assert_int_equal(write_at(*state, writer, O_WRONLY, 0).nr, 0);
	for (unsigned i = 0; i < 2; i++) {
		fake_close(*state, fake_open(*state, writer.ino, O_RDONLY));
		assert_only(write_at(*state, writer, O_WRONLY, 12345), writer, 0, 0);
		assert_int_equal(write_at(*state, writer, O_WRONLY, 0).nr, 0);
	}
	fake_close(*state, writer);
}

static void a_synchronous_direct_write_drops_its_range(void **state)
{
	struct fake_fd writer = create(*state, O_WRONLY | O_SYNC), reader = fake_open(*state, writer.ino, O_RDONLY);

	assert_only(write_at(*state, writer, O_WRONLY | O_SYNC, 4096), writer, 4096, LEN);
	fake_close(*state, reader);
	fake_close(*state, writer);
}

/* The kernel has these bytes in its cache, or drops the pages itself. */
static void writes_through_the_cache_drop_nothing(void **state)
{
	struct fake_fd writer = create(*state, O_RDWR), reader = fake_open(*state, writer.ino, O_RDONLY);

	assert_int_equal(write_at(*state, writer, O_RDWR, 0).nr, 0);
	assert_int_equal(write_at(*state, writer, O_RDWR | O_DIRECT, 0).nr, 0);
	fake_close(*state, reader);
	fake_close(*state, writer);
}

static void a_clone_drops_its_range(void **state)
{
	struct fake_fd from = create(*state, O_RDWR), to = create(*state, O_RDWR);
	struct ckptfs_handle h = { .size = sizeof(h), .version = CKPTFS_IOC_VERSION };
	struct ckptfs_clone c = { .size = sizeof(c), .version = CKPTFS_IOC_VERSION, .to_off = 8192, .len = 4096 };

	write_at(*state, from, O_RDWR, 0);
	write_at(*state, to, O_RDWR, 8192 + LEN); /* it does not grow */
	assert_int_equal(fake_ioctl(*state, from, 0, CKPTFS_IOC_HANDLE, &h, NULL), 0);
	c.from = h.handle;
	fake_kernel_dropped(*state);
	assert_int_equal(fake_ioctl(*state, to, 0, CKPTFS_IOC_CLONE, &c, NULL), 0);
	assert_int_equal(c.done, 4096);
	assert_last(fake_kernel_dropped(*state), to, 8192, 4096); /* others before it have mapped pages written back */
	fake_close(*state, from);
	fake_close(*state, to);
}

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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(beside_a_reader_a_direct_write_drops_its_range),
		cmocka_unit_test(after_readers_a_direct_write_drops_all_pages_once),
		cmocka_unit_test(a_synchronous_direct_write_drops_its_range),
		cmocka_unit_test(writes_through_the_cache_drop_nothing),
		cmocka_unit_test(a_clone_drops_its_range),
	};

	return cmocka_run_group_tests_name("page_drops", tests, set_up, tear_down);
}
