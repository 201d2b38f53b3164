/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where tests have their stores: in memory, if there is room and direct I/O (tmpfs has it since Linux 6.6), as each
 * sync of a disk takes milliseconds, and each test has hundreds. What disks add to it is for the suites that mount.
 */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <unistd.h>

static inline bool has_direct_io(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static inline const char *test_place(void)
{
	/* for tests of several processors at once; containers may have 64 MiB */
	const uint64_t enough = UINT64_C(2) << 30;
	struct statvfs s;

	if (statvfs("/dev/shm", &s) == 0 && (uint64_t)s.f_bavail * s.f_frsize >= enough && has_direct_io("/dev/shm"))
		return "/dev/shm";
	return "/tmp";
}
