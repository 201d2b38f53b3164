/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: ioctl_user DIR
 *
 * With what is installed, in C or C++: clones a file of DIR, compares both, looks at one, makes all durable and seals
 * the directory.
 */
#include <ckptfs.h>
#include <ckptfs/ioctl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	struct ckptfs_handle handle;
	struct ckptfs_clone clone;
	struct ckptfs_compare compare;
	struct ckptfs_stat stat;
	struct ckptfs_sync sync;
	struct ckptfs_seal seal;
	static char bytes[100000];
	int dir, from, to;

	if (argc != 2)
		return 2;
#define BEGIN(s) (memset(&(s), 0, sizeof(s)), (s).size = sizeof(s), (s).version = CKPTFS_IOC_VERSION)
	memset(bytes, 'x', sizeof(bytes));
	dir = open(argv[1], O_RDONLY | O_DIRECTORY);
	check(dir, "open");
	from = openat(dir, "from", O_RDWR | O_CREAT, 0600);
	to = openat(dir, "to", O_RDWR | O_CREAT, 0600);
	check((int)write(from, bytes, sizeof(bytes)), "write");
	BEGIN(handle);
	check(ioctl(from, CKPTFS_IOC_HANDLE, &handle), "handle");
	BEGIN(clone);
	clone.from = handle.handle;
	check(ioctl(to, CKPTFS_IOC_CLONE, &clone), "clone");
	BEGIN(compare);
	compare.with = handle.handle;
	compare.len = sizeof(bytes);
	check(ioctl(to, CKPTFS_IOC_COMPARE, &compare), "compare");
	BEGIN(stat);
	check(ioctl(to, CKPTFS_IOC_STAT, &stat), "stat");
	if (clone.done != sizeof(bytes) || compare.equal_end != sizeof(bytes) || stat.file_size != sizeof(bytes)) {
		fprintf(stderr, "not what was cloned\n");
		return 1;
	}
	BEGIN(sync);
	check(ioctl(dir, CKPTFS_IOC_SYNC, &sync), "sync");
	close(from);
	close(to);
	BEGIN(seal);
	seal.command = CKPTFS_SEAL_SEAL;
	check(ioctl(dir, CKPTFS_IOC_SEAL, &seal), "seal");
	return seal.files == 2 ? 0 : 1;
}
