/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/util.h"

#define MS UINT64_C(1000000)

static char dir[] = "/tmp/ckptfs-test-io-XXXXXX";
static int dirfd = -1;

/* A hook that writes down what happened, and fails what it was told to. */
static struct {
	char seen[4096]; /* "op before" and "op=result" in order */
	enum io_op fail_op;
	int fail_with; /* 0: nothing */
} hook;

static const char *const op_names[] = { "open",	    "read",  "write",  "sync",	 "syncdir", "syncfs",
					"truncate", "allocate", "punch", "rename", "unlink", "mkdir", "link" };

static _printf_(1, 2) void note(const char *fmt, ...)
{
	size_t len = strlen(hook.seen);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(hook.seen + len, sizeof(hook.seen) - len, fmt, ap);
	va_end(ap);
}

static int hook_before(void *userdata, const struct io_event *ev)
{
	assert_ptr_equal(userdata, &hook);
	switch (ev->op) {
	case IO_OPEN:
		assert_int_equal(ev->new_fd, -1);
		/* fallthrough */
	case IO_UNLINK:
	case IO_MKDIR:
		assert_int_equal(ev->fd, dirfd);
		note("%s %s", op_names[ev->op], ev->name);
		break;
	case IO_RENAME:
	case IO_LINK:
		assert_int_equal(ev->fd, dirfd);
		assert_int_equal(ev->new_fd, dirfd);
		note("%s %s %s", op_names[ev->op], ev->name, ev->new_name);
		break;
	case IO_SYNC:
	case IO_SYNC_DIR:
	case IO_SYNC_FS:
		note("%s", op_names[ev->op]);
		break;
	default:
		note("%s %d+%d", op_names[ev->op], (int)ev->off, (int)ev->len);
	}
	return hook.fail_with != 0 && hook.fail_op == ev->op ? hook.fail_with : 0;
}

static void hook_after(void *userdata, const struct io_event *ev, int64_t result)
{
	assert_ptr_equal(userdata, &hook);
	if (ev->op == IO_OPEN) {
		assert_int_equal(ev->new_fd, result < 0 ? -1 : result);
		note(result < 0 ? "=failed; " : "=ok; ");
	} else {
		note("=%d; ", (int)result);
	}
}

static void hook_install(void)
{
	memset(&hook, 0, sizeof(hook));
	io_set_hook(&(struct io_hook){ hook_before, hook_after, &hook });
}

static void hook_fail(enum io_op op, int with)
{
	hook.seen[0] = '\0';
	hook.fail_op = op;
	hook.fail_with = with;
}

static int set_up(void **state _unused_)
{
	if (!mkdtemp(dir))
		return -1;
	dirfd = open(dir, O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0 ? -1 : 0;
}

static int tear_down(void **state _unused_)
{
	close(dirfd);
	return rmdir(dir);
}

static int end(void **state _unused_)
{
	static const char *const names[] = { "a", "b" };

	io_set_hook(NULL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlinkat(dirfd, names[i], 0);
	unlinkat(dirfd, "d", AT_REMOVEDIR);
	return 0;
}

static int open_a(void)
{
	int fd = io_open(dirfd, "a", O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	return fd;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

static void descriptors_close_on_exec(void **state _unused_)
{
	_cleanup_(closep) int fd = open_a();

	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

static void reading_stops_at_the_end_of_the_file(void **state _unused_)
{
	_cleanup_(closep) int fd = open_a();
	char p[8] = "........";

	assert_int_equal(io_pwrite(fd, "hello", 5, 3), 0);
	assert_int_equal(io_pread(fd, p, 8, 0), 8);
	assert_memory_equal(p, "\0\0\0hello", 8);
	assert_int_equal(io_pread(fd, p, 8, 6), 2);
	assert_memory_equal(p, "lo", 2);
	assert_int_equal(io_pread(fd, p, 8, 8), 0);
	assert_int_equal(io_pread(fd, p, 8, 100), 0);
	assert_int_equal(io_pread(fd, p, 0, 0), 0);
	assert_int_equal(io_pwrite(fd, NULL, 0, 0), 0);
	assert_int_equal(size_of(fd), 8);
}

/* One more vector than a system call takes, of odd and also no length. */
static void any_number_of_vectors_passes(void **state _unused_)
{
	enum { NR = IOV_MAX + 77 };
	_cleanup_(closep) int fd = open_a();
	static uint8_t out[NR * 6], in[NR * 6];
	static struct iovec to[NR], from[NR];
	size_t len = 0;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 13 + (i >> 8));
	for (size_t i = 0; i < NR; i++) {
		from[i] = (struct iovec){ out + len, i % 7 };
		to[i] = (struct iovec){ in + len, i % 7 };
		len += i % 7;
	}
	assert_int_equal(io_pwritev(fd, from, NR, 11), 0);
	assert_int_equal(size_of(fd), 11 + len);
	assert_int_equal(io_preadv(fd, to, NR, 11), len);
	assert_memory_equal(in, out, len);
}

/* More reads than the queue takes at once: each has its own bytes, in order or not, and all pass the hook. */
static void many_reads_are_done_at_once(void **state _unused_)
{
	enum { NR = 100, LEN = 512 };
	static uint8_t data[NR * LEN], got[NR * LEN];
	struct io_read reads[NR];
	struct iovec iov[NR];
	struct io_queue *q;
	_cleanup_(closep) int fd = open_a();

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / LEN);
	assert_int_equal(io_pwrite(fd, data, sizeof(data), 0), 0);
	assert_int_equal(io_queue_new(&q), 0);
	for (unsigned i = 0; i < NR; i++) {
		iov[i] = (struct iovec){ got + i * LEN, LEN };
		reads[i] = (struct io_read){ .fd = fd, .iov = &iov[i], .iovcnt = 1, .off = (NR - 1 - i) * LEN };
	}
	io_queue_read(q, reads, NR);
	for (unsigned i = 0; i < NR; i++) {
		assert_int_equal(reads[i].result, LEN);
		assert_memory_equal(got + i * LEN, data + (NR - 1 - i) * LEN, LEN);
	}

	reads[1].off = NR * LEN - 5; /* the file ends */
	reads[2].fd = -1;
	io_queue_read(q, reads, 4);
	assert_int_equal(reads[0].result, LEN);
	assert_int_equal(reads[1].result, 5);
	assert_memory_equal(got + LEN, data + NR * LEN - 5, 5);
	assert_int_equal(reads[2].result, -EBADF);
	assert_int_equal(reads[3].result, LEN);

	hook_install();
	io_queue_read(q, reads, 1);
	assert_string_equal(hook.seen, "read 50688+512=512; ");
	hook_fail(IO_READ, -EIO);
	io_queue_read(q, reads, 2);
	assert_int_equal(reads[0].result, -EIO);
	assert_int_equal(reads[1].result, -EIO);
	assert_string_equal(hook.seen, "read 50688+512read 51195+512");
	io_set_hook(NULL);
	io_queue_read(q, reads, 0);
	io_queue_free(q);
}

static void errors_are_negative_errnos(void **state _unused_)
{
	char p[1];

	assert_int_equal(io_open(dirfd, "absent", O_RDONLY, 0), -ENOENT);
	assert_int_equal(io_pread(-1, p, 1, 0), -EBADF);
	assert_int_equal(io_pwrite(-1, p, 1, 0), -EBADF);
	assert_int_equal(io_sync(-1), -EBADF);
	assert_int_equal(io_sync_dir(-1), -EBADF);
	assert_int_equal(io_truncate(-1, 0), -EBADF);
	assert_int_equal(io_allocate(-1, 0, 1), -EBADF);
	assert_int_equal(io_punch(-1, 0, 1), -EBADF);
	assert_int_equal(io_rename(dirfd, "absent", dirfd, "b"), -ENOENT);
	assert_int_equal(io_unlink(dirfd, "absent"), -ENOENT);
	assert_int_equal(io_mkdir(dirfd, "absent/d", 0700), -ENOENT);
	assert_int_equal(io_close(-1), -EBADF);
}

static void space_is_allocated_punched_and_cut(void **state _unused_)
{
	_cleanup_(closep) int fd = open_a();
	static uint8_t p[4096 * 3], expected[4096 * 3];

	memset(p, 'x', sizeof(p));
	memset(expected, 'x', sizeof(expected));
	memset(expected + 4096, 0, 4096);
	assert_int_equal(io_pwrite(fd, p, sizeof(p), 0), 0);
	assert_int_equal(io_punch(fd, 4096, 4096), 0);
	assert_int_equal(io_pread(fd, p, sizeof(p), 0), sizeof(p));
	assert_memory_equal(p, expected, sizeof(p));
	assert_int_equal(io_allocate(fd, sizeof(p), 1000), 0);
	assert_int_equal(size_of(fd), sizeof(p) + 1000);
	assert_int_equal(io_truncate(fd, 10), 0);
	assert_int_equal(size_of(fd), 10);
}

static void every_change_is_recorded_in_order(void **state _unused_)
{
	struct iovec iov[2] = { { "ab", 2 }, { "cde", 3 } };
	char p[10];
	int fd;

	hook_install();
	fd = open_a();
	assert_int_equal(io_pwritev(fd, iov, 2, 7), 0);
	assert_int_equal(io_sync(fd), 0);
	assert_int_equal(io_pread(fd, p, 10, 4), 8);
	assert_int_equal(io_truncate(fd, 3), 0);
	assert_int_equal(io_allocate(fd, 4096, 4096), 0);
	assert_int_equal(io_punch(fd, 0, 4096), 0);
	assert_int_equal(io_close(fd), 0);
	assert_int_equal(io_rename(dirfd, "a", dirfd, "b"), 0);
	assert_int_equal(io_mkdir(dirfd, "d", 0700), 0);
	assert_int_equal(io_sync_dir(dirfd), 0);
	assert_int_equal(io_unlink(dirfd, "b"), 0);
	assert_int_equal(io_unlink(dirfd, "b"), -ENOENT);
	assert_int_equal(io_link(dirfd, "b", dirfd, "c"), -ENOENT);
	assert_string_equal(hook.seen, "open a=ok; write 7+5=5; sync=0; read 4+10=8; truncate 0+3=0; "
				       "allocate 4096+4096=0; punch 0+4096=0; rename a b=0; mkdir d=0; syncdir=0; "
				       "unlink b=0; unlink b=-2; link b c=-2; ");
}

static void a_new_name_replaces_nothing(void **state _unused_)
{
	close(open_a());
	assert_int_equal(io_link(dirfd, "a", dirfd, "l"), 0);
	assert_int_equal(io_link(dirfd, "a", dirfd, "l"), -EEXIST);
	assert_int_equal(io_rename_new(dirfd, "a", dirfd, "l"), -EEXIST);
	assert_int_equal(io_unlink(dirfd, "l"), 0);
	assert_int_equal(io_rename_new(dirfd, "a", dirfd, "l"), 0);
	assert_int_equal(io_unlink(dirfd, "a"), -ENOENT);
	assert_int_equal(io_unlink(dirfd, "l"), 0);
}

static void opening_for_reading_is_not_recorded(void **state _unused_)
{
	int fd = open_a();

	assert_int_equal(io_close(fd), 0);
	hook_install();
	hook_fail(IO_OPEN, -EIO);
	fd = io_open(dirfd, "a", O_RDWR, 0);
	assert_true(fd >= 0);
	assert_int_equal(io_close(fd), 0);
	assert_string_equal(hook.seen, "");
}

static void a_refused_call_is_not_made(void **state _unused_)
{
	_cleanup_(closep) int fd = open_a();
	char p[5];

	assert_int_equal(io_pwrite(fd, "hello", 5, 0), 0);
	hook_install();
	hook_fail(IO_WRITE, -EIO);
	assert_int_equal(io_pwrite(fd, "HELLO", 5, 0), -EIO);
	hook_fail(IO_READ, -EIO);
	assert_int_equal(io_pread(fd, p, 5, 0), -EIO);
	hook_fail(IO_SYNC, -ENOSPC);
	assert_int_equal(io_sync(fd), -ENOSPC);
	hook_fail(IO_SYNC_DIR, -EIO);
	assert_int_equal(io_sync_dir(dirfd), -EIO);
	hook_fail(IO_SYNC_FS, -EIO);
	assert_int_equal(io_sync_fs(dirfd), -EIO);
	hook_fail(IO_TRUNCATE, -EIO);
	assert_int_equal(io_truncate(fd, 0), -EIO);
	hook_fail(IO_ALLOCATE, -ENOSPC);
	assert_int_equal(io_allocate(fd, 0, 100), -ENOSPC);
	hook_fail(IO_PUNCH, -EOPNOTSUPP);
	assert_int_equal(io_punch(fd, 0, 5), -EOPNOTSUPP);
	hook_fail(IO_RENAME, -EIO);
	assert_int_equal(io_rename(dirfd, "a", dirfd, "b"), -EIO);
	assert_int_equal(io_rename_new(dirfd, "a", dirfd, "b"), -EIO);
	hook_fail(IO_LINK, -EPERM);
	assert_int_equal(io_link(dirfd, "a", dirfd, "b"), -EPERM);
	hook_fail(IO_UNLINK, -EROFS);
	assert_int_equal(io_unlink(dirfd, "a"), -EROFS);
	hook_fail(IO_MKDIR, -ENOSPC);
	assert_int_equal(io_mkdir(dirfd, "d", 0700), -ENOSPC);
	hook_fail(IO_OPEN, -EMFILE);
	assert_int_equal(io_open(dirfd, "a", O_RDWR | O_TRUNC, 0), -EMFILE);
	assert_string_equal(hook.seen, "open a"); /* no `after`: nothing was done */
	io_set_hook(NULL);
	assert_int_equal(io_pread(fd, p, 5, 0), 5);
	assert_memory_equal(p, "hello", 5);
	assert_int_equal(faccessat(dirfd, "a", F_OK, 0), 0);
	assert_int_equal(faccessat(dirfd, "d", F_OK, 0), -1);
}

static void a_write_can_be_torn_at_every_byte(void **state _unused_)
{
	struct iovec iov[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };

	for (int n = 1; n <= 8; n++) {
		_cleanup_(closep) int fd = open_a();
		char p[8], expected[32];

		hook_install();
		hook_fail(IO_WRITE, n);
		assert_int_equal(io_pwritev(fd, iov, 3, 0), -ENOSPC);
		snprintf(expected, sizeof(expected), "write 0+8=%d; ", n);
		assert_string_equal(hook.seen, expected);
		io_set_hook(NULL);
		assert_int_equal(size_of(fd), n);
		assert_int_equal(io_pread(fd, p, 8, 0), n);
		assert_memory_equal(p, "abcdefgh", (size_t)n);
	}
}

static void a_real_failure_reports_no_bytes(void **state _unused_)
{
	hook_install();
	assert_int_equal(io_pwrite(-1, "x", 1, 0), -EBADF);
	assert_string_equal(hook.seen, "write 0+1=-9; ");
}

/* Else this would not end. */
static void rates_of_nothing_never_wait(void **state _unused_)
{
	struct io_rate *r = NULL;

	io_rate_wait(NULL, UINT64_MAX);
	assert_int_equal(io_rate_new(0, &r), 0);
	io_rate_wait(r, UINT64_MAX);
	io_rate_wait(r, UINT64_MAX);
	io_rate_free(r);
	io_rate_free(NULL);
}

static void the_first_transfer_passes_and_the_next_waits_for_it(void **state _unused_)
{
	struct io_rate *r = NULL;
	uint64_t begin, first = 99 * MS;

	for (unsigned i = 0; i < 20 && first >= 99 * MS; i++) { /* again if this thread did not run in time */
		assert_int_equal(io_rate_new(MiB(1), &r), 0);
		begin = monotonic_ns();
		io_rate_wait(r, MiB(1) / 10);
		first = monotonic_ns() - begin;
		io_rate_wait(r, 1);
		assert_true(monotonic_ns() - begin >= 99 * MS);
		io_rate_free(r);
	}
	assert_true(first < 99 * MS);
}

static bool three_times(void *nr)
{
	return ++*(unsigned *)nr <= 3;
}

/* It would wait for 4096 s. */
static void waiting_ends_when_requested(void **state _unused_)
{
	struct io_rate *r = NULL;
	unsigned nr = 0;

	assert_int_equal(io_rate_new(1, &r), 0);
	io_rate_wait_while(r, 4096, three_times, &nr);
	assert_int_equal(nr, 0);
	io_rate_wait_while(r, 4096, three_times, &nr);
	assert_int_equal(nr, 4);
	io_rate_free(r);
}

static void idle_time_is_not_saved_up(void **state _unused_)
{
	struct io_rate *r = NULL;
	uint64_t begin;

	assert_int_equal(io_rate_new(MiB(1), &r), 0);
	usleep(100000);
	begin = monotonic_ns();
	for (int i = 0; i < 5; i++)
		io_rate_wait(r, MiB(1) / 50);
	assert_true(monotonic_ns() - begin >= 79 * MS);
	io_rate_free(r);
}

static void *pass_ten(void *rate)
{
	for (int i = 0; i < 10; i++)
		io_rate_wait(rate, MiB(1) / 100);
	return NULL;
}

static void threads_share_a_rate(void **state _unused_)
{
	struct io_rate *r = NULL;
	pthread_t threads[3];
	uint64_t begin = monotonic_ns();

	assert_int_equal(io_rate_new(MiB(1), &r), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, pass_ten, r), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(monotonic_ns() - begin >= 289 * MS); /* 30 transfers of 10 ms, the first at once */
	io_rate_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(descriptors_close_on_exec, end),
		cmocka_unit_test_teardown(reading_stops_at_the_end_of_the_file, end),
		cmocka_unit_test_teardown(any_number_of_vectors_passes, end),
		cmocka_unit_test_teardown(many_reads_are_done_at_once, end),
		cmocka_unit_test_teardown(errors_are_negative_errnos, end),
		cmocka_unit_test_teardown(space_is_allocated_punched_and_cut, end),
		cmocka_unit_test_teardown(every_change_is_recorded_in_order, end),
		cmocka_unit_test_teardown(a_new_name_replaces_nothing, end),
		cmocka_unit_test_teardown(opening_for_reading_is_not_recorded, end),
		cmocka_unit_test_teardown(a_refused_call_is_not_made, end),
		cmocka_unit_test_teardown(a_write_can_be_torn_at_every_byte, end),
		cmocka_unit_test_teardown(a_real_failure_reports_no_bytes, end),
		cmocka_unit_test(rates_of_nothing_never_wait),
		cmocka_unit_test(the_first_transfer_passes_and_the_next_waits_for_it),
		cmocka_unit_test(waiting_ends_when_requested),
		cmocka_unit_test(idle_time_is_not_saved_up),
		cmocka_unit_test(threads_share_a_rate),
	};

	return cmocka_run_group_tests_name("io", tests, set_up, tear_down);
}
