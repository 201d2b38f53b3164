/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Order: check options and the mountpoint; fork; open and list the tier; mount; answer the first request of the kernel;
 * then the parent returns 0. At the end, requests that wait for the tier fail, then the session is closed and the pool is
 * stopped. The process exits without threads that hang in the tier. The mount is read-only, so no data can be lost.
 */
#include "fs/tiermount/tier_mount.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/util.h"
#include "fs/checks.h"
#include "fs/mount_options.h"
#include "fs/tiermount/tier_loop.h"
#include "fs/tiermount/tier_ops.h"
#include "fs/tiermount/tier_view.h"
#include "store/tier/tier.h"
#include "store/tier/tier_open.h"

#define READAHEAD_KIB 4096
#define POOL_THREADS 16u /* requests in flight, without tier_parallel= */

struct run {
	const struct options *o;
	struct checks paths; /* store: the address of the tier */
	struct tier *tier;
	struct tier_pool *pool;
	struct tier_fs fs;
	struct fuse_session *se;
	struct tier_loop *loop;
	struct daemon daemon;
	int signal_fd, mounts_fd;
	dev_t dev; /* of the mount; 0: no request was answered yet */
};

/* --- options --- */

/* Is this option valid for a mount of a tier? */
static bool applies_to_tier(const char *option)
{
	static const char *const names[] = { "cache",	    "private",	     "log",	     "log_level", "nonempty",
					     "tier_config", "tier_parallel", "tier_timeout", "nodiratime" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(option, names[i]) == 0)
			return true;
	return false;
}

static int check_options(const struct options *o)
{
	_cleanup_(freep) char *own = o->own.len > 0 ? strndup((const char *)o->own.data, o->own.len) : NULL;
	char *rest = own, *one;

	if (o->remount) {
		log_error("option remount: not supported for a mount of a tier; unmount it and mount it again");
		return -EINVAL;
	}
	if (!own)
		return o->own.len > 0 ? -ENOMEM : 0;
	while ((one = strsep(&rest, ","))) {
		one[strcspn(one, "=")] = '\0';
		if (*one == '\0' || applies_to_tier(one))
			continue;
		log_error("option %s: not supported for a mount of a tier, which is read-only and has no store", one);
		return -EINVAL;
	}
	return 0;
}

/* --- mounting --- */

static int open_tier(struct run *run)
{
	const struct options *o = run->o;
	const unsigned parallel = o->tier_parallel > 0 ? (unsigned)o->tier_parallel : POOL_THREADS;
	const struct tier_conf tier = { .nr_in_flight = parallel, .config_file = o->tier_config };
	const struct tier_cache_conf cache = { .bytes = o->engine.cache / 4 * 3, .timeout_ns = o->tier_timeout_ns };
	const struct tier_view_conf view = { .trees = o->engine.cache / 4, .timeout_ns = o->tier_timeout_ns };
	int r = tier_conf_check(o->store, &tier);

	if (r == 0)
		r = tier_open(o->store, &tier, &run->tier);
	if (r == 0)
		r = tier_pool_new(parallel, &run->pool);
	if (r == 0)
		r = tier_cache_new(run->tier, run->pool, &cache, &run->fs.cache);
	if (r < 0)
		return r;
	run->fs.tier = run->tier;
	run->fs.timeout_ns = o->tier_timeout_ns;
	run->fs.mounted_ns = (int64_t)now_ns();
	r = tier_view_new(run->tier, run->pool, run->fs.cache, &view, &run->fs.view);
	return r < 0 ? log_errno(r, "tier %s: cannot list checkpoints", tier_where(run->tier)) : 0;
}

static int open_session(struct run *run)
{
	_cleanup_(buf_release) struct buf options = BUF_EMPTY;
	char *argv[] = { (char *)"mount.ckptfs", (char *)"-o", NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	int r = options_for_kernel(run->o, run->o->store, true, &options);

	if (r < 0)
		return r;
	argv[2] = (char *)options.data;
	run->se = fuse_session_new(&args, &tier_ops_table, sizeof(tier_ops_table), &run->fs);
	fuse_opt_free_args(&args);
	if (!run->se) {
		log_error("mount options %s: refused by libfuse", (const char *)options.data);
		return -EINVAL;
	}
	if (fuse_session_mount(run->se, run->paths.mountpoint) != 0) {
		log_error("mountpoint %s: the kernel or fusermount3 refused the mount", run->paths.mountpoint);
		return -ENXIO;
	}
	return 0;
}

/* --- serving --- */

static void report_mounted(const struct run *run)
{
	log_info("tier %s: mounted read-only on %s, %s", tier_where(run->tier), run->paths.mountpoint,
		 human_nr(tier_view_nr(run->fs.view), "checkpoint").s);
}

static void finish_mount(struct run *run)
{
	_cleanup_(mounts_close) struct mounts top = { 0 };

	if (mounts_find_point(&top, run->paths.mountpoint) > 0)
		run->dev = top.dev;
	daemon_raise_readahead(run->dev, READAHEAD_KIB);
	if (run->o->verbose && run->daemon.parent_fd >= 0) /* to the terminal; below, to the log */
		report_mounted(run);
	daemon_detach(&run->daemon, run->o);
	report_mounted(run);
}

/* true: the daemon must end. */
static bool handle_signal(struct run *run)
{
	struct signalfd_siginfo info;

	while (read(run->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			continue;
		if (info.ssi_signo == SIGHUP) {
			log_reopen();
			continue;
		}
		log_notice("signal %u: unmounting %s", info.ssi_signo, run->paths.mountpoint);
		return true;
	}
	return false;
}

static int run_until_unmounted(struct run *run)
{
	struct pollfd fds[] = {
		{ .fd = tier_loop_event_fd(run->loop), .events = POLLIN },
		{ .fd = run->signal_fd, .events = POLLIN },
		{ .fd = run->mounts_fd, .events = POLLPRI },
		{ .fd = run->fs.answers_fd, .events = POLLIN },
	};
	bool end = false;

	while (!end) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return log_errno(-errno, "requests: cannot poll");
		if (run->dev == 0 && fds[3].revents) {
			finish_mount(run);
			fds[3].fd = -1;
		}
		end = handle_signal(run) || tier_loop_ended(run->loop);
		/* unmounted here by umount.ckptfs, while another mount namespace keeps the session alive */
		if (fds[2].revents && run->dev != 0 && atomic_load(&run->fs.ends_when_detached) && !mounts_has(run->dev))
			end = true;
	}
	if (fds[3].fd == -1)
		return 0;
	log_error("mountpoint %s: unmounted before the filesystem answered", run->paths.mountpoint);
	return -ENXIO;
}

static int serve_mount(struct run *run)
{
	int r;

	run->fs.answers_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (run->fs.answers_fd < 0)
		return log_errno(-errno, "requests: cannot create an eventfd");
	r = tier_loop_start(run->se, &run->loop);
	return r < 0 ? log_errno(r, "requests: cannot start a thread") : run_until_unmounted(run);
}

static void unmount_or_end(struct run *run)
{
	if (daemon_is_on_top(run->paths.mountpoint, run->dev))
		fuse_session_unmount(run->se);
	else
		daemon_end_session(run->se);
}

/* false: threads hang in the tier and were left behind. */
static bool close_all(struct run *run)
{
	bool all_ended;

	if (run->fs.cache)
		tier_cache_stop(run->fs.cache);
	if (run->fs.view)
		tier_view_stop(run->fs.view);
	tier_loop_free(TAKE(run->loop));
	if (run->se) {
		unmount_or_end(run);
		fuse_session_destroy(run->se);
		log_info("tier %s: unmounted", tier_where(run->tier));
	}
	closep(&run->signal_fd);
	closep(&run->mounts_fd);
	closep(&run->fs.answers_fd);
	all_ended = !run->pool || tier_pool_stop(run->pool);
	if (!all_ended)
		return false;
	tier_view_free(run->fs.view);
	tier_cache_free(run->fs.cache);
	tier_pool_free(run->pool);
	tier_close(run->tier);
	return true;
}

static int mount_and_serve(struct run *run, bool *ret_all_ended)
{
	struct rlimit files = { RLIM_INFINITY, RLIM_INFINITY };
	int r;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	r = daemon_block_signals(&run->signal_fd);
	if (r == 0) {
		run->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
		r = run->mounts_fd < 0 ? log_errno(-errno, "/proc/self/mountinfo: cannot open") : 0;
	}
	if (r == 0)
		r = open_tier(run);
	if (r == 0)
		r = open_session(run);
	if (r == 0)
		r = serve_mount(run);
	*ret_all_ended = close_all(run);
	return r;
}

enum exit_status tier_mount(struct options *o)
{
	struct run run = { .o = o, .daemon = DAEMON_NONE, .signal_fd = -1, .mounts_fd = -1, .fs.answers_fd = -1 };
	enum exit_status status = EXIT_SYSTEM;
	bool all_ended = true;
	int r = check_options(o);

	if (r == 0)
		r = checks_run_without_store(o, &run.paths);
	if (r == 0 && o->fake) {
		log_info("tier %s: not mounted on %s because of -f; options and paths are valid", o->store,
			 run.paths.mountpoint);
		checks_release(&run.paths);
		return EXIT_MOUNTED;
	}
	if (r < 0)
		return exit_status_of(r == -EACCES || r == -EINVAL || r == -ENOMEM || r == -ENODEV ? r : -ENXIO);
	if (o->foreground) {
		log_to_stderr();
	} else {
		r = daemon_fork(&run.daemon, &status);
		if (r != 0) {
			checks_release(&run.paths);
			return status;
		}
	}
	r = mount_and_serve(&run, &all_ended);
	status = exit_status_of(r);
	if (!all_ended) {
		log_warning("tier %s: does not answer; exiting with requests in flight", o->store);
		_exit((int)status);
	}
	checks_release(&run.paths);
	return status;
}
