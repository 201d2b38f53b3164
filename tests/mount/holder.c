/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: holder DIR NAME UID    seals DIR/NAME as that user, then holds the kernel's lock of DIR and removes DIR/NAME,
 *                               which waits for that lock. Prints a line before. Ends only when it is killed.
 *
 * The lock is held by getdents(2), which writes to a page that never comes. An ordinary user takes a page of a file on
 * a FUSE filesystem of his own; here it is one of userfaultfd(2). Exit code 77: there is none.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/ioctl.h"

#define PAGE 4096u

static int dir;
static void *page;

static void check(long r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	exit(1);
}

static void make_page(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (fd < 0)
		exit(77);
	check(ioctl(fd, UFFDIO_API, &api), "UFFDIO_API");
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page == MAP_FAILED ? -1 : 0, "mmap");
	range.range = (struct uffdio_range){ .start = (uintptr_t)page, .len = PAGE };
	check(ioctl(fd, UFFDIO_REGISTER, &range), "UFFDIO_REGISTER");
}

static void *hold(void *unused)
{
	(void)unused;
	check(syscall(SYS_getdents64, dir, page, PAGE), "getdents64");
	return NULL;
}

static void command(int fd, uint32_t command)
{
	struct ckptfs_seal s = { .size = sizeof(s), .version = CKPTFS_IOC_VERSION, .command = command };

	check(ioctl(fd, CKPTFS_IOC_SEAL, &s), "seal");
}

int main(int argc, char **argv)
{
	pthread_t thread;
	uid_t uid;
	int fd;

	if (argc != 4)
		return 2;
	uid = (uid_t)strtoul(argv[3], NULL, 10);
	make_page();
	check(setresuid(uid, uid, uid), "setresuid");
	dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	check(dir, argv[1]);
	fd = openat(dir, argv[2], O_RDONLY | O_DIRECTORY);
	check(fd, argv[2]);
	command(fd, CKPTFS_SEAL_SEAL);
	check(-pthread_create(&thread, NULL, hold, NULL), "pthread_create");
	usleep(200000); /* it has the lock by then, or there is nothing to be seen */
	puts("removing");
	fflush(stdout);
	command(fd, CKPTFS_SEAL_REMOVE);
	pthread_join(thread, NULL);
	return 0;
}
