/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Runs the registered checks: posix DIR [NAME...]; `posix --list` names them. */
#include "posix.h"

#include <dirent.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>

#define CHECK_SECONDS 400 /* a check that takes longer hangs */
#define EXIT_SKIPPED 77

static struct check *first, **tail = &first;
static int report_fd = -1; /* where a failing check writes its reason */

void check_register(struct check *c)
{
	*tail = c;
	tail = &c->next;
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list ap)
{
	char text[1024];
	int n;

	n = vsnprintf(text, sizeof(text), format, ap);
	if (n >= (int)sizeof(text))
		n = sizeof(text) - 1;
	if (write(report_fd, text, n) < 0)
		perror("report");
}

void check_fail(int line, const char *format, ...)
{
	char with_line[1024];
	va_list ap;

	snprintf(with_line, sizeof(with_line), "line %d: %s\n", line, format);
	va_start(ap, format);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	say(with_line, ap);
#pragma GCC diagnostic pop
	va_end(ap);
	_exit(EXIT_FAILURE);
}

bool check_writeback(void)
{
	const char *options = getenv("CKPTFS_OPTIONS");

	return options && strstr(options, "writeback");
}

void check_skip(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	_exit(EXIT_SKIPPED);
}

int64_t check_ok(int64_t v, const char *expr, int line)
{
	if (v < 0)
		check_fail(line, "%s: %s", expr, strerror(errno));
	return v;
}

void check_fails(int error, int64_t v, const char *expr, int line)
{
	if (v >= 0)
		check_fail(line, "%s succeeds, expected: %s", expr, strerror(error));
	if (errno != error)
		check_fail(line, "%s: %s, expected: %s", expr, strerror(errno), strerror(error));
}

void check_equal(int64_t a, int64_t b, const char *expr_a, const char *expr_b, int line)
{
	if (a != b)
		check_fail(line, "%s is %lld, %s is %lld", expr_a, (long long)a, expr_b, (long long)b);
}

void *check_pointer(void *p, const char *expr, int line)
{
	if (!p || p == MAP_FAILED)
		check_fail(line, "%s: %s", expr, strerror(errno));
	return p;
}

pid_t check_fork(void)
{
	pid_t pid = OK(fork());

	if (pid == 0)
		alarm(CHECK_SECONDS);
	return pid;
}

void check_join(pid_t pid)
{
	int status;

	OK(waitpid(pid, &status, 0));
	if (WIFSIGNALED(status))
		check_fail(__LINE__, "a child died of signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status) != 0)
		_exit(WEXITSTATUS(status)); /* the child has said why */
}

bool check_as(uid_t uid, gid_t gid)
{
	pid_t pid = check_fork();

	if (pid > 0) {
		check_join(pid);
		return false;
	}
	OK(setgroups(0, NULL));
	OK(setresgid(gid, gid, gid));
	OK(setresuid(uid, uid, uid));
	return true;
}

bool on_fuse(void)
{
	struct statfs st;

	OK(statfs(".", &st));
	return (uint32_t)st.f_type == 0x65735546;
}

void nap(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

int make_file(const char *path, const void *p, size_t len)
{
	int fd = OK(open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));

	EQUAL(write(fd, p, len), len);
	return fd;
}

void put_file(const char *path, const char *text)
{
	OK(close(make_file(path, text, strlen(text))));
}

void expect_content(int fd, const void *p, size_t len)
{
	uint8_t *got = POINTER(malloc(len + 1));
	const uint8_t *want = p;
	size_t i, n = 0;
	ssize_t r;

	while ((r = OK(pread(fd, got + n, len + 1 - n, n))) > 0)
		n += r;
	EQUAL(n, len);
	for (i = 0; i < len; i++)
		if (got[i] != want[i])
			check_fail(__LINE__, "byte %zu of %zu is %#x, expected %#x", i, len, got[i], want[i]);
	free(got);
}

void expect_zeros(int fd, off_t off, size_t len)
{
	uint8_t *got = POINTER(malloc(len));
	size_t i;

	EQUAL(pread(fd, got, len, off), len);
	for (i = 0; i < len; i++)
		if (got[i])
			check_fail(__LINE__, "byte %lld is %#x, expected 0", (long long)(off + (off_t)i), got[i]);
	free(got);
}

void fill(void *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
	uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		b[i] = x >> 32;
	}
}

struct stat lstat_of(const char *path)
{
	struct stat st;

	OK(lstat(path, &st));
	return st;
}

int64_t mtime_ns(const char *path)
{
	struct stat st = lstat_of(path);

	return st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
}

int64_t ctime_ns(const char *path)
{
	struct stat st = lstat_of(path);

	return st.st_ctim.tv_sec * 1000000000LL + st.st_ctim.tv_nsec;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

/* Run one check; its exit status, with the reason in text. */
static int run(const struct check *c, const char *root, char *text, size_t size)
{
	char dir[4096];
	int p[2], status;
	ssize_t n, len = 0;
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/%s", root, c->name);
	nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	if (mkdir(dir, 0755) < 0 || pipe2(p, O_CLOEXEC) < 0) {
		snprintf(text, size, "cannot make its directory: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		report_fd = p[1];
		umask(022);
		alarm(CHECK_SECONDS);
		OK(chdir(dir));
		c->run();
		_exit(EXIT_SUCCESS);
	}
	close(p[1]);
	while ((n = read(p[0], text + len, size - 1 - len)) > 0)
		len += n;
	text[len] = 0;
	text[strcspn(text, "\n")] = 0;
	close(p[0]);
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status) && len == 0)
		snprintf(text, size, "died of signal %d", WTERMSIG(status));
	if (nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS) < 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		snprintf(text, size, "cannot remove its directory: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 2; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc == 2;
}

int main(int argc, char **argv)
{
	unsigned nr_ok = 0, nr_failed = 0, nr_skipped = 0;
	char text[1024];
	struct check *c;

	if (argc < 2) {
		fprintf(stderr, "usage: posix DIR [NAME...] | posix --list\n");
		return 2;
	}
	for (c = first; c; c = c->next) {
		if (strcmp(argv[1], "--list") == 0) {
			puts(c->name);
			continue;
		}
		if (!wanted(c->name, argc, argv))
			continue;
		switch (run(c, argv[1], text, sizeof(text))) {
		case EXIT_SUCCESS:
			printf("ok %s\n", c->name);
			nr_ok++;
			break;
		case EXIT_SKIPPED:
			printf("skipped %s: %s\n", c->name, text);
			nr_skipped++;
			break;
		default:
			printf("not ok %s: %s\n", c->name, text);
			nr_failed++;
		}
	}
	if (strcmp(argv[1], "--list") != 0)
		printf("%u ok, %u not ok, %u skipped\n", nr_ok, nr_failed, nr_skipped);
	return nr_failed || (argc > 2 && nr_ok + nr_skipped + nr_failed == 0) ? EXIT_FAILURE : EXIT_SUCCESS;
}
