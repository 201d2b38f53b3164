/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#define LOOK_NS 20000000
#define KILLED_NS UINT64_C(5000000000) /* after SIGKILL: processes that remain are in uninterruptible I/O */

#define ENVIRONMENT_MAX ((size_t)2 << 20) /* what execve() accepts with a stack of 8 MiB */
#define MARK "CKPTFS_RUN"

static const int waited_for[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
static sigset_t before;

/* An environment variable that is unique to this ckptfs-run. All processes that the program starts inherit it. */
static const char *mark(void)
{
	static char text[64];

	if (text[0] == '\0')
		snprintf(text, sizeof(text), MARK "=%d-%" PRIu64, (int)getpid(), now_ns());
	return text;
}

void run_process_block(sigset_t *ret)
{
	(void)mark(); /* set before any fork: the guard needs the same */
	sigemptyset(ret);
	for (size_t i = 0; i < ARRAY_SIZE(waited_for); i++)
		sigaddset(ret, waited_for[i]);
	sigprocmask(SIG_BLOCK, ret, &before);
}

void run_process_foreground(pid_t group)
{
	sigset_t block, old;

	if (!isatty(STDIN_FILENO))
		return;
	/* Unless it is blocked, tcsetpgrp() from the background stops this process. */
	sigemptyset(&block);
	sigaddset(&block, SIGTTOU);
	sigprocmask(SIG_BLOCK, &block, &old);
	tcsetpgrp(STDIN_FILENO, group);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static void redirect(int from, int to)
{
	if (from != to)
		dup2(from, to); /* exec does not close the duplicate */
}

/* In the child. Returns only on failure, with errno set. */
static void execute(const struct run_start *s)
{
	char self[PATH_MAX], beside[PATH_MAX + NAME_MAX + 2];
	ssize_t len = s->ours ? readlink("/proc/self/exe", self, sizeof(self) - 1) : -1;

	if (len > 0) {
		self[len] = '\0';
		*strrchr(self, '/') = '\0';
		snprintf(beside, sizeof(beside), "%s/%s", self, s->argv[0]);
		execv(beside, s->argv);
	}
	execvp(s->argv[0], s->argv);
}

static _Noreturn void become(const struct run_start *s, int report)
{
	int r;

	if (s->death_signal)
		prctl(PR_SET_PDEATHSIG, s->death_signal);
	if (s->apart)
		setsid();
	if (s->group) {
		putenv((char *)mark());
		setpgid(0, 0);
		run_process_foreground(getpid());
	}
	redirect(s->in, STDIN_FILENO);
	redirect(s->out, STDOUT_FILENO);
	sigprocmask(SIG_SETMASK, &before, NULL);
	execute(s);
	r = -errno;
	(void)!write(report, &r, sizeof(r));
	_exit(127);
}

int run_process_start(const struct run_start *s, pid_t *ret)
{
	int report[2], r = 0;
	pid_t child;

	if (pipe2(report, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child < 0)
		r = -errno;
	if (child == 0)
		become(s, report[1]);
	close(report[1]);
	if (child > 0 && s->group)
		setpgid(child, child); /* in parent and child: done before either continues */
	if (child > 0 && TEMP_FAILURE_RETRY(read(report[0], &r, sizeof(r))) == (ssize_t)sizeof(r))
		waitpid(child, NULL, 0);
	close(report[0]);
	if (r == 0)
		*ret = child;
	return r;
}

int run_process_wait(pid_t pid, int *ret_status)
{
	return TEMP_FAILURE_RETRY(waitpid(pid, ret_status, 0)) < 0 ? -errno : 0;
}

int run_process_call(const struct run_start *s, int *ret_status)
{
	pid_t pid;
	int r = run_process_start(s, &pid);

	return r < 0 ? r : run_process_wait(pid, ret_status);
}

/* Reads up to size - 1 bytes of a file in /proc/PID, and appends a NUL. Returns the bytes read; -1: the process has
 * ended, or belongs to another user. */
static ssize_t read_of(const char *pid, const char *name, char *ret, size_t size)
{
	_cleanup_(closep) int fd = -1;
	char path[2 * NAME_MAX];
	size_t len = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	while (len < size - 1 && (n = TEMP_FAILURE_RETRY(read(fd, ret + len, size - 1 - len))) > 0)
		len += (size_t)n;
	ret[len] = '\0';
	return (ssize_t)len;
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Compares the text of the link only: stat() on the mount may block. */
static bool link_is_below(const char *pid, const char *name, const char *dir)
{
	char path[2 * NAME_MAX], to[PATH_MAX];
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
	len = readlink(path, to, sizeof(to) - 1);
	if (len < 0)
		return false;
	to[len] = '\0';
	return is_below(to, dir);
}

static bool has_open_below(const char *pid, const char *dir)
{
	char name[NAME_MAX + 8];
	bool found = false;
	DIR *d;

	snprintf(name, sizeof(name), "/proc/%s/fd", pid);
	d = opendir(name);
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		snprintf(name, sizeof(name), "fd/%.*s", NAME_MAX - 1, e->d_name);
		found = link_is_below(pid, name, dir);
	}
	if (d)
		closedir(d);
	return found;
}

static bool has_mapped_below(const char *pid, const char *dir)
{
	char path[NAME_MAX + 8], line[PATH_MAX + 128];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f)) {
		char *file = strchr(line, '/');

		if (file)
			file[strcspn(file, "\n")] = '\0';
		found = file && is_below(file, dir);
	}
	if (f)
		fclose(f);
	return found;
}

static bool is_marked(const char *pid)
{
	_cleanup_(freep) char *environment = malloc(ENVIRONMENT_MAX);
	ssize_t len = environment ? read_of(pid, "environ", environment, ENVIRONMENT_MAX) : -1;

	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(environment + at) + 1)
		if (strcmp(environment + at, mark()) == 0)
			return true;
	return false;
}

static bool uses(const char *pid, const char *dir)
{
	return link_is_below(pid, "cwd", dir) || link_is_below(pid, "root", dir) || link_is_below(pid, "exe", dir) ||
	       has_open_below(pid, dir) || has_mapped_below(pid, dir);
}

/* A process of the program, and not a zombie: if init does not reap orphans, as in some containers, ended processes
 * stay in their group. */
static bool is_left(const char *pid, const struct run_left *l)
{
	char stat[512];
	const char *name_end;
	char state;
	int group;

	if (read_of(pid, "stat", stat, sizeof(stat)) <= 0)
		return false;
	name_end = strrchr(stat, ')'); /* names may contain any character */
	if (!name_end || sscanf(name_end, ") %c %*d %d", &state, &group) != 2 || state == 'Z')
		return false;
	return group == l->group || (is_marked(pid) && uses(pid, l->mount));
}

/* Sends `signal`, unless 0, to the processes that are left. Returns their number. */
static size_t signal_left(const struct run_left *l, int signal)
{
	DIR *d = opendir("/proc");
	size_t nr = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !is_left(e->d_name, l))
			continue;
		nr++;
		if (signal > 0)
			kill((pid_t)strtol(e->d_name, NULL, 10), signal);
		if (signal > 0 && signal != SIGKILL)
			kill((pid_t)strtol(e->d_name, NULL, 10), SIGCONT);
	}
	if (d)
		closedir(d);
	return nr;
}

static bool is_gone(const struct run_left *l, int again, uint64_t within_ns)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	uint64_t until = monotonic_ns() + within_ns;

	while (signal_left(l, again) > 0) {
		if (monotonic_ns() >= until)
			return false;
		nanosleep(&look, NULL);
		while (waitpid(-l->group, NULL, WNOHANG) > 0)
			; /* children of this process in that group */
	}
	return true;
}

bool run_process_end_left(const struct run_left *l, uint64_t grace_ns)
{
	if (signal_left(l, SIGTERM) == 0)
		return false;
	if (!is_gone(l, 0, grace_ns))
		is_gone(l, SIGKILL, KILLED_NS);
	return true;
}

int run_process_exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
