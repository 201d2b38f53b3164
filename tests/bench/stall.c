/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How long single calls take, for ./bench gc: a moderate load on a mount for some time, by three processes.
 *
 *   writer   a new MiB every 10 ms into two files of 64 MiB in turn, fsync every 16 MiB
 *   reader   64 KiB at random out of DIR/read every 2 ms, never from the kernel's cache
 *   names    a small file created, looked at and removed, every 2 ms
 *
 * The load waits between calls: a disk that is kept busy makes everybody wait, and hides who else does.
 * Prints a line of JSON: per kind of call how many, the longest and the 99.9th percentile in ms.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define FILE_MIB 64u
#define SYNC_MIB 16u
#define READ_BYTES (64u << 10)
#define WRITE_EACH_NS (10 * 1000 * 1000)
#define PEERS_EACH_NS (2 * 1000 * 1000)
#define CALLS_MAX ((size_t)1 << 20)

enum kind { WRITE, FSYNC, READ, CREATE, STAT, UNLINK, NR_KINDS };
static const char *const names[NR_KINDS] = { "write", "fsync", "read", "create", "stat", "unlink" };

static struct {
	uint64_t nr;
	uint32_t us[CALLS_MAX];
} *calls; /* one per kind, in shared memory: each kind has one process */

static const char *dir;
static uint64_t end_ns;

static void die(const char *what)
{
	fprintf(stderr, "stall: %s: %s: %s\n", dir, what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void took(enum kind kind, uint64_t since_ns)
{
	if (calls[kind].nr < CALLS_MAX)
		calls[kind].us[calls[kind].nr++] = (uint32_t)((now_ns() - since_ns) / 1000);
}

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static int open_timed(const char *path)
{
	uint64_t t = now_ns();
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path);
	took(CREATE, t);
	return fd;
}

static void write_files(void)
{
	uint64_t *p = malloc(MIB), x = 88172645463325252u + end_ns;
	char path[4096];

	if (!p)
		die("memory");
	for (unsigned nr = 0; now_ns() < end_ns; nr++) {
		int fd;

		snprintf(path, sizeof(path), "%s/written-%u", dir, nr % 2);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (fd < 0)
			die(path);
		for (unsigned i = 0; i < FILE_MIB && now_ns() < end_ns; i++) {
			uint64_t t;

			for (size_t k = 0; k < MIB / sizeof(*p); k++) {
				x ^= x << 13;
				x ^= x >> 7;
				x ^= x << 17;
				p[k] = x;
			}
			t = now_ns();
			if (write(fd, p, MIB) != (ssize_t)MIB)
				die("write");
			took(WRITE, t);
			if (i % SYNC_MIB == SYNC_MIB - 1) {
				t = now_ns();
				if (fsync(fd) < 0)
					die("fsync");
				took(FSYNC, t);
			}
			pause_ns(WRITE_EACH_NS);
		}
		close(fd);
	}
}

static void read_file(void)
{
	char path[4096], *p = malloc(READ_BYTES);
	uint64_t x = 1;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/read", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (!p || fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)READ_BYTES)
		die(path);
	while (now_ns() < end_ns) {
		off_t off;
		uint64_t t;

		x = x * 6364136223846793005 + 1442695040888963407;
		off = (off_t)(x >> 16) % (st.st_size / READ_BYTES) * READ_BYTES;
		posix_fadvise(fd, off, READ_BYTES, POSIX_FADV_DONTNEED);
		t = now_ns();
		if (pread(fd, p, READ_BYTES, off) != (ssize_t)READ_BYTES)
			die("read");
		took(READ, t);
		pause_ns(PEERS_EACH_NS);
	}
}

static void make_names(void)
{
	char path[4096];

	for (unsigned i = 0; now_ns() < end_ns; i++) {
		struct stat st;
		uint64_t t;

		snprintf(path, sizeof(path), "%s/name-%u", dir, i);
		close(open_timed(path));
		t = now_ns();
		if (stat(path, &st) < 0)
			die("stat");
		took(STAT, t);
		t = now_ns();
		if (unlink(path) < 0)
			die("unlink");
		took(UNLINK, t);
		pause_ns(PEERS_EACH_NS);
	}
}

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void show(void)
{
	for (unsigned i = 0; i < NR_KINDS; i++) {
		uint64_t nr = calls[i].nr;

		qsort(calls[i].us, nr, sizeof(calls[i].us[0]), compare);
		printf("%s\"%s\": {\"count\": %" PRIu64 ", \"longest_ms\": %.3f, \"p999_ms\": %.3f}", i ? ", " : "{",
		       names[i], nr, nr ? calls[i].us[nr - 1] / 1e3 : 0,
		       nr ? calls[i].us[(nr - 1) * 999 / 1000] / 1e3 : 0);
	}
	puts("}");
}

int main(int argc, char **argv)
{
	static void (*const loads[])(void) = { write_files, read_file, make_names };
	int status, failed = 0;

	if (argc != 3) {
		fprintf(stderr, "Usage: stall DIR SECONDS\n");
		return 2;
	}
	dir = argv[1];
	end_ns = now_ns() + strtoull(argv[2], NULL, 10) * 1000000000;
	calls = mmap(NULL, NR_KINDS * sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (calls == MAP_FAILED)
		die("memory");
	for (unsigned i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid == 0) {
			loads[i]();
			exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	if (failed)
		return 1;
	show();
	return 0;
}
