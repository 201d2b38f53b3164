/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * umount.ckptfs: unmounts, and returns when everything is durable.
 *
 * umount(2) returns when the mount is gone from this mount namespace. The daemon then still writes, commits and closes
 * its store; if another namespace contains the mount, the kernel does not even report the unmount to it. So:
 *   0. with --flush, wait until the tier has all sealed checkpoints; on failure stay mounted;
 *   1. sync, to report an error while the mount still exists and nothing is lost, and ask the daemon to end once the
 *      mount is gone from its namespace (CKPTFS_MOUNT_END);
 *   2. unmount; if that fails, cancel the request;
 *   3. wait for the lock on the store's superblock, which the daemon releases last.
 * If this process is killed after 1, the request stays: an unmount by other means then ends the daemon as well.
 *
 * No wait exceeds --timeout by more than two seconds, and a wait of more than that is reported. A process that waits
 * for a FUSE reply cannot be interrupted, so a child process sends the requests.
 *
 * umount(8) finds this program as umount.fuse.ckptfs (the type in /proc/self/mounts), hence a link of that name.
 * Exit status as of umount(8): 0 done, 1 usage or permission, 2 system error, 32 failed.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buf.h"
#include "base/command.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/util.h"
#include "client/ioctl.h"

#define NS_PER_S UINT64_C(1000000000)
#define SILENT_NS (2 * NS_PER_S) /* longer waits are reported */
#define BUSY_NS (2 * NS_PER_S) /* programs that have just ended may hold the mount for a moment */
#define STEP_NS 20000000
#define ANSWER_NS (60 * NS_PER_S) /* for the daemon to report the state of the tier */

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_SYSTEM = 2, EXIT_FAILED = 32 };

struct request {
	const char *path;
	bool lazy, force, verbose, flush, ignored;
	char *namespace, *type; /* ignored */
	uint64_t timeout_ns;
	uint64_t until_ns; /* monotonic clock */
};

/* --- requests to the daemon, sent by a child process --- */

struct answer {
	int error;
	bool is_synced; /* if not, `error` is that of the sync */
	int lost; /* error of an earlier write-back, whose data is no longer in memory; 0: none */
	bool is_asked; /* the daemon has accepted CKPTFS_MOUNT_END */
	uint64_t mount_namespace; /* of the daemon */
	bool tier_is_known;
	uint64_t sealed, in_tier, waiting_bytes; /* ckptfs_tier; zeros if there is none */
	uint64_t too_large; /* checkpoints that will not be in the tier: their manifests would be too large */
};
static_assert(sizeof(struct answer) <= APART_MAX, "fits");

/* Without allow_other only the mounting user may open a mount, not even root. */
static int open_root(const struct mounts *m)
{
	int fd = open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 || errno != EACCES || geteuid() != 0)
		return fd;
	if (setgroups(0, NULL) < 0 || setresgid(m->gid, m->gid, m->gid) < 0 || setresuid(m->uid, m->uid, m->uid) < 0)
		return -1;
	return open(m->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static uint64_t own_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/mnt", &st) == 0 ? st.st_ino : 0;
}

static int command_mount(int fd, enum ckptfs_mount_command command, struct answer *a)
{
	struct ckptfs_mount arg = { .size = sizeof(arg), .version = CKPTFS_IOC_VERSION, .command = command };

	if (ioctl(fd, CKPTFS_IOC_MOUNT, &arg) < 0)
		return -errno;
	a->mount_namespace = arg.mount_namespace;
	return 0;
}

/* Checkpoints that are too large for the tier. Seals in a directory that is too deep for a path are not listed. */
static uint64_t count_too_large(int fd, const char *named_below)
{
	struct ckptfs_seal *s = calloc(1, sizeof(*s));
	uint64_t nr = 0, after = 0;

	for (; s; after = s->inode) {
		struct ckptfs_tier t = { .size = sizeof(t), .version = CKPTFS_IOC_VERSION };

		*s = (struct ckptfs_seal){
			.size = sizeof(*s), .version = CKPTFS_IOC_VERSION, .command = CKPTFS_SEAL_NEXT, .inode = after
		};
		if (ioctl(fd, CKPTFS_IOC_SEAL, s) < 0)
			break;
		t.inode = s->inode;
		if (ioctl(fd, CKPTFS_IOC_TIER, &t) < 0 || t.facts & (CKPTFS_TIER_HAS | CKPTFS_TIER_REMOVED) ||
		    t.directory_error != EFBIG)
			continue;
		nr++;
		if (named_below)
			log_error("%s/%s: not in the tier: its manifest would be too large; "
				  "unseal it, and seal its subdirectories",
				  named_below, s->path);
	}
	free(s);
	return nr;
}

/* The state of the tier, if there is one; else a negative errno. */
static int get_tier_state(int fd, struct answer *a, bool counts_too_large)
{
	struct ckptfs_tier t = { .size = sizeof(t), .version = CKPTFS_IOC_VERSION };

	if (ioctl(fd, CKPTFS_IOC_TIER, &t) < 0)
		return -errno;
	a->tier_is_known = t.facts & CKPTFS_TIER_KNOWN;
	a->sealed = t.sealed;
	a->in_tier = t.in_tier;
	a->waiting_bytes = t.waiting_bytes;
	if (counts_too_large && t.error != 0 && t.in_tier < t.sealed)
		a->too_large = count_too_large(fd, NULL);
	return (int)t.state;
}

struct left_text {
	char s[96];
};

/* "1 of 3 sealed checkpoints is" */
static struct left_text not_there(const struct answer *a)
{
	uint64_t left = a->sealed - a->in_tier;
	struct left_text t;

	snprintf(t.s, sizeof(t.s), "%" PRIu64 " of %s %s", left, human_nr(a->sealed, "sealed checkpoint").s,
		 left == 1 ? "is" : "are");
	return t;
}

struct question {
	const struct mounts *m;
	enum ckptfs_mount_command command;
};

/* syncfs(2) first writes back pages that are mapped, also in other namespaces. A daemon of another mount namespace is
 * not asked to end: the store was mounted there. */
static void send_request(const void *arg, void *ret)
{
	const struct question *q = arg;
	struct ckptfs_sync sync = { sizeof(sync), CKPTFS_IOC_VERSION };
	_cleanup_(closep) int fd = open_root(q->m);
	struct answer *a = ret;

	if (fd < 0) {
		a->error = -errno;
		return;
	}
	/* The first call reports failed write-backs of any time, which fsync or close may have reported already. */
	if (q->command == CKPTFS_MOUNT_END && syncfs(fd) < 0)
		a->lost = -errno;
	if (q->command == CKPTFS_MOUNT_END && ((a->lost < 0 && syncfs(fd) < 0) || ioctl(fd, CKPTFS_IOC_SYNC, &sync) < 0)) {
		a->error = -errno;
		return;
	}
	a->is_synced = true;
	if (q->command == CKPTFS_MOUNT_END)
		get_tier_state(fd, a, false);
	a->error = command_mount(fd, q->command, a);
	a->is_asked = a->error == 0;
	if (a->is_asked && q->command == CKPTFS_MOUNT_END && a->mount_namespace != own_namespace())
		a->error = command_mount(fd, CKPTFS_MOUNT_STAY, a);
}

/* `error` of the answer: the state of the tier, or a negative errno. */
static void send_tier_request(const void *arg, void *ret)
{
	const struct question *q = arg;
	_cleanup_(closep) int fd = open_root(q->m);
	struct answer *a = ret;

	a->error = fd < 0 ? -errno : get_tier_state(fd, a, true);
}

static void name_too_large(const void *arg, _unused_ void *ret)
{
	const struct question *q = arg;
	_cleanup_(closep) int fd = open_root(q->m);

	if (fd >= 0)
		count_too_large(fd, q->m->point);
}

static void report_wait(const void *arg)
{
	const struct question *q = arg;

	log_notice("%s: waiting for the daemon to make everything durable", q->m->point);
}

static int send_request_apart(const struct request *req, const struct mounts *m, enum ckptfs_mount_command command,
			      struct answer *ret)
{
	/* An unmount that fails at the end of the timeout is cancelled all the same. */
	uint64_t until = command == CKPTFS_MOUNT_STAY ? monotonic_ns() + BUSY_NS : 0;
	const struct question q = { m, command };
	const struct apart a = {
		.call = send_request,
		.report = report_wait,
		.arg = &q,
		.until_ns = MAX(req->until_ns, until),
	};

	return apart_call(&a, ret, sizeof(*ret));
}

/* Waits until the tier has all sealed checkpoints. <0: do not unmount. */
static int wait_for_flush(const struct mounts *m)
{
	const struct question q = { .m = m };
	uint64_t start = monotonic_ns();
	struct answer a = { 0 };
	bool said = false;

	for (;; nanosleep(&(struct timespec){ .tv_nsec = STEP_NS * 10 }, NULL)) {
		const struct apart call = { .call = send_tier_request, .arg = &q, .until_ns = monotonic_ns() + ANSWER_NS };
		int r = apart_call(&call, &a, sizeof(a));

		r = r == 0 ? -ETIMEDOUT : r < 0 ? r : a.error;
		if (r == -EOPNOTSUPP)
			return log_errno(r, "%s: not unmounted: the mount has no tier to flush to (tier=)", m->point);
		if (r < 0)
			return log_errno(r, "%s: not unmounted: cannot get the state of the tier", m->point);
		if (a.tier_is_known && a.in_tier == a.sealed)
			return 0;
		if (r == CKPTFS_TIER_STOPPED) {
			log_error("%s: not unmounted: %s not in the tier, and flushing has stopped; "
				  "ckptfs stat shows the reason",
				  m->point, not_there(&a).s);
			return -ESHUTDOWN;
		}
		if (a.tier_is_known && a.too_large > 0 && a.too_large == a.sealed - a.in_tier) {
			const struct apart name = { .call = name_too_large, .arg = &q, .until_ns = call.until_ns };

			apart_call(&name, &a, sizeof(a));
			return log_errno(-EFBIG, "%s: not unmounted: too large for the tier", m->point);
		}
		if (!said && monotonic_ns() - start >= SILENT_NS) {
			log_notice("%s: waiting for the tier: %s not there yet (%s)", m->point, not_there(&a).s,
				   human_size(a.waiting_bytes).s);
			said = true;
		}
	}
}

/* Sync, and ask the daemon to end. <0: do not unmount. */
static int prepare(const struct request *req, const struct mounts *m, struct answer *ret)
{
	struct answer a = { 0 };
	int r = send_request_apart(req, m, CKPTFS_MOUNT_END, &a);

	if (r > 0 && !a.is_synced && (a.error == -ENOTCONN || a.error == -EACCES)) {
		/* The daemon has died, or this is another user's mount: there is nothing to sync, or no permission. */
		if (req->verbose)
			log_info("%s: cannot sync before unmounting: %s", m->point, strerror(-a.error));
	} else if (r > 0 && a.is_synced) {
		if (a.lost < 0)
			log_warning("%s: the kernel could not write back some data earlier: %s", m->point,
				    strerror(-a.lost));
		if (a.error < 0 && req->verbose)
			log_info("%s: cannot ask the daemon to end: %s", m->point, strerror(-a.error));
	} else {
		r = r > 0 ? a.error : r == 0 ? -ETIMEDOUT : r;
		if (!req->force)
			return log_errno(
				r, "%s: not unmounted: cannot make everything durable (-f unmounts anyway)",
				m->point);
		log_warning("%s: cannot make everything durable (%s); unmounting because of -f", m->point,
			    strerror(-r));
	}
	*ret = a;
	return 0;
}

/* --- unmounting --- */

/* Repeated attempts do not print the reason again. */
static int call_fusermount(const struct request *req, const char *path, bool is_first)
{
	const char *argv[] = { "fusermount3", "-u", req->lazy ? "-z" : "-q", "--", path, NULL };
	int status;
	pid_t child = fork();

	if (child < 0)
		return log_errno(-errno, "fork");
	if (child == 0) {
		int null = is_first ? -1 : open("/dev/null", O_WRONLY);

		if (null >= 0)
			dup2(null, STDERR_FILENO);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) < 0)
		return log_errno(-errno, "fusermount3");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

static int unmount_once(const struct request *req, const char *path, bool is_first)
{
	int flags = UMOUNT_NOFOLLOW | (req->lazy ? MNT_DETACH : 0) | (req->force ? MNT_FORCE : 0);

	if (geteuid() != 0)
		return call_fusermount(req, path, is_first);
	return umount2(path, flags) < 0 ? -errno : 0;
}

static int unmount(const struct request *req, const char *path)
{
	uint64_t until = MIN(monotonic_ns() + BUSY_NS, req->until_ns);
	int r = unmount_once(req, path, true);

	while (r == -EBUSY && !req->lazy && monotonic_ns() < until) {
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS * 5 }, NULL);
		r = unmount_once(req, path, false);
	}
	if (r == -EBUSY && geteuid() != 0)
		log_error("%s: fusermount3 cannot unmount it: it is in use, or another user mounted it", path);
	else if (r == -ENOENT && geteuid() != 0)
		log_error("%s: fusermount3 is not installed or not in PATH; install fuse3, or unmount as root", path);
	else if (r == -EBUSY)
		log_error("%s: in use; fuser -vm %s lists the processes", path, path);
	else if (r < 0)
		log_errno(r, "%s: cannot unmount", path);
	return r;
}

static void describe_wait(const struct mounts *m, enum log_level level, const char *what)
{
	_cleanup_(buf_release) struct buf users = BUF_EMPTY;

	mounts_describe_users(m->store, m->dev, &users);
	log_line(level, "store %s: %s%s%.*s%s", m->store, what, users.len > 0 ? " (" : "", (int)users.len,
		 users.len > 0 ? (const char *)users.data : "", users.len > 0 ? ")" : "");
}

/* Waits until the daemon has closed its store. That of a tier has nothing to write. */
static int await_daemon(const struct request *req, const struct mounts *m)
{
	uint64_t start = monotonic_ns();
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;
	bool said = false;

	if (m->store[0] != '/')
		return 0;
	if (asprintf(&path, "%s/superblock", m->store) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return log_errno(-errno, "%s: cannot wait for the daemon", path);
	if (req->verbose)
		log_info("store %s: waiting for the daemon to close it", m->store);
	while (flock(fd, LOCK_SH | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return log_errno(-errno, "%s: cannot wait for the daemon", path);
		if (monotonic_ns() >= req->until_ns) {
			describe_wait(m, LOG_LEVEL_ERROR, "unmounted, but the daemon did not close it in time");
			return -ETIMEDOUT;
		}
		if (!said && monotonic_ns() - start >= SILENT_NS) {
			describe_wait(m, LOG_LEVEL_NOTICE, "waiting for the daemon to close it");
			said = true;
		}
		nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
	}
	return 0;
}

/* True if only one of several mounts of the store is gone: the daemon serves the others. Everything is durable. */
static bool is_mounted_elsewhere(const struct mounts *m, const struct answer *a)
{
	_cleanup_(mounts_close) struct mounts other = { 0 };

	if (mounts_has(m->dev)) {
		bool found = mounts_find(&other, m->store) > 0;

		log_notice("store %s: still mounted%s%s: its daemon keeps running", m->store, found ? " on " : "",
			   found ? other.point : "");
		return true;
	}
	if (a->is_asked && a->mount_namespace != own_namespace()) {
		log_notice("store %s: its daemon belongs to another mount namespace and keeps running", m->store);
		return true;
	}
	return false;
}

static int unmount_and_wait(struct request *req)
{
	_cleanup_(freep) char *path = mounts_real_path(req->path);
	_cleanup_(mounts_close) struct mounts m = { 0 };
	struct answer a = { 0 };
	int r = 0;

	if (!path)
		return log_errno(-errno, "%s", req->path);
	if (mounts_find_point(&m, path) <= 0 && mounts_find(&m, path) <= 0) {
		log_error("%s: neither a ckptfs mountpoint nor a mounted store; see /proc/mounts",
			  path);
		return -ENOENT;
	}
	if (req->flush)
		r = wait_for_flush(&m);
	if (r < 0)
		return r;
	req->until_ns = monotonic_ns() + req->timeout_ns;
	if (req->lazy)
		return unmount(req, m.point);
	r = prepare(req, &m, &a);
	if (r < 0)
		return r;
	if (a.sealed > a.in_tier)
		log_notice("%s: %s not %sin the tier (%s); umount.ckptfs --flush waits until all are, and the next mount "
			   "flushes what is left",
			   m.point, not_there(&a).s, a.tier_is_known ? "" : "known to be ",
			   human_size(a.waiting_bytes).s);
	r = unmount(req, m.point);
	if (r < 0 && a.is_asked)
		send_request_apart(req, &m, CKPTFS_MOUNT_STAY, &a);
	if (r < 0 || is_mounted_elsewhere(&m, &a))
		return r;
	return await_daemon(req, &m);
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "timeout", CONF_TIME, OF(timeout_ns), .fallback = "60s", .help = "wait this long at most" },
	{ "flush", CONF_FLAG, OF(flush),
	  .help = "first wait, for as long as it takes, until the tier (tier=) has all sealed checkpoints" },
	{ "", CONF_FLAG, OF(lazy), .letter = 'l',
	  .help = "detach now and do not wait; the daemon ends after the last user" },
	{ "", CONF_FLAG, OF(force), .letter = 'f', .help = "unmount even if the data cannot be made durable first" },
	{ "", CONF_FLAG, OF(verbose), .letter = 'v', .help = "print each step" },
	/* umount(8) passes these options */
	{ "", CONF_FLAG, OF(ignored), .letter = 'n', .help = "accepted, without effect" },
	{ "", CONF_FLAG, OF(ignored), .letter = 'r', .help = "accepted, without effect" },
	{ "", CONF_STRING, OF(namespace), .letter = 'N', .help = NULL },
	{ "", CONF_STRING, OF(type), .letter = 't', .help = NULL },
	COMMAND_END,
};

static int run(void *request, char *operands[], int nr _unused_)
{
	struct request *req = request;

	log_to_caller("umount.ckptfs");
	req->path = operands[0];
	switch (unmount_and_wait(req)) {
	case 0:
		return EXIT_DONE;
	case -EINVAL:
	case -EPERM:
	case -EACCES:
		return EXIT_USAGE;
	case -ENOMEM:
		return EXIT_SYSTEM;
	default:
		return EXIT_FAILED;
	}
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "umount.ckptfs",
		.usage = "umount.ckptfs [-flnrv] [--flush] [--timeout TIME] MOUNTPOINT|STORE\n",
		.about = "Unmount a ckptfs and wait until everything written to it is durable.",
		.options = options,
		.footer = "Exit status: 0 unmounted and durable, 1 usage or permission, 2 system error, 32 failed.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_SYSTEM,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one mountpoint or store",
		.run = run,
	};
	struct request req = { 0 };

	return command_main(&command, &req, argc, argv);
}
