/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/daemonize.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/mount_options.h"

enum exit_status exit_status_of(int r)
{
	switch (r) {
	case 0:
		return EXIT_MOUNTED;
	case -EINVAL:
	case -EPERM:
	case -EACCES:
		return EXIT_USAGE;
	case -ENOMEM:
	case -EMFILE:
	case -ENODEV:
		return EXIT_SYSTEM;
	default:
		return EXIT_FAILED;
	}
}

/* Wait for the status of the child; without one it has died. */
static enum exit_status await_child(int fd, pid_t child)
{
	uint8_t status;
	int wstatus;

	if (TEMP_FAILURE_RETRY(read(fd, &status, 1)) == 1)
		return status;
	if (waitpid(child, &wstatus, 0) == child && WIFEXITED(wstatus) && WEXITSTATUS(wstatus) != 0)
		return (enum exit_status)WEXITSTATUS(wstatus);
	log_error("the daemon died before the filesystem answered");
	return EXIT_FAILED;
}

int daemon_fork(struct daemon *d, enum exit_status *ret)
{
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return log_errno(-errno, "pipe");
	child = fork();
	if (child < 0)
		return log_errno(-errno, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM); /* do not mount if the waiting parent is gone */
		close(fds[0]);
		d->parent_fd = fds[1];
		return 0;
	}
	close(fds[1]);
	*ret = await_child(fds[0], child);
	close(fds[0]);
	return 1;
}

void daemon_detach(struct daemon *d, const struct options *o)
{
	uint8_t ok = EXIT_MOUNTED;
	int null;

	log_set_level((enum log_level)o->log_level);
	if (d->parent_fd < 0)
		return;
	if (!o->log)
		log_to_syslog("ckptfs");
	else if (log_to_file(o->log) < 0) {
		log_warning("log: using syslog instead");
		log_to_syslog("ckptfs");
	}
	setsid();
	if (chdir("/") < 0)
		log_errno(-errno, "chdir /");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
	prctl(PR_SET_PDEATHSIG, 0);
	if (write(d->parent_fd, &ok, 1) < 0)
		log_errno(-errno, "parent: cannot report to it");
	close(d->parent_fd);
	d->parent_fd = -1;
}

int daemon_block_signals(int *ret_fd)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2); /* used by the loops themselves */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigdelset(&set, SIGUSR2);
	signal(SIGPIPE, SIG_IGN);
	*ret_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return *ret_fd < 0 ? log_errno(-errno, "signals") : 0;
}

bool daemon_raise_readahead(dev_t dev, unsigned kib)
{
	char path[64], value[16];
	_cleanup_(closep) int fd = -1;
	int n;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
	n = snprintf(value, sizeof(value), "%u", kib);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, (size_t)n) != n) {
		log_info("read-ahead: cannot write %s, the kernel's default stays", path);
		return false;
	}
	log_debug("read-ahead raised to %u KiB in %s", kib, path);
	return true;
}

bool daemon_is_on_top(const char *mountpoint, dev_t dev)
{
	struct statx st;

	return dev == 0 || statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &st) < 0 ||
	       makedev(st.stx_dev_major, st.stx_dev_minor) == dev;
}

void daemon_end_session(struct fuse_session *se)
{
	_cleanup_(closep) int broken = -1;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) == 0) {
		close(ends[0]);
		broken = ends[1];
	}
	if (broken < 0 || dup3(broken, fuse_session_fd(se), O_CLOEXEC) < 0)
		log_errno(-errno, "session: cannot end before the mount is closed");
	else
		fuse_session_unmount(se);
}
