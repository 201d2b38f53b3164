/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Bytes: append, truncate, holes, seeking, fallocate, copy_file_range, O_DIRECT, limits. */
#include "posix.h"

#include <linux/falloc.h>
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define KiB(n) ((size_t)(n) << 10)
#define MiB(n) ((size_t)(n) << 20)
#define TiB(n) ((off_t)(n) << 40)

static int64_t size_of(int fd)
{
	struct stat st;

	OK(fstat(fd, &st));
	return st.st_size;
}

static int64_t blocks_of(int fd)
{
	struct stat st;

	OK(fsync(fd));
	OK(fstat(fd, &st));
	return st.st_blocks;
}

CHECK(write_and_read_at_odd_places)
{
	static const struct {
		size_t off, len;
	} t[] = { { 0, 1 },	       { 4095, 2 },	     { 1, 4096 },   { 8191, 8193 },
		  { MiB(1) - 1, 2 }, { 100000, 300001 }, { 3, MiB(2) } };
	static uint8_t model[MiB(3)], data[MiB(3)];
	size_t size = 0, i;
	int fd = make_file("f", "", 0);

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fill(data, t[i].len, i);
		EQUAL(pwrite(fd, data, t[i].len, t[i].off), t[i].len);
		memcpy(model + t[i].off, data, t[i].len);
		if (size < t[i].off + t[i].len)
			size = t[i].off + t[i].len;
		expect_content(fd, model, size);
	}
	EQUAL(pread(fd, data, 10, size), 0);
	EQUAL(pread(fd, data, 10, size - 3), 3);
	EQUAL(pread(fd, data, 10, size + MiB(5)), 0);
	OK(close(fd));
	expect_content(OK(open("f", O_RDONLY)), model, size);
}

CHECK(vectored_io)
{
	char a[3], b[5], c[4000];
	struct iovec v[3] = { { a, 3 }, { b, 5 }, { c, sizeof(c) } };
	char all[4008];
	int fd = make_file("f", "", 0);

	fill(all, sizeof(all), 9);
	memcpy(a, all, 3), memcpy(b, all + 3, 5), memcpy(c, all + 8, sizeof(c));
	EQUAL(pwritev(fd, v, 3, 1), sizeof(all));
	EQUAL(preadv(fd, v, 3, 1), sizeof(all));
	TRUE(memcmp(c, all + 8, sizeof(c)) == 0);
	EQUAL(size_of(fd), 1 + sizeof(all));
}

CHECK(append_always_at_the_end)
{
	int fd = OK(open("f", O_RDWR | O_CREAT | O_APPEND, 0644)), other;

	EQUAL(write(fd, "aaa", 3), 3);
	other = OK(open("f", O_WRONLY | O_APPEND));
	EQUAL(write(other, "bbb", 3), 3);
	EQUAL(lseek(fd, 0, SEEK_SET), 0);
	EQUAL(write(fd, "ccc", 3), 3);
	EQUAL(lseek(fd, 0, SEEK_CUR), 9);
	expect_content(fd, "aaabbbccc", 9);
	OK(ftruncate(fd, 4));
	EQUAL(write(other, "d", 1), 1);
	expect_content(fd, "aaabd", 5);
}

#define APPENDERS 4
#define RECORDS 400

CHECK(append_by_4_processes_loses_nothing)
{
	static uint32_t next[APPENDERS];
	uint32_t head[3], i, n = 0;
	uint8_t body[512], want[512];
	pid_t pid[APPENDERS];
	int fd;

	OK(close(make_file("f", "", 0)));
	for (i = 0; i < APPENDERS; i++) {
		pid[i] = check_fork();
		if (pid[i] == 0) {
			uint8_t rec[sizeof(head) + sizeof(body)];

			fd = OK(open("f", (i % 2 ? O_WRONLY : O_RDWR) | O_APPEND));
			for (n = 0; n < RECORDS; n++) {
				head[0] = i, head[1] = n, head[2] = 1 + (n * 37 + i) % sizeof(body);
				memcpy(rec, head, sizeof(head));
				fill(rec + sizeof(head), head[2], i * RECORDS + n);
				EQUAL(write(fd, rec, sizeof(head) + head[2]), sizeof(head) + head[2]);
			}
			_exit(0);
		}
	}
	for (i = 0; i < APPENDERS; i++)
		check_join(pid[i]);
	fd = OK(open("f", O_RDONLY));
	while (OK(read(fd, head, sizeof(head))) == sizeof(head)) {
		TRUE(head[0] < APPENDERS && head[2] <= sizeof(body));
		EQUAL(head[1], next[head[0]]++);
		EQUAL(read(fd, body, head[2]), head[2]);
		fill(want, head[2], head[0] * RECORDS + head[1]);
		TRUE(memcmp(body, want, head[2]) == 0);
		n++;
	}
	for (i = 0; i < APPENDERS; i++)
		EQUAL(next[i], RECORDS);
}

CHECK(writers_of_own_ranges_do_not_disturb_each_other)
{
	enum { N = 4, STRIPE = 5000, ROUNDS = 60 };
	static uint8_t model[N * STRIPE * ROUNDS];
	pid_t pid[N];
	int i, k, fd = make_file("f", "", 0);

	fill(model, sizeof(model), 4);
	for (i = 0; i < N; i++) {
		pid[i] = check_fork();
		if (pid[i] == 0) {
			int own = OK(open("f", i % 2 ? O_WRONLY : O_RDWR));

			for (k = 0; k < ROUNDS; k++) {
				size_t off = (size_t)(k * N + i) * STRIPE;

				EQUAL(pwrite(own, model + off, STRIPE, off), STRIPE);
			}
			OK(close(own));
			_exit(0);
		}
	}
	for (i = 0; i < N; i++)
		check_join(pid[i]);
	expect_content(fd, model, sizeof(model));
}

CHECK(truncate_both_ways)
{
	static uint8_t model[MiB(2)];
	static const size_t sizes[] = { 1500000, 4097, 4096, 1048577, 4095, 1, 70000, 0, 12345, MiB(2), MiB(1) };
	size_t size = MiB(2), i;
	int fd;

	fill(model, size, 6);
	fd = make_file("f", model, size);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (i % 2)
			OK(ftruncate(fd, sizes[i]));
		else
			OK(truncate("f", sizes[i]));
		if (sizes[i] < size)
			memset(model + sizes[i], 0, size - sizes[i]);
		size = sizes[i];
		EQUAL(size_of(fd), size);
		expect_content(fd, model, size);
	}
	FAILS(EINVAL, ftruncate(fd, -1));
	FAILS(EINVAL, ftruncate(OK(open("f", O_RDONLY)), 0));
	FAILS(ENOENT, truncate("no", 0));
}

CHECK(open_with_trunc_empties)
{
	int fd = make_file("f", "content", 7);

	OK(close(OK(open("f", O_WRONLY | O_TRUNC))));
	EQUAL(size_of(fd), 0);
	EQUAL(pwrite(fd, "x", 1, 10), 1);
	expect_content(fd, "\0\0\0\0\0\0\0\0\0\0x", 11);
}

CHECK(holes_read_as_zeros_and_take_no_space)
{
	int fd = make_file("f", "", 0);

	EQUAL(pwrite(fd, "x", 1, MiB(64)), 1);
	EQUAL(size_of(fd), MiB(64) + 1);
	expect_zeros(fd, 0, MiB(1));
	expect_zeros(fd, MiB(63), MiB(1));
	TRUE(blocks_of(fd) <= 16);
}

CHECK(seek_data_and_hole)
{
	static uint8_t data[KiB(128)];
	int fd = make_file("f", "", 0);

	fill(data, sizeof(data), 8);
	OK(ftruncate(fd, MiB(8)));
	EQUAL(pwrite(fd, data, sizeof(data), MiB(1)), sizeof(data));
	EQUAL(pwrite(fd, data, sizeof(data), MiB(5)), sizeof(data));
	OK(fsync(fd));
	EQUAL(lseek(fd, 0, SEEK_DATA), MiB(1));
	EQUAL(lseek(fd, 0, SEEK_HOLE), 0);
	EQUAL(lseek(fd, MiB(1), SEEK_HOLE), MiB(1) + sizeof(data));
	EQUAL(lseek(fd, MiB(1) + 5000, SEEK_DATA), MiB(1) + 5000);
	EQUAL(lseek(fd, MiB(2), SEEK_DATA), MiB(5));
	EQUAL(lseek(fd, MiB(5) + 1, SEEK_HOLE), MiB(5) + sizeof(data));
	FAILS(ENXIO, lseek(fd, MiB(6), SEEK_DATA));
	EQUAL(lseek(fd, MiB(6), SEEK_HOLE), MiB(6));
	FAILS(ENXIO, lseek(fd, MiB(8), SEEK_DATA));
	FAILS(ENXIO, lseek(fd, MiB(8), SEEK_HOLE));
	EQUAL(pwrite(fd, data, 1000, MiB(8) - 1000), 1000);
	OK(fsync(fd));
	EQUAL(lseek(fd, MiB(8) - 10, SEEK_HOLE), MiB(8)); /* the end is a hole */
	EQUAL(lseek(fd, 0, SEEK_END), MiB(8));
}

CHECK(fallocate_extends_with_zeros)
{
	int fd = make_file("f", "abc", 3);

	OK(fallocate(fd, 0, 10, MiB(1)));
	EQUAL(size_of(fd), MiB(1) + 10);
	expect_zeros(fd, 3, MiB(1) + 7);
	OK(fallocate(fd, 0, 0, 100)); /* does not shrink */
	EQUAL(size_of(fd), MiB(1) + 10);
	EQUAL(posix_fallocate(fd, 0, MiB(2)), 0);
	EQUAL(size_of(fd), MiB(2));
	EQUAL(pread(fd, &(char[3]){ 0 }, 3, 0), 3);
	FAILS(EINVAL, fallocate(fd, 0, 0, 0));
	FAILS(EINVAL, fallocate(fd, 0, -1, 10));
	FAILS(EBADF, fallocate(OK(open("f", O_RDONLY)), 0, 0, 10));
}

CHECK(fallocate_keep_size)
{
	int fd = make_file("f", "abc", 3);

	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MiB(1)));
	EQUAL(size_of(fd), 3);
	expect_content(fd, "abc", 3);
	OK(ftruncate(fd, 100));
	expect_zeros(fd, 3, 97);
}

CHECK(fallocate_punch_hole)
{
	static uint8_t model[MiB(2)];
	static const struct {
		size_t off, len;
	} t[] = { { 4096, 4096 },      { 10000, 1 },	   { 20000, 30000 },
		  { MiB(1) - 5, 10 }, { 100000, MiB(1) }, { MiB(2) - 10, 100 } };
	int64_t before;
	size_t i;
	int fd;

	fill(model, sizeof(model), 10);
	fd = make_file("f", model, sizeof(model));
	OK(fsync(fd)); /* with a write-back cache, blocks count what was written back */
	before = blocks_of(fd);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		size_t len = t[i].off + t[i].len > sizeof(model) ? sizeof(model) - t[i].off : t[i].len;

		OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, t[i].off, t[i].len));
		memset(model + t[i].off, 0, len);
		expect_content(fd, model, sizeof(model));
	}
	TRUE(blocks_of(fd) < before - 2000);
	EQUAL(lseek(fd, 200000, SEEK_HOLE), 200000);
	FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096));
}

CHECK(fallocate_zero_range)
{
	static uint8_t model[MiB(1)];
	int fd;

	fill(model, sizeof(model), 11);
	fd = make_file("f", model, sizeof(model));
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5000, 20000));
	memset(model + 5000, 0, 20000);
	expect_content(fd, model, sizeof(model));
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, MiB(1) - 100, 1000));
	memset(model + MiB(1) - 100, 0, 100);
	expect_content(fd, model, sizeof(model));
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, MiB(1) - 100, 1000));
	EQUAL(size_of(fd), MiB(1) + 900);
	expect_zeros(fd, MiB(1) - 100, 1000);
}

CHECK(sparse_file_of_16_tib)
{
	static uint8_t data[8192];
	off_t end = TiB(16) - 4096, at; /* the largest ext4 with 4 KiB blocks has */
	uint8_t got[8192];
	int fd = make_file("f", "head", 4);

	fill(data, sizeof(data), 12);
	EQUAL(pwrite(fd, data, sizeof(data), end - (off_t)sizeof(data)), sizeof(data));
	EQUAL(size_of(fd), end);
	EQUAL(pread(fd, (uint8_t[8192]){ 0 }, 8192, end - 5000), 5000);
	OK(close(fd));
	fd = OK(open("f", O_RDONLY));
	EQUAL(pread(fd, got, sizeof(got), end - (off_t)sizeof(got)), sizeof(got));
	TRUE(memcmp(got, data, sizeof(got)) == 0);
	expect_zeros(fd, TiB(8), 65536);
	at = OK(lseek(fd, MiB(1), SEEK_DATA));
	TRUE(at <= end - (off_t)sizeof(data) && at > end - (off_t)MiB(1)); /* whole pages are data, however large */
	TRUE(blocks_of(fd) <= 64);
}

CHECK(too_large_is_efbig)
{
	int fd = make_file("f", "abc", 3);

	if (check_writeback())
		check_skip("with a write-back cache, EFBIG comes with fsync");
	FAILS(EFBIG, pwrite(fd, "x", 1, LLONG_MAX - 4096));
	FAILS(EFBIG, ftruncate(fd, LLONG_MAX));
	FAILS(EFBIG, fallocate(fd, 0, LLONG_MAX - 4096, 8192));
	expect_content(fd, "abc", 3);
}

CHECK(file_size_limit_is_efbig)
{
	struct rlimit lim = { 5000, RLIM_INFINITY };
	char data[4000] = { 0 };
	int fd = make_file("f", "", 0);

	signal(SIGXFSZ, SIG_IGN);
	OK(setrlimit(RLIMIT_FSIZE, &lim));
	EQUAL(write(fd, data, 4000), 4000);
	EQUAL(write(fd, data, 4000), 1000);
	FAILS(EFBIG, write(fd, data, 4000));
	FAILS(EFBIG, ftruncate(fd, 6000));
	fd = OK(open("f", O_WRONLY));
	FAILS(EFBIG, pwrite(fd, data, 10, 5000));
	EQUAL(size_of(fd), 5000);
}

static void copy_range(int from, off_t from_off, int to, off_t to_off, size_t len)
{
	while (len > 0) {
		ssize_t n = OK(copy_file_range(from, &from_off, to, &to_off, len, 0));

		TRUE(n > 0);
		len -= n;
	}
}

CHECK(copy_file_range_shares_any_range)
{
	static const struct {
		size_t from, to, len;
	} t[] = {
		{ 0, 0, MiB(2) },	 { 4096, 8192, 65536 }, { 0, 1, 4096 },	  { 1, 0, 4096 },
		{ 1000, 77777, 500001 }, { 5, MiB(2) - 5, 10 }, { 12288, 100, 7 }, { MiB(2) - 3, 4095, 3 },
		{ 0, MiB(2) + 5000, MiB(1) },
	};
	static uint8_t from[MiB(2)], to[MiB(4)];
	size_t size = 5000, i;
	int a, b;

	fill(from, sizeof(from), 13);
	memset(from + 500000, 0, 100000);
	fill(to, size, 14);
	a = make_file("a", from, sizeof(from));
	b = make_file("b", to, size);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		copy_range(a, t[i].from, b, t[i].to, t[i].len);
		memcpy(to + t[i].to, from + t[i].from, t[i].len);
		if (size < t[i].to + t[i].len)
			size = t[i].to + t[i].len;
		expect_content(b, to, size);
	}
	expect_content(a, from, sizeof(from));
	EQUAL(pwrite(a, "changed", 7, 0), 7); /* the copy does not follow */
	expect_content(b, to, size);
}

CHECK(copy_file_range_inside_one_file)
{
	static uint8_t model[MiB(1)];
	off_t x = 0, y = 100;
	int fd;

	fill(model, sizeof(model), 15);
	fd = make_file("f", model, sizeof(model));
	copy_range(fd, 100, fd, 500001, 200000);
	memcpy(model + 500001, model + 100, 200000);
	copy_range(fd, 600000, fd, 0, 131072);
	memcpy(model, model + 600000, 131072);
	expect_content(fd, model, sizeof(model));
	FAILS(EINVAL, copy_file_range(fd, &x, fd, &y, 1000, 0));
}

CHECK(copy_file_range_positions_and_errors)
{
	int a = make_file("a", "0123456789", 10), b = make_file("b", "", 0), append;
	off_t off = 100;

	EQUAL(lseek(a, 4, SEEK_SET), 4);
	EQUAL(copy_file_range(a, NULL, b, NULL, 3, 0), 3);
	EQUAL(lseek(a, 0, SEEK_CUR), 7);
	EQUAL(lseek(b, 0, SEEK_CUR), 3);
	EQUAL(copy_file_range(a, NULL, b, NULL, 100, 0), 3); /* up to the end */
	EQUAL(copy_file_range(a, NULL, b, NULL, 100, 0), 0);
	EQUAL(copy_file_range(a, &off, b, NULL, 10, 0), 0);
	expect_content(b, "456789", 6);
	append = OK(open("b", O_WRONLY | O_APPEND));
	off = 0;
	FAILS(EBADF, copy_file_range(a, &off, append, NULL, 1, 0));
	FAILS(EBADF, copy_file_range(a, &off, OK(open("b", O_RDONLY)), NULL, 1, 0));
	FAILS(EINVAL, copy_file_range(a, &off, b, NULL, 1, 1));
	OK(mkdir("d", 0755));
	FAILS(EISDIR, copy_file_range(OK(open("d", O_RDONLY)), NULL, b, NULL, 1, 0));
}

CHECK(flags_that_fcntl_changes_count)
{
	const struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	int from = make_file("from", "0123456789", 10), to;
	struct stat st;
	off_t off = 0;
	char byte;

	to = OK(open("to", O_RDWR | O_CREAT | O_APPEND, 0644));
	FAILS(EBADF, copy_file_range(from, &off, to, &(off_t){ 0 }, 5, 0));
	OK(fcntl(to, F_SETFL, 0));
	EQUAL(copy_file_range(from, &off, to, &(off_t){ 0 }, 5, 0), 5);
	expect_content(to, "01234", 5);
	OK(fcntl(to, F_SETFL, O_APPEND));
	FAILS(EBADF, copy_file_range(from, &off, to, &(off_t){ 0 }, 5, 0));
	EQUAL(pwrite(to, "end", 3, 0), 3);
	expect_content(to, "01234end", 8);

	OK(futimens(from, old));
	OK(close(from));
	from = OK(open("from", O_RDONLY));
	OK(fcntl(from, F_SETFL, O_NOATIME));
	OK(posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED));
	EQUAL(pread(from, &byte, 1, 0), 1);
	OK(fstat(from, &st));
	EQUAL(st.st_atime, 1000);
}

CHECK(o_direct_reads_and_writes)
{
	enum { SIZE = 1 << 20 };
	static uint8_t model[SIZE], buf[SIZE] __attribute__((aligned(4096)));
	int fd, plain;

	fill(model, SIZE, 16);
	fd = OK(open("f", O_RDWR | O_CREAT | O_DIRECT, 0644));
	memcpy(buf, model, SIZE);
	EQUAL(pwrite(fd, buf, SIZE, 0), SIZE);
	plain = OK(open("f", O_RDWR));
	expect_content(plain, model, SIZE);
	EQUAL(pwrite(plain, "plain", 5, 8190), 5);
	memcpy(model + 8190, "plain", 5);
	memset(buf, 0, SIZE);
	EQUAL(pread(fd, buf, SIZE, 0), SIZE);
	TRUE(memcmp(buf, model, SIZE) == 0);
	fill(buf, 4096, 17);
	EQUAL(pwrite(fd, buf, 4096, 12288), 4096);
	memcpy(model + 12288, buf, 4096);
	expect_content(plain, model, SIZE);
	OK(ftruncate(fd, 5000));
	EQUAL(pread(fd, buf, 8192, 0), 5000);
	TRUE(memcmp(buf, model, 5000) == 0);
	EQUAL(pread(fd, buf, 4096, 8192), 0);
}

CHECK(two_openers_see_each_others_writes_at_once)
{
	int a = OK(open("f", O_RDWR | O_CREAT, 0644)), b = OK(open("f", O_RDONLY)), w = OK(open("f", O_WRONLY));
	char want[32], got[32];
	int i;

	for (i = 0; i < 200; i++) {
		snprintf(want, sizeof(want), "version %06d", i);
		EQUAL(pwrite(i % 2 ? a : w, want, 14, 4090), 14);
		EQUAL(pread(b, got, 14, 4090), 14);
		TRUE(memcmp(want, got, 14) == 0);
		EQUAL(pread(a, got, 14, 4090), 14);
		TRUE(memcmp(want, got, 14) == 0);
		EQUAL(size_of(b), 4104);
	}
}

CHECK(read_and_write_need_the_right_open_mode)
{
	int r, w;

	put_file("f", "x");
	r = OK(open("f", O_RDONLY));
	w = OK(open("f", O_WRONLY));
	FAILS(EBADF, write(r, "x", 1));
	FAILS(EBADF, read(w, &(char){ 0 }, 1));
	EQUAL(write(w, "", 0), 0);
	EQUAL(read(r, &(char){ 0 }, 0), 0);
}
