/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/apart.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdalign.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

#define SILENT_NS UINT64_C(2000000000)
#define STEP_MS 20

/* Closes inherited files: one may be the write end of a pipe that another process reads until this one exits. */
static _Noreturn void make_call(const struct apart *a, int to, size_t size)
{
	alignas(max_align_t) uint8_t answer[APART_MAX] = { 0 };

	if (to != 3 && dup2(to, 3) < 0)
		_exit(1);
	if (syscall(SYS_close_range, 4u, ~0u, 0) < 0) /* Linux before 5.9 */
		for (int fd = 4, end = (int)sysconf(_SC_OPEN_MAX); fd < end; fd++)
			close(fd);
	a->call(a->arg, answer);
	_exit(write(3, answer, size) != (ssize_t)size);
}

static int await_answer(const struct apart *a, int from, void *ret, size_t size)
{
	struct pollfd p = { .fd = from, .events = POLLIN };
	uint64_t start = monotonic_ns(), now;
	bool reported = !a->report;

	for (now = start; a->go_on ? a->go_on(a->arg) : now < a->until_ns; now = monotonic_ns()) {
		if (poll(&p, 1, STEP_MS) > 0)
			return TEMP_FAILURE_RETRY(read(from, ret, size)) == (ssize_t)size ? 1 : -EIO;
		if (!reported && now - start >= SILENT_NS) {
			a->report(a->arg);
			reported = true;
		}
	}
	return 0;
}

int apart_call(const struct apart *a, void *ret, size_t size)
{
	int fds[2], r;
	pid_t child;

	assert(size <= APART_MAX);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	child = fork();
	if (child == 0)
		make_call(a, fds[1], size);
	r = child < 0 ? -errno : 0;
	close(fds[1]);
	if (child > 0)
		r = await_answer(a, fds[0], ret, size);
	close(fds[0]);
	if (child > 0 && r == 0)
		kill(child, SIGKILL); /* not waited for: it may not end before the daemon answers */
	else if (child > 0)
		waitpid(child, NULL, 0);
	return r;
}
