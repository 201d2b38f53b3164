/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/autocompact.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/mutex.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/away/dropped.h"
#include "fs/background/compacted.h"
#include "fs/background/compactor.h"
#include "fs/fs.h"
#include "fs/seal/seal.h"
#include "fs/subuids.h"

#define CALM_NS UINT64_C(1000000000) /* without a byte written */
#define AGAIN_NS UINT64_C(5000000000) /* retry after another recoding or a collection was running */
#define LOOK_NS UINT64_C(20000000)
#define SAID_MAX 400u /* bytes of its output, logged if it fails */
#define STEPS 5u /* as many as ckptfs-compact codes against each other */

struct aggregator {
	struct fs *fs; /* constant, as are the fields up to the lock */
	uint64_t budget;
	char *names; /* a file of rules; NULL: none */
	const char *mountpoint;
	dev_t dev;
	char program[PATH_MAX];

	struct mutex lock; /* leaf */
	struct cond changed;
	struct aggregator_status status GUARDED_BY(lock);
	bool woken GUARDED_BY(lock);
	bool paused GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	unsigned nr_aside GUARDED_BY(lock); /* nesting of aggregator_step_aside() */
	pid_t child GUARDED_BY(lock); /* not reaped while set; 0: none */
	bool has_thread; /* used by the thread that starts and stops */
	pthread_t thread;

	/* Used by the thread only. */
	struct compacted done, skipped; /* skipped: failed since the mount */
	struct compacted together; /* recoded together with earlier or later steps since the mount */
	uint32_t last_user; /* whose directory was the last one (fs/subuids.h) */
};

struct directory {
	uint64_t ino, sealed_ns;
	uint32_t user; /* set by find_directory() only */
	struct buf path; /* below the mountpoint, with a NUL */
};

/* --- finding work --- */

static void set_directory(struct directory *d, uint64_t ino, uint64_t sealed_ns, const struct buf *path)
{
	d->ino = ino;
	d->sealed_ns = sealed_ns;
	buf_clear(&d->path);
	buf_add(&d->path, path->data, path->len);
	buf_add_u8(&d->path, 0);
}

/*
 * The next directory that has not been recoded, and the number of such directories. Users take turns, in the order of
 * their numbers, so that many directories of one user delay those of another by one each. 1/0/<0
 */
static int find_directory(struct aggregator *a, struct directory *ret, uint64_t *ret_nr)
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ns_seal seal;
	uint64_t ino = 0;
	int r;

	*ret_nr = 0;
	while ((r = seal_next(a->fs, ino, geteuid(), &ino, &seal, &path)) > 0) {
		uint64_t sealed_ns = (uint64_t)seal.sealed_ns;
		bool is_done = compacted_has(&a->done, ino, sealed_ns) || away_is_dropped(a->fs, ino) > 0,
		     is_skipped = compacted_has(&a->skipped, ino, sealed_ns);

		uint32_t user = subuids_user(seal.uid), after = user - a->last_user - 1; /* the last user comes last */

		(void)compacted_has(&a->together, ino, sealed_ns); /* marks it as seen, so that it is kept */
		if (!is_done && !is_skipped && ((*ret_nr)++ == 0 || after < ret->user - a->last_user - 1)) {
			set_directory(ret, ino, sealed_ns, &path);
			ret->user = user;
		}
		buf_clear(&path);
	}
	if (r < 0)
		return r;
	compacted_drop_unseen(&a->done);
	compacted_drop_unseen(&a->skipped);
	compacted_drop_unseen(&a->together);
	r = buf_error(&ret->path);
	return r < 0 ? r : *ret_nr > 0;
}

/* Length of a path without its last component. */
static size_t parent_len(const void *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);

	return slash ? (size_t)(slash - (const char *)path) : 0;
}

static bool is_beside(const struct directory *d, const struct buf *path)
{
	size_t parent = parent_len(d->path.data, d->path.len - 1);

	return path->len > 0 && d->path.len > 1 && parent_len(path->data, path->len) == parent &&
	       memcmp(path->data, d->path.data, parent) == 0;
}

/* Keep the newest directories in d[1...], in any order. */
static void keep_newest(struct directory d[STEPS], uint64_t ino, uint64_t sealed_ns, const struct buf *path)
{
	struct directory *oldest = &d[1];

	for (size_t i = 2; i < STEPS; i++)
		oldest = d[i].sealed_ns < oldest->sealed_ns ? &d[i] : oldest;
	if (oldest->sealed_ns < sealed_ns)
		set_directory(oldest, ino, sealed_ns, path);
}

/*
 * d[0] is new; earlier steps, which were recoded one by one, may now be coded against each other. ckptfs-compact
 * identifies them by the names of files; here the directories sealed last beside d[0] are chosen, once there are as
 * many as can be coded together. So each is read twice, and not again with every new step. Returns their number
 * including d[0], or <0.
 */
static int find_steps(struct aggregator *a, struct directory d[STEPS])
{
	_cleanup_(buf_release) struct buf path = BUF_EMPTY;
	struct ns_seal seal;
	bool has_all = true;
	uint64_t ino = 0;
	int r;

	for (size_t i = 1; i < STEPS; i++)
		d[i].sealed_ns = 0;
	while ((r = seal_next(a->fs, ino, geteuid(), &ino, &seal, &path)) > 0) {
		uint64_t sealed_ns = (uint64_t)seal.sealed_ns;

		if (sealed_ns < d[0].sealed_ns && is_beside(d, &path) && away_is_dropped(a->fs, ino) == 0 &&
		    compacted_has(&a->done, ino, sealed_ns) && !compacted_has(&a->together, ino, sealed_ns))
			keep_newest(d, ino, sealed_ns, &path);
		buf_clear(&path);
	}
	for (size_t i = 1; i < STEPS && r == 0; i++) {
		has_all &= d[i].sealed_ns > 0;
		r = buf_error(&d[i].path);
	}
	return r < 0 ? r : has_all ? (int)STEPS : 1;
}

/* --- the process --- */

/* In the directory of the daemon, or where it was installed. */
static void find_program(char ret[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - sizeof("ckptfs-compact"));
	char *slash;

	ret[n > 0 ? n : 0] = '\0';
	slash = strrchr(ret, '/');
	if (slash)
		strcpy(slash + 1, "ckptfs-compact");
	if (!slash || access(ret, X_OK) < 0)
		snprintf(ret, PATH_MAX, "%s/ckptfs-compact", CKPTFS_BINDIR);
}

/* `path` ends with NULL. */
static int spawn(const struct aggregator *a, char *const path[STEPS + 1], int out, pid_t *ret)
{
	char budget[24], *environment[] = { NULL };
	char *argv[10 + STEPS] = { (char *)"ckptfs-compact", (char *)"--background", (char *)"--budget", budget,
				   (char *)"--beneath",	     (char *)a->mountpoint };
	size_t nr = 6;
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int r;

	snprintf(budget, sizeof(budget), "%" PRIu64, a->budget);
	if (a->names) {
		argv[nr++] = (char *)"--names";
		argv[nr++] = a->names;
	}
	argv[nr++] = (char *)"--";
	memcpy(argv + nr, path, (STEPS + 1) * sizeof(*path));
	sigemptyset(&none);
	r = posix_spawn_file_actions_init(&actions);
	if (r)
		return -r;
	r = posix_spawnattr_init(&attr);
	if (r == 0) {
		/* the daemon's threads have blocked signals */
		posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
		posix_spawnattr_setpgroup(&attr, 0);
		posix_spawnattr_setsigmask(&attr, &none);
		r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
		if (r == 0)
			r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
		if (r == 0)
			r = posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
		if (r == 0)
			r = posix_spawn(ret, a->program, &actions, &attr, argv, environment);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	return r ? log_errno(-r, "%s: cannot start", a->program) : 0;
}

static bool may_run(const struct aggregator *a) REQUIRES(a->lock)
{
	return !a->stop && !a->paused && a->nr_aside == 0;
}

static void end_child(const struct aggregator *a) REQUIRES(a->lock)
{
	if (a->child > 0)
		kill(-a->child, SIGKILL); /* and the classifier that it has started */
}

/* Keep the end of its output, on one line. */
static void read_output(int in, char *said, size_t *len)
{
	char piece[SAID_MAX];
	ssize_t n = read(in, piece, sizeof(piece));

	for (ssize_t i = 0; i < n; i++) {
		if (*len == SAID_MAX)
			memmove(said, said + 1, --*len);
		said[(*len)++] = piece[i] == '\n' ? ' ' : piece[i];
	}
	while (*len > 0 && said[*len - 1] == ' ')
		--*len;
}

/* Wait until it has ended; kill it when the mount is gone. */
static void attend(struct aggregator *a, pid_t pid, int in, char *said, size_t *said_len)
{
	_cleanup_(closep) int mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int process = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd fds[] = { { process, POLLIN, 0 }, { mounts, POLLPRI, 0 }, { in, POLLIN, 0 } };

	while (poll(fds, ARRAY_SIZE(fds), -1) > 0 || errno == EINTR) {
		if (fds[2].revents & POLLIN)
			read_output(in, said, said_len);
		else if (fds[2].revents)
			fds[2].fd = -1; /* closed by the process */
		if (fds[1].revents && !mounts_has(a->dev)) {
			mutex_lock(&a->lock);
			a->stop = true;
			end_child(a);
			mutex_unlock(&a->lock);
		}
		if (fds[0].revents || process < 0)
			return;
	}
}

/* The recoding that the process started in the daemon ends soon after it. */
static void await_compactor(struct aggregator *a)
{
	bool waits = true;

	while (waits && compactor_is_running(a->fs->compactor)) {
		mutex_lock(&a->lock);
		if (!a->stop)
			cond_wait_for(&a->changed, &a->lock, LOOK_NS);
		waits = !a->stop;
		mutex_unlock(&a->lock);
	}
	mutex_lock(&a->lock);
	a->child = 0;
	a->status.state = AGGREGATOR_WAITING;
	mutex_unlock(&a->lock);
}

/* Exit status; -ECANCELED: killed, or not started; <0. */
static int run_program(struct aggregator *a, char *const path[STEPS + 1], char *said, size_t *said_len)
{
	_cleanup_(closep) int in = -1;
	int pipe_fd[2], r, status;
	pid_t pid;

	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return -errno;
	in = pipe_fd[0];
	mutex_lock(&a->lock); /* so that it cannot be paused before a->child is set */
	r = may_run(a) ? spawn(a, path, pipe_fd[1], &pid) : -ECANCELED;
	if (r == 0) {
		a->child = pid;
		a->status.state = AGGREGATOR_RUNNING;
	}
	mutex_unlock(&a->lock);
	close(pipe_fd[1]);
	if (r < 0)
		return r;
	attend(a, pid, in, said, said_len);
	if (waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) < 0)
		log_errno(-errno, "process %d: cannot wait for it", (int)pid);
	await_compactor(a);
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -ECANCELED;
}

/* --- the thread --- */

static int note_done(struct aggregator *a, const struct directory *d, bool failed)
{
	int r = compacted_add(failed ? &a->skipped : &a->done, d->ino, d->sealed_ns);

	if (r == 0 && !failed)
		r = compacted_save(a->fs->engine, &a->done);
	mutex_lock(&a->lock);
	a->status.nr_done += !failed;
	a->status.nr_failed += failed;
	mutex_unlock(&a->lock);
	return r;
}

/*
 * Result of run_program(). Users may rename directories above a sealed one, and have their names lead anywhere: hence
 * --beneath.
 */
static int compact_some(struct aggregator *a, const struct directory *d, int nr, char *said, size_t *said_len)
{
	char *path[STEPS + 1] = { NULL };

	for (int i = 0; i < nr; i++)
		path[i] = d[i].path.len > 1 ? (char *)d[i].path.data : (char *)".";
	return run_program(a, path, said, said_len);
}

/* Returns the time to wait before the next one. */
static uint64_t compact(struct aggregator *a, struct directory d[STEPS])
{
	char said[SAID_MAX + 1] = "";
	size_t said_len = 0;
	int nr = find_steps(a, d), r;

	if (nr < 0)
		return AGAIN_NS;
	r = compact_some(a, d, nr, said, &said_len);
	if (r != 0 && r != -ECANCELED && r != CKPTFS_COMPACT_EXIT_BUSY && nr > 1) {
		/* One of the other directories may have been removed. */
		log_notice("directory %" PRIu64 ": recoded alone, since recoding it with earlier steps failed: %.*s", d->ino,
			   (int)said_len, said);
		said_len = 0;
		r = compact_some(a, d, 1, said, &said_len);
	}
	if (r == -ECANCELED)
		return 0;
	if (r == CKPTFS_COMPACT_EXIT_BUSY)
		return AGAIN_NS;
	if (r != 0)
		log_warning("directory %" PRIu64 ": background compaction failed: %.*s", d->ino, (int)said_len, said);
	a->last_user = d->user;
	r = note_done(a, d, r != 0);
	for (int i = 0; i < nr && nr > 1 && r == 0; i++)
		r = compacted_add(&a->together, d[i].ino, d[i].sealed_ns);
	return r < 0 ? AGAIN_NS : 0;
}

/* Has nothing been written since the last check, and is no thread waiting? */
static bool is_calm(const struct aggregator *a, uint64_t *written)
{
	struct engine_stats s;
	uint64_t before = *written;

	engine_stats(a->fs->engine, &s);
	*written = s.written;
	return s.written == before && !engine_is_busy(a->fs->engine);
}

/* Wait until it may run, and was woken or the time is up. false: stop. */
static bool wait_for(struct aggregator *a, uint64_t ns, const uint64_t *nr_waiting)
{
	uint64_t now = monotonic_ns(), end = ns == UINT64_MAX ? ns : now + ns;
	bool goes_on;

	mutex_lock(&a->lock);
	a->status.nr_waiting = *nr_waiting;
	while (!a->stop && (!may_run(a) || (now < end && !(a->woken && ns == UINT64_MAX)))) {
		a->status.state = a->paused	  ? AGGREGATOR_PAUSED :
				  *nr_waiting > 0 ? AGGREGATOR_WAITING :
						    AGGREGATOR_IDLE;
		if (end == UINT64_MAX || !may_run(a))
			cond_wait(&a->changed, &a->lock);
		else
			cond_wait_for(&a->changed, &a->lock, end - now);
		now = monotonic_ns();
	}
	a->woken = false;
	goes_on = !a->stop;
	mutex_unlock(&a->lock);
	return goes_on;
}

static void *run_recodings(void *userdata)
{
	struct aggregator *a = userdata;
	struct directory d[STEPS] = { 0 };
	uint64_t written = UINT64_MAX, pause_ns = 0, nr_waiting = 0;

	pthread_setname_np(pthread_self(), "ckptfs-gather");
	while (wait_for(a, pause_ns, &nr_waiting)) {
		int r = find_directory(a, d, &nr_waiting);

		if (r < 0)
			log_errno(r, "sealed directories: cannot list them");
		if (r <= 0)
			pause_ns = r < 0 ? AGAIN_NS : UINT64_MAX;
		else if (!is_calm(a, &written))
			pause_ns = CALM_NS;
		else
			pause_ns = compact(a, d);
	}
	for (size_t i = 0; i < STEPS; i++)
		buf_release(&d[i].path);
	return NULL;
}

/* --- interface --- */

int aggregator_new(struct fs *fs, uint64_t budget, const char *names, struct aggregator **ret)
{
	struct aggregator *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->fs = fs;
	a->budget = budget;
	mutex_init(&a->lock);
	cond_init(&a->changed);
	a->names = names ? realpath(names, NULL) : NULL; /* the daemon will change its working directory */
	if (names && !a->names) {
		int r = log_errno(-errno, "option compact_names=%s: cannot read", names);

		aggregator_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

int aggregator_start(struct aggregator *a, const char *mountpoint, dev_t dev)
{
	int r;

	if (!a)
		return 0;
	a->mountpoint = mountpoint;
	a->dev = dev;
	find_program(a->program);
	r = compacted_load(a->fs->engine, &a->done);
	if (r == 0)
		r = -pthread_create(&a->thread, NULL, run_recodings, a);
	a->has_thread = r == 0;
	return r;
}

/* A condition of the thread has changed. */
static void change(struct aggregator *a) REQUIRES(a->lock)
{
	if (!may_run(a))
		end_child(a);
	cond_broadcast(&a->changed);
}

void aggregator_stop(struct aggregator *a)
{
	if (!a)
		return;
	mutex_lock(&a->lock);
	a->stop = true;
	change(a);
	mutex_unlock(&a->lock);
	if (a->has_thread)
		pthread_join(a->thread, NULL);
	a->has_thread = false;
}

void aggregator_free(struct aggregator *a)
{
	if (!a)
		return;
	aggregator_stop(a);
	compacted_release(&a->done);
	compacted_release(&a->skipped);
	compacted_release(&a->together);
	cond_release(&a->changed);
	mutex_release(&a->lock);
	free(a->names);
	free(a);
}

void aggregator_wake(struct aggregator *a)
{
	if (!a)
		return;
	mutex_lock(&a->lock);
	a->woken = true;
	change(a);
	mutex_unlock(&a->lock);
}

int aggregator_pause(struct aggregator *a, bool pause)
{
	if (!a)
		return -EOPNOTSUPP;
	mutex_lock(&a->lock);
	a->paused = pause;
	a->woken = true;
	change(a);
	mutex_unlock(&a->lock);
	return 0;
}

bool aggregator_step_aside(struct aggregator *a)
{
	bool is_running;

	if (!a)
		return false;
	mutex_lock(&a->lock);
	a->nr_aside++;
	is_running = a->status.state == AGGREGATOR_RUNNING;
	change(a);
	mutex_unlock(&a->lock);
	return is_running;
}

void aggregator_go_on(struct aggregator *a)
{
	if (!a)
		return;
	mutex_lock(&a->lock);
	a->nr_aside--;
	change(a);
	mutex_unlock(&a->lock);
}

void aggregator_status(struct aggregator *a, struct aggregator_status *ret)
{
	*ret = (struct aggregator_status){ 0 };
	if (!a)
		return;
	mutex_lock(&a->lock);
	*ret = a->status;
	mutex_unlock(&a->lock);
}
