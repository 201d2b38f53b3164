/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If CKPTFS_DIR is set, initialises libckptfs before main() and takes checkpoints in a thread: periodically, or on a
 * signal. The program may also call ckptfs_checkpoint(). Child programs take no checkpoints: CKPTFS_DIR is removed from
 * the environment. But a program that replaces this one by exec(2), as behind taskset(1) or env(1), does: CKPTFS_EXEC
 * passes the directory on, together with values that identify this process.
 *
 * Hooks for checkpoint.c:
 *
 *   enter     locks out mapping and unmapping
 *   gather    locks out allocation, so the heap is consistent; makes all captured memory regions
 *   leave     releases both locks
 *
 * In between pages are closed. Threads need not be stopped for that: a thread that writes to a closed page waits until
 * all are closed (checkpoint.c).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/preload/preload.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/lib/client.h"
#include "client/interpose/interpose.h"
#include "client/preload/capture.h"
#include "client/preload/heap.h"

#define STAT_LEN 1024
#define POLL_NS UINT64_C(50000000) /* interval of program_has_ended() */

static uint64_t period_ns; /* 0: none */
static _Atomic(bool) requested; /* by a signal */
static _Atomic(bool) ending;
static pthread_t thread;
static bool has_thread;
static _Atomic(bool) main_left; /* by pthread_exit(3): the program ends with the last of its threads */
static _Atomic(uint32_t) changed; /* a futex: changes with each of these */
static sigset_t signals; /* the program's mask at startup */

/* --- hooks --- */

/* A program that calls exit(3) in a signal handler may have interrupted its own allocation, which never ends. */
static int gather_regions(void)
{
	if (heap_hold(&preload_heap))
		return capture_gather();
	return ending ? -ECANCELED : 1;
}

static void unlock_memory(void)
{
	if (heap_is_held(&preload_heap))
		heap_release(&preload_heap);
	capture_unlock();
}

static const struct capture_hooks hooks = {
	.enter = capture_lock,
	.gather = gather_regions,
	.leave = unlock_memory,
	.has = capture_has,
};

/* --- the thread --- */

static void set_and_wake(_Atomic(bool) *flag)
{
	atomic_store(flag, true);
	atomic_fetch_add(&changed, 1);
	futex_wake_all(&changed);
}

static void on_signal(int number _unused_)
{
	int saved = errno;

	set_and_wake(&requested);
	errno = saved;
}

/* A field of /proc/self/stat, from 3 on, within `text`. NULL: not available. */
static const char *stat_field(char text[STAT_LEN], int field)
{
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, STAT_LEN - 1) : -1;
	char *p;

	closep(&fd);
	text[MAX(n, (ssize_t)0)] = '\0';
	p = strrchr(text, ')'); /* program names may contain spaces */
	for (int i = 2; p && i < field; i++)
		p = strchr(p + 1, ' ');
	return p ? p + 1 : NULL;
}

/* The first thread is a zombie, and no other is left but ours. The C library does not end the process then: it does not
 * distinguish our threads from the program's. */
static bool program_has_ended(void)
{
	char text[STAT_LEN];
	const char *state = stat_field(text, 3), *nr;

	if (!state || *state != 'Z')
		return false;
	nr = stat_field(text, 20);
	return nr && strtoul(nr, NULL, 10) <= preload_own_threads() + 1;
}

/* Ends the process as its last thread would. */
static void end_program(void)
{
	preload_own = false;
	signals_restore(&signals);
	exit(0);
}

/* Waits until a checkpoint is due. false: the program is ending. */
static bool wait_until_due(uint64_t *next_ns)
{
	for (;;) {
		uint32_t seen = atomic_load(&changed);
		uint64_t now = monotonic_ns(), left = *next_ns - MIN(now, *next_ns), wait_ns = main_left ? POLL_NS : left;
		struct timespec timeout = { .tv_sec = (time_t)(wait_ns / 1000000000),
					    .tv_nsec = (long)(wait_ns % 1000000000) };

		if (ending)
			return false;
		if (main_left && program_has_ended())
			end_program();
		if (atomic_exchange(&requested, false) || (period_ns != 0 && left == 0)) {
			*next_ns = now + period_ns;
			return true;
		}
		syscall(SYS_futex, &changed, FUTEX_WAIT_PRIVATE, seen, period_ns != 0 || main_left ? &timeout : NULL,
			NULL, 0);
	}
}

static void *checkpoint_thread(void *arg _unused_)
{
	uint64_t next_ns = monotonic_ns() + period_ns;

	while (wait_until_due(&next_ns)) {
		int r = ckptfs_checkpoint(); /* logs its errors; the next one may succeed */

		if (r == -ENODEV)
			break;
	}
	return NULL;
}

static int start_thread(void)
{
	int r;

	signals_block(&signals);
	r = -pthread_create(&thread, NULL, checkpoint_thread, NULL);
	signals_restore(&signals);
	has_thread = r == 0;
	return r < 0 ? log_errno(r, "checkpoints: cannot start a thread") : 0;
}

/* The first thread may end before the others; our thread has to detect when these have ended, too. */
void pthread_exit(void *result)
{
	if (has_thread && client_alive() && getpid() == gettid())
		set_and_wake(&main_left);
	NEXT(pthread_exit)(result);
	abort(); /* it does not return */
}

/* --- the environment --- */

static int parse_signal(const char *s, int *ret)
{
	char *end;
	long n = strtol(s, &end, 10);

	if (strncmp(s, "SIG", 3) == 0)
		s += 3;
	for (int i = 1; *end != '\0' && i < 32; i++)
		if (sigabbrev_np(i) && strcmp(sigabbrev_np(i), s) == 0) {
			n = i;
			end = (char *)"";
		}
	if (*end != '\0' || n < 1 || n > SIGRTMAX || n == SIGSEGV || n == SIGKILL || n == SIGSTOP)
		return -EINVAL;
	*ret = (int)n;
	return 0;
}

static int set_signal(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	const char *s = getenv("CKPTFS_SIGNAL");
	int number, r;

	if (!s || *s == '\0')
		return 0;
	r = parse_signal(s, &number);
	if (r == 0 && sigaction(number, &action, NULL) < 0)
		r = -errno;
	return r < 0 ? log_errno(r,
				 "checkpoints: CKPTFS_SIGNAL=%s: must be the number, or a name like USR1, of a signal that can be handled",
				 s) :
		       0;
}

static int set_period(void)
{
	const char *s = getenv("CKPTFS_PERIOD");
	int r;

	if (!s || *s == '\0')
		return 0;
	r = parse_time(s, &period_ns);
	return r < 0 ? log_errno(r, "checkpoints: CKPTFS_PERIOD=%s: must be a time like 90, 90s, 1.5m or 2h", s) : 0;
}

/* --- start and end --- */

/* A child of fork(2) is not captured. */
static void after_fork_in_child(void)
{
	capture_stop();
	client_capture = NULL;
	has_thread = false;
	preload_after_fork();
}

/* Unmodified programs cannot cope with system calls that fail on closed pages (mprotect), and do not stop while a
 * checkpoint is written (sync). */
static int check_options(void)
{
	const char *tracking = getenv("CKPTFS_TRACKING"), *mode = getenv("CKPTFS_MODE");

	if (tracking && *tracking != '\0' && strcmp(tracking, "userfaultfd") != 0)
		return log_errno(
			-EINVAL,
			"checkpoints: CKPTFS_TRACKING=%s: programs that are not linked with libckptfs need userfaultfd",
			tracking);
	if (mode && strcmp(mode, "sync") == 0)
		return log_errno(-EINVAL, "checkpoints: CKPTFS_MODE=sync is for programs that are linked with libckptfs");
	return 0;
}

/* Logs that another malloc(3) precedes ours: the program's own, or that of a library preloaded before this one. */
static void log_other_allocator(void)
{
	void *(*other_malloc)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	void (*other_free)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
	void *p = other_malloc && other_free ? other_malloc(1) : NULL;
	Dl_info info;

	if (!p)
		return;
	if (!preload_allocated(p) && dladdr((void *)other_malloc, &info) != 0)
		log_notice("checkpoints: the program has its own allocator (%s): its mappings are captured, possibly during an allocation",
			   info.dli_fname);
	other_free(p);
}

static int preload_init(const char *dir)
{
	struct ckptfs_options options = {
		.size = sizeof(options),
		.tracking = CKPTFS_TRACKING_USERFAULTFD,
		.member = getenv("CKPTFS_MEMBER"),
	};
	int r = check_options();

	if (r == 0)
		r = set_period();
	if (r == 0)
		r = set_signal();
	if (r == 0 && period_ns == 0 && !getenv("CKPTFS_SIGNAL"))
		log_notice("checkpoints %s: neither CKPTFS_PERIOD nor CKPTFS_SIGNAL is set: taken only by ckptfs_checkpoint()",
			   dir);
	if (r == 0)
		r = -pthread_atfork(preload_before_fork, preload_after_fork, after_fork_in_child);
	if (r == 0)
		r = ckptfs_init(dir, &options);
	if (r < 0)
		return r;
	capture_lock();
	capture_start();
	capture_unlock();
	client_capture = &hooks;
	log_other_allocator();
	return start_thread();
}

/* Replaces a variable by `instead` (NULL: removes it). setenv(3) cannot be used: shells define their own, which is not
 * initialised yet when constructors run. */
static void replace_in_environment(const char *name, char *instead)
{
	size_t len = strlen(name);
	char **to = environ;

	for (char **from = environ; from && *from; from++) {
		bool found = strncmp(*from, name, len) == 0 && (*from)[len] == '=';

		if (!found)
			*to++ = *from;
		else if (instead)
			*to++ = TAKE(instead);
	}
	if (to)
		*to = NULL;
}

/* Start time of this process since boot: process ids are reused. 0: not available. */
static uint64_t started_ticks(void)
{
	char text[STAT_LEN];
	const char *ticks = stat_field(text, 22);

	return ticks ? strtoull(ticks, NULL, 10) : 0;
}

/*
 * The directory for checkpoints of this process; NULL: none. Sets CKPTFS_EXEC for a program that replaces this one.
 * Nothing is taken from the user that has started a program with more rights: its memory would be written, with these
 * rights, where that user wants it.
 */
static const char *checkpoint_dir(void)
{
	static char variable[PATH_MAX + 64];
	const char *dir = secure_getenv("CKPTFS_DIR"), *before = secure_getenv("CKPTFS_EXEC");
	char self[64];
	size_t len;

	if (!dir && !before)
		return NULL;
	len = (size_t)snprintf(self, sizeof(self), "%d.%" PRIu64 ":", (int)getpid(), started_ticks());
	if (!dir && strncmp(before, self, len) == 0)
		return before + len;
	replace_in_environment("CKPTFS_EXEC", NULL); /* of the parent process */
	if (!dir || *dir == '\0')
		return NULL;
	if (strlen(dir) >= PATH_MAX) {
		log_errno(-ENAMETOOLONG, "checkpoints: CKPTFS_DIR is too long");
		return NULL;
	}
	snprintf(variable, sizeof(variable), "CKPTFS_EXEC=%s%s", self, dir);
	replace_in_environment("CKPTFS_DIR", variable);
	return dir;
}

__attribute__((constructor)) static void preload_start(void)
{
	const char *dir;

	preload_own = true;
	dir = checkpoint_dir();
	if (dir && preload_init(dir) < 0)
		log_error("checkpoints %s: none are taken, the program continues without", dir);
	preload_own = false;
}

/* Completes the checkpoint in progress. */
__attribute__((destructor)) static void preload_end(void)
{
	/* a child of _Fork(3) or clone(2), where after_fork_in_child() did not run, does not have the thread */
	if (!has_thread || !client_alive())
		return;
	set_and_wake(&ending);
	atomic_store(&client.hurry, true);
	if (!pthread_equal(thread, pthread_self()))
		pthread_join(thread, NULL);
	ckptfs_wait();
}
