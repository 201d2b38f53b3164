/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * append FILE ROUNDS rdwr|wronly
 *
 * One process changes a byte of the file's last page through a shared mapping and has the page written back, without
 * end. Another appends to the same page and reads what it has written, through the page cache and around it.
 *
 * ckptfs(5) says on which mounts this loses bytes: the kernel zeroes a page beyond the end of the file when it writes it
 * back, and without a write-back cache it moves the end only after a write has been answered.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096 /* not more than a page has on any machine */

struct view {
	const char *name;
	int fd;
	unsigned nr_wrong;
};

static int64_t ok(int64_t r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "append: %s: %s\n", what, strerror(errno));
		exit(2);
	}
	return r;
}

/* Leaves everything but the first byte alone. */
static void write_back(int fd, volatile uint8_t *page, const atomic_bool *stop)
{
	while (!*stop) {
		page[0]++;
		ok(sync_file_range(fd, 0, PAGE,
				   SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER),
		   "sync_file_range");
	}
}

static void check(struct view *v, const uint8_t *wanted, size_t off, size_t len)
{
	static uint8_t page[PAGE] __attribute__((aligned(PAGE)));

	if (ok(pread(v->fd, page, PAGE, 0), "pread") != (int64_t)(off + len) || memcmp(page + off, wanted, len) != 0)
		v->nr_wrong++;
}

int main(int argc, char **argv)
{
	unsigned rounds = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
	struct view views[2] = { { .name = "in the page cache" }, { .name = "in the store" } };
	uint8_t data[PAGE / 4];
	atomic_bool *stop;
	uint8_t *page;
	int fd, mapped;
	pid_t pid;

	if (rounds == 0 || (strcmp(argv[3], "rdwr") != 0 && strcmp(argv[3], "wronly") != 0)) {
		fprintf(stderr, "usage: append FILE ROUNDS rdwr|wronly\n");
		return 2;
	}
	mapped = (int)ok(open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), "create");
	ok(ftruncate(mapped, 1), "ftruncate");
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
	stop = mmap(NULL, sizeof(*stop), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || stop == MAP_FAILED)
		ok(-1, "mmap");
	pid = (pid_t)ok(fork(), "fork");
	if (pid == 0) {
		write_back(mapped, page, stop);
		_exit(0);
	}
	fd = (int)ok(open(argv[1], strcmp(argv[3], "rdwr") == 0 ? O_RDWR : O_WRONLY), "open");
	views[0].fd = (int)ok(open(argv[1], O_RDONLY), "open");
	views[1].fd = (int)ok(open(argv[1], O_RDONLY | O_DIRECT), "open");
	memset(data, 0xa5, sizeof(data));
	for (unsigned i = 0; i < rounds; i++) {
		size_t end = 1 + i % (PAGE / 2), len = sizeof(data) - i % 512;

		ok(ftruncate(mapped, (off_t)end), "ftruncate");
		if (ok(pwrite(fd, data, len, (off_t)end), "pwrite") != (int64_t)len)
			ok((errno = EIO, -1), "short write");
		for (struct view *v = views; v < views + 2; v++)
			check(v, data, end, len);
	}
	*stop = true;
	waitpid(pid, NULL, 0);
	for (struct view *v = views; v < views + 2; v++)
		if (v->nr_wrong > 0)
			printf("%u of %u appended pieces are wrong %s\n", v->nr_wrong, rounds, v->name);
	return views[0].nr_wrong + views[1].nr_wrong > 0;
}
