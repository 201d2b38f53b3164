/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mount.ckptfs: mounts a store and runs the daemon until it is unmounted.
 *
 * Order: check everything that can be checked without changing anything; fork (before the engine is opened, since its
 * threads would not survive it); bind the address for metrics; open the store; in a cluster wait for the agent; mount;
 * answer the first request of the kernel; only then does the parent return 0. At the end: finish all requests, unmount,
 * commit with the cluster and disconnect the agent, write cached data, commit, close. A daemon that is killed instead
 * leaves the state of the last commit.
 *
 * Exit status, as of mount(8):
 *    0  mounted (in the foreground: unmounted, everything durable)
 *    1  usage: an unknown option, a bad value, options that contradict the store; or no permission
 *    2  system error: no memory, no /dev/fuse, cannot fork
 *   32  mount failed: mountpoint, store, its version, its damage, in use by another mount, or refused by the kernel
 */
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mounts.h"
#include "base/util.h"
#include "fs/background/autocompact.h"
#include "fs/checks.h"
#include "fs/cluster_hooks.h"
#include "fs/control/control.h"
#include "fs/fs.h"
#include "fs/fuse_loop.h"
#include "fs/control/metrics.h"
#include "fs/ops/ops.h"
#include "fs/posix/file.h"
#include "fs/mount_options.h"
#include "fs/remount.h"
#include "store/engine.h"

enum exit_status { EXIT_MOUNTED = 0, EXIT_USAGE = 1, EXIT_SYSTEM = 2, EXIT_FAILED = 32 };

#define READAHEAD_KIB 4096

/* One run of the program. */
struct run {
	struct options o;
	struct checks paths;
	const struct cluster_hooks *hooks; /* NULL: built without the cluster */
	struct cluster *cluster;
	struct fs *fs;
	struct fuse_session *se;
	struct loop *loop;
	struct metrics *metrics; /* NULL: not enabled */
	int parent_fd; /* reports the result of the mount to the parent; -1: no parent, or already reported */
	int signal_fd;
	int mounts_fd; /* /proc/self/mountinfo: poll(2) reports changes of mounts */
	dev_t dev; /* of the mount; 0: it has not answered yet */
	bool is_held; /* a thread is blocked in the kernel: see loop_stop() */
};

static enum exit_status status_of(int r)
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

/* 0: in the child; 1: in the parent, with its exit status in *ret. */
static int fork_daemon(struct run *run, enum exit_status *ret)
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
		run->parent_fd = fds[1];
		return 0;
	}
	close(fds[1]);
	*ret = await_child(fds[0], child);
	close(fds[0]);
	return 1;
}

/* Detach from the terminal, then let the parent exit. */
static void become_daemon(struct run *run)
{
	uint8_t ok = EXIT_MOUNTED;
	int null;

	log_set_level((enum log_level)run->o.log_level);
	if (run->parent_fd < 0)
		return;
	if (!run->o.log)
		log_to_syslog("ckptfs");
	else if (log_to_file(run->o.log) < 0) {
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
	if (write(run->parent_fd, &ok, 1) < 0)
		log_errno(-errno, "parent: cannot report to it");
	close(run->parent_fd);
	run->parent_fd = -1;
}

static int block_signals(struct run *run)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2); /* used by the loop itself */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigdelset(&set, SIGUSR2);
	signal(SIGPIPE, SIG_IGN);
	run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return run->signal_fd < 0 ? log_errno(-errno, "signals") : 0;
}

static int watch_mounts(struct run *run)
{
	run->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	return run->mounts_fd < 0 ? log_errno(-errno, "/proc/self/mountinfo: cannot open") : 0;
}

/* Commas and backslashes in a path would end the option. */
static void add_escaped(struct buf *b, const char *s)
{
	for (; *s; s++) {
		if (*s == ',' || *s == '\\')
			buf_add_u8(b, '\\');
		buf_add_u8(b, (uint8_t)*s);
	}
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

/* Mounts by root are accessible to all users unless `private` is given, as with any filesystem; the kernel checks
 * permissions either way. */
static int mount_options(const struct run *run, struct buf *ret)
{
	const struct options *o = &run->o;
	bool root = geteuid() == 0;

	add_text(ret, "subtype=ckptfs,default_permissions,fsname=");
	add_escaped(ret, run->paths.store);
	if (root)
		add_text(ret, o->private ? ",suid,dev" : ",suid,dev,allow_other"); /* libfuse has other defaults */
	if (o->engine.read_only)
		add_text(ret, ",ro");
	if (o->kernel.len > 0) {
		buf_add_u8(ret, ',');
		buf_add(ret, o->kernel.data, o->kernel.len);
	}
	buf_add_u8(ret, 0);
	return buf_error(ret);
}

static int open_session(struct run *run)
{
	_cleanup_(buf_release) struct buf options = BUF_EMPTY;
	char *argv[] = { (char *)"mount.ckptfs", (char *)"-o", NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	int r = mount_options(run, &options);

	if (r < 0)
		return r;
	argv[2] = (char *)options.data;
	run->se = fuse_session_new(&args, &ops_table, sizeof(ops_table), run->fs);
	fuse_opt_free_args(&args);
	if (!run->se) {
		log_error("mount options %s: not accepted", (const char *)options.data);
		return -EINVAL;
	}
	if (fuse_session_mount(run->se, run->paths.mountpoint) != 0) {
		log_error("mountpoint %s: the kernel or fusermount3 refused the mount", run->paths.mountpoint);
		return -ENXIO;
	}
	return 0;
}

static int open_store(struct run *run)
{
	struct engine *e;
	int r;

	r = checks_await_store(&run->paths);
	if (r < 0)
		return r;
	run->hooks = cluster_hooks();
	if (run->hooks) {
		r = run->hooks->new(&run->cluster);
		if (r < 0)
			return r;
		run->o.engine.cluster_calls = run->hooks->engine_calls(run->cluster);
	}
	r = engine_open(run->paths.store, &run->o.engine, &e);
	if (r < 0)
		return r; /* already logged */
	r = fs_open(e, &run->o, run->cluster, &run->fs);
	if (r < 0) {
		engine_close(e);
		return r;
	}
	return run->hooks ? run->hooks->start(run->cluster, run->fs, run->paths.store, &run->o) : 0;
}

static void learn_device(struct run *run)
{
	struct stat st;

	if (stat(run->paths.mountpoint, &st) == 0)
		run->dev = st.st_dev;
}

/* Increase read-ahead from FUSE's 128 KiB; only possible as root, and only after the mount. */
static void raise_readahead(struct run *run)
{
	char path[64], value[16];
	_cleanup_(closep) int fd = -1;
	int n;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(run->dev), minor(run->dev));
	n = snprintf(value, sizeof(value), "%u", READAHEAD_KIB);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, (size_t)n) != n) {
		log_info("read-ahead: cannot write %s, the kernel's default stays", path);
		return;
	}
	log_debug("read-ahead raised to %u KiB in %s", READAHEAD_KIB, path);
	control_set_readahead(run->fs->control, READAHEAD_KIB);
}

/* true: the daemon must end. */
static bool handle_signal(struct run *run)
{
	struct signalfd_siginfo info;

	while (read(run->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGUSR1:
			control_dump(run->fs);
			break;
		case SIGHUP:
			log_reopen();
			break;
		default:
			log_notice("signal %u: unmounting %s", info.ssi_signo, run->paths.mountpoint);
			return true;
		}
	}
	return false;
}

/* Unmounted here by umount.ckptfs, while another mount namespace still keeps the session alive in the kernel. */
static bool is_to_end_detached(const struct run *run)
{
	if (run->dev == 0 || !run->fs->end_when_detached || mounts_has(run->dev))
		return false;
	log_info("store %s: unmounted in this mount namespace; closing it", run->paths.store);
	return true;
}

/* Run until unmounted or told to end. -ENXIO: never answered. */
static int attend(struct run *run)
{
	struct pollfd fds[] = {
		{ .fd = loop_event_fd(run->loop), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
		{ .fd = run->mounts_fd, .events = POLLPRI },
	};
	bool answered = false, end = false;
	uint64_t count;
	ssize_t n _unused_;

	while (!end) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return log_errno(-errno, "poll");
		n = read(fds[0].fd, &count, sizeof(count));
		if (!answered && loop_answers(run->loop)) {
			answered = true;
			learn_device(run);
			raise_readahead(run);
			if (run->metrics && metrics_start(run->metrics, run->fs) < 0)
				return -ENOMEM;
			if (aggregator_start(run->fs->aggregator, run->paths.mountpoint) < 0)
				return -ENXIO;
			if (run->o.verbose && run->parent_fd >= 0) /* to the terminal; below, to the log */
				log_info("store %s: mounted on %s", run->paths.store, run->paths.mountpoint);
			become_daemon(run);
			log_info("store %s: mounted on %s", run->paths.store, run->paths.mountpoint);
			if (run->metrics)
				log_info("metrics: answered at %s", run->o.metrics);
		}
		end = handle_signal(run) || loop_ended(run->loop) || (fds[2].revents && is_to_end_detached(run));
	}
	if (answered)
		return 0;
	log_error("mountpoint %s: unmounted before the filesystem answered", run->paths.mountpoint);
	return -ENXIO;
}

static int serve(struct run *run)
{
	int r = loop_new(run->se, run->fs, &run->loop);

	if (r < 0)
		return log_errno(r, "requests");
	r = loop_start(run->loop);
	if (r == 0)
		r = attend(run);
	aggregator_stop(run->fs->aggregator); /* while requests of its process are still answered */
	run->is_held = !loop_stop(run->loop);
	return r;
}

/* Makes the kernel answer all requests with ENOTCONN. A thread blocked in the kernel keeps the device open. */
static void abort_session(struct run *run)
{
	_cleanup_(closep) int fd = -1;
	char path[64];

	log_notice("mountpoint %s: a user holds the lock of a directory in it; the session is aborted", run->paths.mountpoint);
	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", minor(run->dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "1", 1) != 1)
		if (umount2(run->paths.mountpoint, MNT_FORCE | MNT_DETACH) < 0)
			log_errno(-errno, "mountpoint %s: cannot abort the session", run->paths.mountpoint);
}

/*
 * End the session. A mountpoint that has another mount by now is left alone: libfuse would unmount whatever is mounted
 * there, unless poll(2) reports an error on the device, as it does after an unmount. The write end of a pipe without a
 * reader reports one, too. Closing the device ends the session wherever else it is mounted.
 */
static void unmount(struct run *run)
{
	_cleanup_(mounts_close) struct mounts top = { 0 };
	_cleanup_(closep) int broken = -1;
	int ends[2];

	if (run->dev == 0 || (mounts_find_point(&top, run->paths.mountpoint) > 0 && top.dev == run->dev)) {
		if (run->is_held)
			abort_session(run);
		fuse_session_unmount(run->se);
		return;
	}
	if (pipe2(ends, O_CLOEXEC) == 0) {
		close(ends[0]);
		broken = ends[1];
	}
	if (broken < 0 || dup3(broken, fuse_session_fd(run->se), O_CLOEXEC) < 0)
		log_errno(-errno, "session: cannot end before the store is closed");
	else
		fuse_session_unmount(run->se);
}

/* Returns the error of the last commit, which would otherwise be lost. */
static int close_all(struct run *run)
{
	int r;

	metrics_stop(TAKE(run->metrics));
	if (run->se)
		unmount(run);
	if (run->hooks)
		run->hooks->stop(run->cluster, run->fs); /* with the agent, while the engine is still open */
	if (run->fs && !run->is_held)
		file_close_all(run->fs);
	r = fs_close(run->fs);
	if (run->hooks)
		run->hooks->free(run->cluster);
	if (!run->is_held)
		loop_free(run->loop);
	if (run->se && !run->is_held)
		fuse_session_destroy(run->se);
	closep(&run->signal_fd);
	closep(&run->mounts_fd);
	if (r < 0)
		log_errno(r, "store %s: closed, but the last changes may not be durable", run->paths.store);
	else if (run->fs)
		log_info("store %s: unmounted, everything durable", run->paths.store);
	return r;
}

static enum exit_status mount_and_serve(struct run *run)
{
	int r, last;

	r = block_signals(run);
	if (r == 0)
		r = watch_mounts(run);
	if (r == 0 && run->o.metrics)
		r = metrics_listen(run->o.metrics, &run->metrics);
	if (r == 0)
		r = open_store(run);
	if (r == 0)
		r = open_session(run);
	if (r == 0)
		r = serve(run);
	last = close_all(run);
	return status_of(r < 0 ? r : last);
}

static enum exit_status run_main(struct run *run, int argc, char *argv[])
{
	enum exit_status status = EXIT_SYSTEM;
	int r;

	r = options_parse(&run->o, argc, argv);
	if (r < 0)
		return status_of(r);
	if (run->o.help) {
		options_help(stdout);
		return EXIT_MOUNTED;
	}
	if (run->o.version) {
		puts("mount.ckptfs " CKPTFS_VERSION);
		return EXIT_MOUNTED;
	}
	/* Until the mount answers, log to the mounting user, and only what matters to them. */
	log_set_level(run->o.verbose ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE);
	if (run->o.remount)
		return status_of(remount_run(&run->o));
	r = checks_run(&run->o, &run->paths);
	if (r < 0)
		return status_of(r == -EACCES || r == -EINVAL || r == -ENOMEM ? r : -ENXIO);
	if (run->o.fake) {
		log_info("store %s: not mounted on %s because of -f; options and paths are valid", run->paths.store,
			 run->paths.mountpoint);
		return EXIT_MOUNTED;
	}
	if (run->o.foreground) {
		log_to_stderr();
	} else {
		r = fork_daemon(run, &status);
		if (r != 0)
			return status;
	}
	return mount_and_serve(run);
}

/*
 * glibc gives every thread an arena of its own and puts large blocks into them once some have been freed, so memory
 * that is allocated by one thread and freed by another stays resident: 428 MiB after 30 GiB by 8 writers with
 * cache=64M,dirty=64M, and 206 MiB with this.
 */
static void keep_heaps_small(void)
{
	mallopt(M_ARENA_MAX, 4);
	mallopt(M_MMAP_THRESHOLD, (int)KiB(256));
	mallopt(M_TRIM_THRESHOLD, (int)MiB(1));
}

int main(int argc, char *argv[])
{
	struct run run = { .parent_fd = -1, .signal_fd = -1, .mounts_fd = -1 };
	enum exit_status status = EXIT_SYSTEM;

	keep_heaps_small();
	log_to_caller("mount.ckptfs");
	if (options_init(&run.o) == 0)
		status = run_main(&run, argc, argv);
	options_release(&run.o);
	checks_release(&run.paths);
	if (run.is_held) /* the blocked thread may still use what exit(3) would release */
		_exit((int)status);
	return (int)status;
}
