/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/control/process_usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#define NS_PER_S UINT64_C(1000000000)
#define START_FIELD 22 /* of /proc/self/stat, proc(5) */

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t = { 0 };

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The first bytes of a file, NUL-terminated; "" if it cannot be read. */
static void read_start(const char *path, char *ret, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, ret, size - 1) : -1;

	ret[MAX(n, (ssize_t)0)] = '\0';
}

static uint64_t resident_bytes(void)
{
	uint64_t total, resident;
	char text[256];

	read_start("/proc/self/statm", text, sizeof(text));
	if (sscanf(text, "%" SCNu64 " %" SCNu64, &total, &resident) != 2)
		return 0;
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Linux 6.2 and later has the number as the size of the directory. */
static uint64_t open_fds(void)
{
	uint64_t nr = 0;
	struct stat st;
	DIR *d;

	if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
		return (uint64_t)st.st_size;
	d = opendir("/proc/self/fd");
	if (!d)
		return 0;
	for (const struct dirent *e; (e = readdir(d));)
		nr += e->d_name[0] != '.';
	closedir(d);
	return nr - MIN(nr, UINT64_C(1)); /* the directory itself was open */
}

void process_usage(struct process_usage *ret)
{
	struct rlimit fds = { 0 };

	getrlimit(RLIMIT_NOFILE, &fds);
	*ret = (struct process_usage){
		.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
		.resident_bytes = resident_bytes(),
		.open_fds = open_fds(),
		.max_fds = fds.rlim_cur,
	};
}

uint64_t process_started_ns(void)
{
	uint64_t up = clock_ns(CLOCK_BOOTTIME), now = now_ns(), started;
	const char *at;
	char text[1024];

	read_start("/proc/self/stat", text, sizeof(text));
	at = strrchr(text, ')'); /* the name of the program is field 2, and may contain anything */
	for (unsigned field = 2; at && field < START_FIELD; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%" SCNu64, &started) != 1)
		return 0;
	started *= NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	return started < up ? now - MIN(now, up - started) : now;
}
