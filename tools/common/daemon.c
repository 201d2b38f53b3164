/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/daemon.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"

#define POLL_MIN_NS (5 * 1000 * 1000) /* does not delay short tasks */
#define POLL_MAX_NS (100 * 1000 * 1000) /* hardly disturbs long ones */

#define DIED "the daemon of this mount has died; unmount and mount it again"

bool is_store(const char *path)
{
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s/superblock", path) < PATH_MAX && access(name, F_OK) == 0;
}

const char *path_error_text(int r)
{
	return r == -ENOTCONN || r == -ECONNABORTED ? DIED : strerror(-r);
}

void report_refusal(const char *tool, const char *path, const char *work, const char *verb, int r)
{
	text_printf(stderr, "%s: %s: ", tool, path);
	if (r == -EBUSY)
		text_printf(stderr, "%s is running already; wait for it to end\n", work);
	else if (r == -EPERM)
		text_printf(stderr, "only root and the mounting user may %s; run it as one of them\n", verb);
	else if (r == -ENOTCONN || r == -ECONNABORTED)
		fputs(DIED "\n", stderr);
	else if (r == -ENOTTY)
		fputs("not on a mounted ckptfs; ckptfs stat lists those that are\n", stderr);
	else if (r == -EOPNOTSUPP)
		text_printf(stderr, "a mounted tier has no store: nothing to %s\n", verb);
	else
		text_printf(stderr, "%s; see the daemon's log\n", strerror(-r));
}

void report_unopened(const char *tool, const char *path, const char *wanted, int r)
{
	text_printf(stderr, "%s: %s: ", tool, path);
	if (r == -ENOTCONN || r == -ECONNABORTED)
		fputs(DIED "\n", stderr);
	else if (r == -ENOTDIR)
		fprintf(stderr, "not a directory; give %s\n", wanted);
	else if (r == -ENOENT)
		fprintf(stderr, "No such file or directory; give %s\n", wanted);
	else
		text_printf(stderr, "%s\n", strerror(-r));
}

int daemon_command(int fd, unsigned long request, void *arg, uint32_t command)
{
	const uint32_t head[] = { (uint32_t)_IOC_SIZE(request), CKPTFS_IOC_VERSION, command };

	memcpy(arg, head, sizeof(head));
	return ioctl(fd, request, arg) < 0 ? -errno : 0;
}

int daemon_run(const struct daemon_task *t)
{
	size_t size = _IOC_SIZE(t->request);
	long poll_ns = POLL_MIN_NS;
	bool is_stopping = false;
	int r;

	r = daemon_command(t->fd, t->request, t->arg, t->start);
	while (r == 0 && *t->running) {
		nanosleep(&(struct timespec){ .tv_nsec = poll_ns }, NULL);
		poll_ns = MIN(2 * poll_ns, POLL_MAX_NS);
		if (interrupted() && !is_stopping) {
			uint8_t stop[_IOC_SIZEMASK];

			memcpy(stop, t->arg, size);
			(void)daemon_command(t->fd, t->request, stop, t->stop);
			is_stopping = true;
		}
		r = daemon_command(t->fd, t->request, t->arg, t->status);
		t->show(t->userdata, t->arg);
	}
	return r < 0 ? r : -*t->error;
}
