/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mount.ckptfs: mounts a store and runs the daemon until it is unmounted. With the URL of a tier
 * instead, fs/tiermount/tier_mount.h mounts the tier.
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
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mounts.h"
#include "base/util.h"
#include "fs/background/autocompact.h"
#include "fs/away/dropped.h"
#include "fs/background/flusher.h"
#include "fs/checks.h"
#include "fs/cluster_hooks.h"
#include "fs/daemonize.h"
#include "fs/control/control.h"
#include "fs/fs.h"
#include "fs/fuse_loop.h"
#include "fs/control/metrics.h"
#include "fs/ops/ops.h"
#include "fs/posix/file.h"
#include "fs/mount_options.h"
#include "fs/remount.h"
#include "fs/tiermount/tier_mount.h"
#include "store/engine.h"

#define READAHEAD_KIB 4096
#define FILE_SIZE_MIN GiB(4) /* more than a pack, or any other file of a store, usually has */

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
	struct daemon daemon;
	int signal_fd;
	int mounts_fd; /* /proc/self/mountinfo: poll(2) reports changes of mounts */
	dev_t dev; /* of the mount; 0: it has not answered yet */
	bool is_held; /* a thread is blocked in the kernel: see loop_stop() */
	bool has_left_thread; /* a thread waits for a tier that does not answer (flusher_stop()) */
};

/* Returns the new limit. */
static uint64_t raise_limit(int resource)
{
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(resource, &l) == 0 || getrlimit(resource, &l) < 0)
		return RLIM_INFINITY;
	l.rlim_cur = l.rlim_max;
	setrlimit(resource, &l);
	return l.rlim_max;
}

/* The daemon inherits the limits of a shell or a batch job. SIGXFSZ or SIGXCPU would kill it. */
static int raise_limits(void)
{
	uint64_t size = raise_limit(RLIMIT_FSIZE), seconds = raise_limit(RLIMIT_CPU);

	raise_limit(RLIMIT_NOFILE);
	signal(SIGXFSZ, SIG_IGN);
	if (seconds != RLIM_INFINITY)
		log_warning("processor time limit of %" PRIu64 " s (ulimit -t): the kernel kills the daemon then; mount without one",
			    seconds);
	if (size >= FILE_SIZE_MIN)
		return 0;
	log_error("file size limit of %" PRIu64 " MiB (ulimit -f): files of a store take up to %" PRIu64
		  " MiB; mount with a higher limit, or without one", size >> 20, FILE_SIZE_MIN >> 20);
	return -EFBIG;
}

static int watch_mounts(struct run *run)
{
	run->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	return run->mounts_fd < 0 ? log_errno(-errno, "/proc/self/mountinfo: cannot open") : 0;
}

static int open_session(struct run *run)
{
	_cleanup_(buf_release) struct buf options = BUF_EMPTY;
	char *argv[] = { (char *)"mount.ckptfs", (char *)"-o", NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	int r = options_for_kernel(&run->o, run->paths.store, run->o.engine.read_only, &options);

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
		engine_discard_new(e);
		engine_close(e);
		return r;
	}
	return run->hooks ? run->hooks->start(run->cluster, run->fs, run->paths.store, &run->o) : 0;
}

/* Without accessing the mount: umount(8) by a script that has just mounted would fail with EBUSY meanwhile. */
static void learn_device(struct run *run)
{
	_cleanup_(mounts_close) struct mounts top = { 0 };

	if (mounts_find_point(&top, run->paths.mountpoint) > 0)
		run->dev = top.dev;
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

/* Run until unmounted or signalled to end. -ENXIO: never answered. */
static int attend(struct run *run)
{
	struct pollfd fds[] = {
		{ .fd = loop_event_fd(run->loop), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
		{ .fd = run->mounts_fd, .events = POLLPRI },
	};
	bool answered = false, end = false, ended;
	uint64_t count;
	ssize_t n _unused_;

	while (!end) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return log_errno(-errno, "poll");
		n = read(fds[0].fd, &count, sizeof(count));
		ended = loop_ended(run->loop); /* asked first: it may have answered and ended since poll(2) */
		if (!answered && loop_answers(run->loop)) {
			answered = true;
			learn_device(run);
			if (daemon_raise_readahead(run->dev, READAHEAD_KIB))
				control_set_readahead(run->fs->control, READAHEAD_KIB);
			if (run->metrics && metrics_start(run->metrics, run->fs) < 0)
				return -ENOMEM;
			if (aggregator_start(run->fs->aggregator, run->paths.mountpoint, run->dev) < 0)
				return -ENXIO;
			if (flusher_start(run->fs->flusher) < 0)
				return -ENOMEM;
			if (run->o.verbose && run->daemon.parent_fd >= 0) /* to the terminal; below, to the log */
				log_info("store %s: mounted on %s", run->paths.store, run->paths.mountpoint);
			daemon_detach(&run->daemon, &run->o);
			log_info("store %s: mounted on %s", run->paths.store, run->paths.mountpoint);
			if (run->metrics)
				log_info("metrics: answered at %s", run->o.metrics);
		}
		end = handle_signal(run) || ended || (fds[2].revents && is_to_end_detached(run));
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

static void unmount(struct run *run)
{
	if (!daemon_is_on_top(run->paths.mountpoint, run->dev)) {
		daemon_end_session(run->se);
		return;
	}
	if (run->is_held)
		abort_session(run);
	fuse_session_unmount(run->se);
}

/* Returns the error of the last commit, which would otherwise be lost. */
static int close_all(struct run *run)
{
	const bool served = run->loop;
	int r;

	metrics_stop(TAKE(run->metrics));
	if (run->se)
		unmount(run);
	if (run->fs) {
		run->has_left_thread =
			!flusher_stop(run->fs->flusher); /* before the hooks, since it reads chunks of other nodes */
		run->has_left_thread |= !away_stop(run->fs->away);
	}
	if (run->hooks)
		run->hooks->stop(run->cluster, run->fs); /* with the agent, while the engine is still open */
	if (run->fs && !run->is_held)
		file_close_all(run->fs);
	if (run->fs && !served && !run->o.engine.cluster) /* an agent may have introduced it to other nodes */
		engine_discard_new(run->fs->engine);
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
	else if (run->fs && served)
		log_info("store %s: unmounted, everything durable", run->paths.store);
	return r;
}

static enum exit_status mount_and_serve(struct run *run)
{
	int r, last;

	r = raise_limits();
	if (r == 0)
		r = daemon_block_signals(&run->signal_fd);
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
	return exit_status_of(r < 0 ? r : last);
}

static enum exit_status run_main(struct run *run, int argc, char *argv[])
{
	enum exit_status status = EXIT_SYSTEM;
	int r;

	r = options_parse(&run->o, argc, argv);
	if (r != 0)
		return exit_status_of(MIN(r, 0)); /* 1: help or version was printed */
	/* Until the mount answers, log to the mounting user, and only what matters to them. */
	log_set_level(run->o.verbose ? LOG_LEVEL_INFO : LOG_LEVEL_NOTICE);
	if (run->o.is_tier)
		return tier_mount(&run->o);
	if (run->o.remount)
		return exit_status_of(remount_run(&run->o));
	r = checks_run(&run->o, &run->paths);
	if (r < 0)
		return exit_status_of(r == -EACCES || r == -EINVAL || r == -ENOMEM || r == -ENODEV ? r : -ENXIO);
	if (run->o.fake) {
		log_info("store %s: not mounted on %s because of -f; options and paths are valid", run->paths.store,
			 run->paths.mountpoint);
		return EXIT_MOUNTED;
	}
	if (run->o.foreground) {
		log_to_stderr();
	} else {
		r = daemon_fork(&run->daemon, &status);
		if (r != 0)
			return status;
	}
	return mount_and_serve(run);
}

/*
 * glibc gives every thread an arena of its own and puts large blocks into them once some have been freed, so memory
 * that is allocated by one thread and freed by another stays resident: 428 MiB after 30 GiB by 8 writers with
 * cache=64M,dirty=64M, and 206 MiB with four of them. More processors get eight: threads wait for each other at four.
 */
static void keep_heaps_small(void)
{
	mallopt(M_ARENA_MAX, nr_processors() > 4 ? 8 : 4);
	mallopt(M_MMAP_THRESHOLD, (int)KiB(256));
	mallopt(M_TRIM_THRESHOLD, (int)MiB(1));
}

int main(int argc, char *argv[])
{
	struct run run = { .daemon = DAEMON_NONE, .signal_fd = -1, .mounts_fd = -1 };
	enum exit_status status = EXIT_SYSTEM;

	keep_heaps_small();
	log_to_caller("mount.ckptfs");
	if (options_init(&run.o) == 0)
		status = run_main(&run, argc, argv);
	options_release(&run.o);
	checks_release(&run.paths);
	if (run.is_held || run.has_left_thread) /* such a thread may still use what exit(3) would release */
		_exit((int)status);
	return (int)status;
}
