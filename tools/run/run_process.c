#include "tools/run_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"

#define LOOK_NS 20000000
#define KILLED_NS UINT64_C(5000000000) /* after SIGKILL: whoever is still there waits for a disk */

static const int waited_for[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
static sigset_t before;

void run_process_block(sigset_t *ret)
{
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
	/* Not in the foreground ourselves, we would be stopped for it. */
	sigemptyset(&block);
	sigaddset(&block, SIGTTOU);
	sigprocmask(SIG_BLOCK, &block, &old);
	tcsetpgrp(STDIN_FILENO, group);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static void redirect(int from, int to)
{
	if (from != to)
		dup2(from, to); /* the copy is not closed by exec */
}

/* In the child. errno: why not. */
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
	int nothing, r;

	if (s->death_signal)
		prctl(PR_SET_PDEATHSIG, s->death_signal);
	if (s->apart)
		setsid();
	if (s->group) {
		setpgid(0, 0);
		run_process_foreground(getpid());
	}
	redirect(s->in, STDIN_FILENO);
	redirect(s->out, STDOUT_FILENO);
	nothing = s->silent ? open("/dev/null", O_WRONLY) : -1;
	if (nothing >= 0)
		redirect(nothing, STDERR_FILENO);
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
		setpgid(child, child); /* both sides, so that it is so before either goes on */
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

/* Of this group, and not one that has ended and that nobody has waited for. */
static bool is_at_work(const char *pid, pid_t group)
{
	_cleanup_(closep) int fd = -1;
	char path[NAME_MAX + 16], stat[512];
	const char *name_end;
	ssize_t len;
	char state;
	int of;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = fd >= 0 ? read(fd, stat, sizeof(stat) - 1) : -1;
	if (len <= 0)
		return false; /* it is gone by now */
	stat[len] = '\0';
	name_end = strrchr(stat, ')'); /* a name may have anything in it */
	return name_end && sscanf(name_end, ") %c %*d %d", &state, &of) == 2 && of == group && state != 'Z';
}

/* Where nobody waits for orphans, as the first process of a container may not, those that have ended stay in their
 * group. */
static bool has_ended(pid_t group)
{
	DIR *d = opendir("/proc");
	bool at_work = !d;

	for (struct dirent *e; !at_work && (e = readdir(d));)
		at_work = e->d_name[0] >= '1' && e->d_name[0] <= '9' && is_at_work(e->d_name, group);
	if (d)
		closedir(d);
	return !at_work;
}

static bool is_gone(pid_t group, uint64_t within_ns)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	uint64_t until = monotonic_ns() + within_ns;

	while (kill(-group, 0) == 0 && !has_ended(group)) {
		if (monotonic_ns() >= until)
			return false;
		nanosleep(&look, NULL);
		while (waitpid(-group, NULL, WNOHANG) > 0)
			; /* ours, if they are of this group */
	}
	return true;
}

bool run_process_end_group(pid_t group, uint64_t grace_ns)
{
	if (kill(-group, SIGTERM) < 0)
		return false;
	kill(-group, SIGCONT);
	if (!is_gone(group, grace_ns)) {
		kill(-group, SIGKILL);
		is_gone(group, KILLED_NS);
	}
	return true;
}

int run_process_exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
