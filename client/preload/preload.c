/*
 * Begins before main(), if CKPTFS_DIR is set, and takes checkpoints in a thread of its own: when a period has passed,
 * or a signal has come. Whoever calls ckptfs_checkpoint() in the program takes one as well. Programs that this one
 * starts do not: CKPTFS_DIR is taken from the environment. But one that takes its place by exec(2), as behind
 * taskset(1) or env(1), does: CKPTFS_EXEC stands there instead, with what tells this process from its children.
 *
 * The moment of a checkpoint, for checkpoint.c:
 *
 *   enter     nobody maps memory or takes it away
 *   gather    nobody allocates, so the heap is whole; all that is captured becomes regions
 *   leave     memory is allocated and mapped again
 *
 * In between pages are closed. Threads need not be stopped for that: whoever writes to a closed page waits until all
 * are (checkpoint.c).
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
#include "client/ckptfs.h"
#include "client/client.h"
#include "client/interpose.h"
#include "client/preload/capture.h"
#include "client/preload/heap.h"

#define STAT_LEN 1024
#define LOOK_NS UINT64_C(50000000) /* how often, when only the last thread's end ends the program */

static uint64_t period_ns; /* 0: none */
static _Atomic(bool) wanted; /* a signal has come */
static _Atomic(bool) ending;
static pthread_t thread;
static bool has_thread;
static _Atomic(bool) main_left; /* by pthread_exit(3): the program ends with the last of its threads */
static _Atomic(uint32_t) changed; /* a futex: one of these has */
static sigset_t signals; /* that the program had blocked when it began */

/* --- for checkpoint.c --- */

/* A program that ends in a handler of signals may have been in the midst of allocating, and is so for ever. */
static int gather(void)
{
	if (heap_hold(&preload_heap))
		return capture_gather();
	return ending ? -ECANCELED : 1;
}

static void leave(void)
{
	if (heap_is_held(&preload_heap))
		heap_let_go(&preload_heap);
	capture_unlock();
}

static const struct client_world world = {
	.enter = capture_lock,
	.gather = gather,
	.leave = leave,
	.has = capture_has,
};

/* --- when --- */

static void tell_thread(_Atomic(bool) *what)
{
	atomic_store(what, true);
	atomic_fetch_add(&changed, 1);
	futex_wake_all(&changed);
}

static void on_signal(int number _unused_)
{
	int saved = errno;

	tell_thread(&wanted);
	errno = saved;
}

/* What the kernel says of this process, from field 3 of it on; valid until `text` is. NULL: nobody knows. */
static const char *stat_field(char text[STAT_LEN], int field)
{
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, text, STAT_LEN - 1) : -1;
	char *p;

	closep(&fd);
	text[MAX(n, (ssize_t)0)] = '\0';
	p = strrchr(text, ')'); /* names of programs have spaces */
	for (int i = 2; p && i < field; i++)
		p = strchr(p + 1, ' ');
	return p ? p + 1 : NULL;
}

/* The first thread is a zombie, and no other is left but ours, which the C library does not tell from the program's. */
static bool program_has_ended(void)
{
	char text[STAT_LEN];
	const char *state = stat_field(text, 3), *nr;

	if (!state || *state != 'Z')
		return false;
	nr = stat_field(text, 20);
	return nr && strtoul(nr, NULL, 10) <= preload_own_threads() + 1;
}

/* As the last thread of a program does. */
static void end_program(void)
{
	preload_own = false;
	signals_restore(&signals);
	exit(0);
}

/* false: the end. */
static bool wait_until_wanted(uint64_t *next_ns)
{
	for (;;) {
		uint32_t seen = atomic_load(&changed);
		uint64_t now = monotonic_ns(), left = *next_ns - MIN(now, *next_ns), wait_ns = main_left ? LOOK_NS : left;
		struct timespec timeout = { .tv_sec = (time_t)(wait_ns / 1000000000),
					    .tv_nsec = (long)(wait_ns % 1000000000) };

		if (ending)
			return false;
		if (main_left && program_has_ended())
			end_program();
		if (atomic_exchange(&wanted, false) || (period_ns != 0 && left == 0)) {
			*next_ns = now + period_ns;
			return true;
		}
		syscall(SYS_futex, &changed, FUTEX_WAIT_PRIVATE, seen, period_ns != 0 || main_left ? &timeout : NULL,
			NULL, 0);
	}
}

static void *run(void *arg _unused_)
{
	uint64_t next_ns = monotonic_ns() + period_ns;

	while (wait_until_wanted(&next_ns)) {
		int r = ckptfs_checkpoint(); /* which has said why not; the next one is tried all the same */

		if (r == -ENODEV)
			break;
	}
	return NULL;
}

static int start_thread(void)
{
	int r;

	signals_block(&signals);
	r = -pthread_create(&thread, NULL, run, NULL);
	signals_restore(&signals);
	has_thread = r == 0;
	return r < 0 ? log_errno(r, "checkpoints: thread") : 0;
}

/* The first thread may end before others do; when they have, too, our thread has to see it. */
void pthread_exit(void *result)
{
	if (has_thread && client_alive() && getpid() == gettid())
		tell_thread(&main_left);
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
				 "checkpoints: CKPTFS_SIGNAL=%s: a number is wanted, or a name as USR1, of a signal that can be handled",
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
	return r < 0 ? log_errno(r, "checkpoints: CKPTFS_PERIOD=%s: a time is wanted, as 90, 90s, 1.5m or 2h", s) : 0;
}

/* --- beginning and end --- */

/* A child goes on as if nobody captured it. */
static void in_child(void)
{
	capture_stop();
	client_world = NULL;
	has_thread = false;
	preload_fork_ends();
}

/* What a program that knows of nothing cannot live with: system calls that fail on a closed page, and a writer that
 * expects it to wait. */
static int check_ways(void)
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

/* By functions that come before ours: the program's own, or a library's that was preloaded before this one. */
static void tell_other_allocator(void)
{
	void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	void (*give_back)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
	void *p = allocate && give_back ? allocate(1) : NULL;
	Dl_info whose;

	if (!p)
		return;
	if (!preload_allocated(p) && dladdr((void *)allocate, &whose) != 0)
		log_notice("checkpoints: the program allocates by itself (%s): they have what that maps, perhaps in the midst of allocating",
			   whose.dli_fname);
	give_back(p);
}

static int begin(const char *dir)
{
	struct ckptfs_options options = {
		.size = sizeof(options),
		.tracking = CKPTFS_TRACKING_USERFAULTFD,
		.member = getenv("CKPTFS_MEMBER"),
	};
	int r = check_ways();

	if (r == 0)
		r = set_period();
	if (r == 0)
		r = set_signal();
	if (r == 0 && period_ns == 0 && !getenv("CKPTFS_SIGNAL"))
		log_notice("checkpoints %s: neither CKPTFS_PERIOD nor CKPTFS_SIGNAL: only if the program calls ckptfs_checkpoint()",
			   dir);
	if (r == 0)
		r = -pthread_atfork(preload_fork_begins, preload_fork_ends, in_child);
	if (r == 0)
		r = ckptfs_init(dir, &options);
	if (r < 0)
		return r;
	capture_lock();
	capture_start();
	capture_unlock();
	client_world = &world;
	tell_other_allocator();
	return start_thread();
}

/* `instead` (NULL: nothing) takes the place of a variable. Not by setenv(3): shells have one of their own, which knows
 * nothing yet when constructors run. */
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

/* When this process was started, since the machine was: numbers of processes come again. 0: nobody knows. */
static uint64_t started_ticks(void)
{
	char text[STAT_LEN];
	const char *ticks = stat_field(text, 22);

	return ticks ? strtoull(ticks, NULL, 10) : 0;
}

/* Where checkpoints of this process go. NULL: it is to have none. What it leaves in the environment is for whoever
 * takes its place. */
static const char *wanted_dir(void)
{
	static char variable[PATH_MAX + 64];
	const char *dir = getenv("CKPTFS_DIR"), *before = getenv("CKPTFS_EXEC");
	char self[64];
	size_t len;

	if (!dir && !before)
		return NULL;
	len = (size_t)snprintf(self, sizeof(self), "%d.%" PRIu64 ":", (int)getpid(), started_ticks());
	if (!dir && strncmp(before, self, len) == 0)
		return before + len;
	replace_in_environment("CKPTFS_EXEC", NULL); /* it was its parent's */
	if (!dir || *dir == '\0')
		return NULL;
	if (strlen(dir) >= PATH_MAX) {
		log_errno(-ENAMETOOLONG, "checkpoints: CKPTFS_DIR");
		return NULL;
	}
	snprintf(variable, sizeof(variable), "CKPTFS_EXEC=%s%s", self, dir);
	replace_in_environment("CKPTFS_DIR", variable);
	return dir;
}

__attribute__((constructor)) static void start(void)
{
	const char *dir;

	preload_own = true;
	dir = wanted_dir();
	if (dir && begin(dir) < 0)
		log_error("checkpoints %s: none are taken, the program goes on without", dir);
	preload_own = false;
}

/* The checkpoint that is under way becomes complete. */
__attribute__((destructor)) static void end(void)
{
	/* a child of _Fork(3) or clone(2), whom nobody has told, has no such thread to wait for */
	if (!has_thread || !client_alive())
		return;
	tell_thread(&ending);
	atomic_store(&client.hurry, true);
	if (!pthread_equal(thread, pthread_self()))
		pthread_join(thread, NULL);
	ckptfs_wait();
}
