/*
 * Where tests have their stores: in memory, if there is room, since each sync of a disk takes milliseconds, and each test has hundreds.
 * What disks add to it is for the suites that mount.
 */
#pragma once

#include <stdint.h>
#include <sys/statvfs.h>
#include <unistd.h>

static inline const char *test_place(void)
{
	const uint64_t enough = UINT64_C(2) << 30; /* for tests of several processors at once; containers may have 64 MiB */
	struct statvfs s;

	if (access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &s) == 0 && (uint64_t)s.f_bavail * s.f_frsize >= enough)
		return "/dev/shm";
	return "/tmp";
}
