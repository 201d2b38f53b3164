/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Of client_api.c: what a program does beside its checkpoints: system calls, threads, children, handlers, huge
 * pages. */
#include "client_api.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t *volatile nowhere = (uint8_t *)16; /* a mistake of the program's */

/* --- system calls --- */

static void calls_write_to_closed_pages(void)
{
	size_t len = 64 * PAGE;
	uint8_t *p, *from = malloc(len);
	struct iovec iov[2], remote;
	int pipes[2], sockets[2], fd;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	FILE *f;

	api_begin(NULL);
	memset(from, 8, len);
	p = ckptfs_malloc("p", len);
	iov[0] = (struct iovec){ p + 3, 3 * PAGE };
	iov[1] = (struct iovec){ p + 10 * PAGE, 3 * PAGE };
	fd = open("/dev/zero", O_RDWR);
	memset(p, 1, len);
#define CLOSED(call, wanted)                                        \
	do {                                                        \
		CHECK(ckptfs_checkpoint() == 0);                    \
		CHECK((ssize_t)(call) == (ssize_t)(wanted));                 \
		CHECK(ckptfs_wait() == 0);                          \
	} while (0)
	CLOSED(read(fd, p, len), len);
	CHECK(api_all_are(p, len, 0));
	memset(p, 1, len);
	CLOSED(pread(fd, p + 1, len - 2, 0), len - 2);
	CHECK(api_all_are(p + 1, len - 2, 0) && p[0] == 1 && p[len - 1] == 1);
	memset(p, 1, len);
	CLOSED(readv(fd, iov, 2), 6 * PAGE);
	CHECK(p[2] == 1 && api_all_are(p + 3, 3 * PAGE, 0) && api_all_are(p + 10 * PAGE, 3 * PAGE, 0));
	CLOSED(preadv(fd, iov, 2, 0), 6 * PAGE);
	CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
	CHECK(write(pipes[1], from, 4 * PAGE) == (ssize_t)(4 * PAGE));
	CLOSED(read(pipes[0], p, len), 4 * PAGE);
	CHECK(api_all_are(p, 4 * PAGE, 8));
	CHECK(send(sockets[0], from, 2 * PAGE, 0) == (ssize_t)(2 * PAGE));
	CLOSED(recv(sockets[1], p + 20 * PAGE, len, 0), 2 * PAGE);
	CHECK(api_all_are(p + 20 * PAGE, 2 * PAGE, 8));
	CHECK(send(sockets[0], from, 6 * PAGE, 0) == (ssize_t)(6 * PAGE));
	CLOSED(recvmsg(sockets[1], &m, 0), 6 * PAGE);
	CHECK(api_all_are(p + 10 * PAGE, 3 * PAGE, 8));
	CHECK(send(sockets[0], from, PAGE, 0) == (ssize_t)PAGE);
	CLOSED(recvfrom(sockets[1], p + 30 * PAGE, PAGE, 0, NULL, NULL), PAGE);
	CHECK(p[30 * PAGE] == 8);
	remote = (struct iovec){ from, 6 * PAGE };
	memset(p, 1, len);
	CLOSED(process_vm_readv(getpid(), iov, 2, &remote, 1, 0), 6 * PAGE);
	CHECK(api_all_are(p + 3, 3 * PAGE, 8) && p[2] == 1);
	memset(p, 1, len);
	CLOSED(process_vm_writev(getpid(), &remote, 1, iov, 2, 0), 6 * PAGE); /* to its own memory */
	CHECK(api_all_are(p + 3, 3 * PAGE, 8) && p[2] == 1);
	f = fopen("/dev/zero", "r");
	CLOSED(fread(p, 1, len, f), len);
	CHECK(api_all_are(p, len, 0));
	fclose(f);
	CHECK(ckptfs_checkpoint() == 0);
	ckptfs_touch(p, len); /* for those that are not known */
	CHECK(syscall(SYS_read, fd, p, len) == (long)len);
	CHECK(ckptfs_wait() == 0);
	errno = 0;
	CHECK(read(fd, nowhere, 4) == -1 && errno == EFAULT); /* an error of the program's stays one */
	close(fd);
	for (int i = 0; i < 2; i++) {
		close(pipes[i]);
		close(sockets[i]);
	}
	free(from);
	api_end();
}

/* --- threads, children, handlers --- */

struct worker {
	pthread_t thread;
	uint8_t *p;
	size_t len;
	bool stop;
	uint64_t rounds;
};

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		for (size_t i = 0; i < w->len; i += PAGE / 2)
			w->p[i]++;
		__atomic_add_fetch(&w->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void threads_write_while_checkpoints_are_taken(void)
{
	struct worker w[4] = { 0 };
	uint64_t before;

	api_begin(NULL);
	for (int i = 0; i < 4; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%d", i);
		w[i].len = 200 * PAGE;
		w[i].p = ckptfs_malloc(name, w[i].len);
		CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
	}
	for (int i = 0; i < 20; i++)
		CHECK(ckptfs_checkpoint() == 0);
	before = __atomic_load_n(&w[0].rounds, __ATOMIC_RELAXED);
	while (__atomic_load_n(&w[0].rounds, __ATOMIC_RELAXED) < before + 3)
		usleep(1000);
	for (int i = 0; i < 4; i++) {
		__atomic_store_n(&w[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(w[i].thread, NULL);
		for (size_t k = 0; k < w[i].len; k += PAGE / 2)
			CHECK(w[i].p[k] == (uint8_t)w[i].rounds); /* no write was lost */
	}
	CHECK(ckptfs_wait() == 0);
	api_end();
}

/* A write that was noticed when the region was there still, and is answered when it has gone. */
static void threads_write_while_regions_go(void)
{
	struct worker w[2] = { 0 };

	api_begin(NULL);
	for (int i = 0; i < 2; i++) {
		w[i].len = 50 * PAGE;
		w[i].p = mmap(NULL, w[i].len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(w[i].p != MAP_FAILED && pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
	}
	for (int i = 0; i < 100; i++) {
		CHECK(ckptfs_protect("w0", w[0].p, w[0].len) == 0 && ckptfs_protect("w1", w[1].p, w[1].len) == 0);
		CHECK(ckptfs_checkpoint() == 0);
		CHECK(ckptfs_unprotect(w[0].p) == 0 && ckptfs_unprotect(w[1].p) == 0);
	}
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&w[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(w[i].thread, NULL);
		for (size_t k = 0; k < w[i].len; k += PAGE / 2)
			CHECK(w[i].p[k] == (uint8_t)w[i].rounds);
		munmap(w[i].p, w[i].len);
	}
	CHECK(ckptfs_wait() == 0);
	api_end();
}

/* Reads into its memory until it is told to stop. */
static void *read_on(void *arg)
{
	struct worker *w = arg;
	int fd = open("/dev/zero", O_RDONLY);

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		CHECK(read(fd, w->p, w->len) > 0);
		__atomic_add_fetch(&w->rounds, 1, __ATOMIC_RELAXED);
	}
	close(fd);
	return NULL;
}

static void no_call_fails_because_another_thread_takes_a_checkpoint(void)
{
	struct worker w = { .len = 100 * PAGE };

	api_begin(NULL);
	w.p = ckptfs_malloc("p", w.len);
	CHECK(pthread_create(&w.thread, NULL, read_on, &w) == 0);
	for (uint64_t i = 0; i < 100 || __atomic_load_n(&w.rounds, __ATOMIC_RELAXED) < 100; i++)
		CHECK(ckptfs_checkpoint() == 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
	CHECK(pthread_join(w.thread, NULL) == 0);
	api_end();
}

static void *call_on(void *arg)
{
	const char *name = arg;

	for (int i = 0; i < 15; i++) {
		uint8_t *p = ckptfs_malloc(name, 20 * PAGE);

		CHECK(p);
		memset(p, name[0], 20 * PAGE);
		CHECK(ckptfs_checkpoint() == 0);
		p = ckptfs_realloc(p, 30 * PAGE);
		CHECK(p && api_all_are(p, 20 * PAGE, name[0]));
		CHECK(ckptfs_wait() == 0 && (i == 14 || ckptfs_free(p) == 0));
	}
	return NULL;
}

static void threads_call_at_the_same_time(void)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	pthread_t threads[4];
	uint8_t *p;

	api_begin(NULL);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, call_on, (void *)names[i]) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	api_take();
	api_again();
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	for (int i = 0; i < 4; i++) {
		p = ckptfs_malloc(names[i], 30 * PAGE);
		CHECK(p && api_all_are(p, 20 * PAGE, names[i][0]) && api_all_are(p + 20 * PAGE, 10 * PAGE, 0));
	}
	api_end();
}

/* Whatever threads of the parent were in the midst of, a child goes on with its handlers and its memory. */
static void children_of_busy_parents_set_handlers(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	struct worker w[2] = { 0 };
	int state;
	pid_t pid;

	api_begin(NULL);
	for (int i = 0; i < 2; i++) {
		w[i].len = 500 * PAGE;
		w[i].p = ckptfs_malloc(i == 0 ? "a" : "b", w[i].len);
		CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0);
	}
	fflush(stdout);
	for (int i = 0; i < 30; i++) {
		CHECK(ckptfs_checkpoint() == 0);
		pid = fork();
		if (pid == 0) {
			w[0].p[0] = 1;
			_exit(sigaction(SIGSEGV, &action, NULL));
		}
		CHECK(waitpid(pid, &state, 0) == pid && state == 0);
	}
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&w[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(w[i].thread, NULL);
	}
	CHECK(ckptfs_wait() == 0);
	api_end();
}

static void children_are_not_tracked_and_parents_are(void)
{
	static uint8_t mine[20 * PAGE];
	uint8_t *p;
	int state;
	pid_t pid;

	api_begin(NULL);
	p = ckptfs_malloc("p", 20 * PAGE);
	CHECK(ckptfs_protect("mine", mine, sizeof(mine)) == 0);
	memset(p, 1, 20 * PAGE);
	memset(mine, 1, sizeof(mine));
	CHECK(ckptfs_checkpoint() == 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		state = open("/dev/zero", O_RDONLY);
		CHECK(read(state, p + PAGE, PAGE) == (ssize_t)PAGE && close(state) == 0);
		memset(p, 2, 20 * PAGE); /* its own */
		memset(mine, 2, sizeof(mine));
		CHECK(ckptfs_checkpoint() == -ENODEV);
		snprintf(api_dir + strlen(api_dir), 10, ".child");
		CHECK(ckptfs_init(api_dir, NULL) == 0);
		CHECK(ckptfs_protect("p", p, 20 * PAGE) == 0);
		api_take();
		CHECK(api_stats(1).pages == 20);
		api_end();
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(pid, &state, 0) == pid && WIFEXITED(state) && WEXITSTATUS(state) == 0);
	CHECK(ckptfs_wait() == 0);
	CHECK(api_all_are(p, 20 * PAGE, 1) && api_all_are(mine, sizeof(mine), 1));
	p[3] = mine[3] = 7;
	CHECK(system("true") == 0); /* a child that shares our memory until it is another program */
	api_take();
	CHECK(api_stats(2).pages >= 1);
	memset(p, 0, 20 * PAGE);
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(p[3] == 7 && p[2] == 1 && mine[3] == 7 && mine[2] == 1);
	api_end();
}

static sigjmp_buf back;
static uint8_t *shared_page;
static int nr_faults, nr_alarms, nr_nested;

static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	CHECK(number == SIGSEGV && info->si_addr == nowhere);
	nr_faults++;
	shared_page[0]++; /* which is closed */
	siglongjmp(back, 1);
}

/* On a stack of its own. */
static void on_nested(int number)
{
	(void)number;
	nr_nested++;
	for (int i = 0; i < 50; i += 10)
		shared_page[(i * 80 + 1) * PAGE]++;
}

static void on_alarm(int number)
{
	(void)number;
	nr_alarms++;
	for (int i = 0; i < 50; i++) {
		shared_page[i * 80 * PAGE]++;
		if (i == 25)
			raise(SIGUSR2);
	}
}

static void handlers_of_the_program_are_called_and_may_write(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, old,
			 alarms = { .sa_handler = on_alarm };
	struct itimerval often = { .it_interval.tv_usec = 150, .it_value.tv_usec = 150 }, never = { 0 };
	struct sigaction nested = { .sa_handler = on_nested, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 }, none = { .ss_flags = SS_DISABLE };
	uint8_t *p;

	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGSEGV, &action, &old) == 0); /* once before ours, once behind */
	for (int i = 0; i < 2; i++) {
		api_begin(NULL);
		p = shared_page = ckptfs_malloc("p", 50 * PAGE);
		if (i == 1)
			CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
		api_take();
		if (sigsetjmp(back, 1) == 0)
			*nowhere = 1;
		CHECK(nr_faults == i + 1 && p[0] == 1);
		api_end();
		CHECK(sigaction(SIGSEGV, &old, &action) == 0);
		CHECK(action.sa_sigaction == on_fault); /* as if we had not been there */
	}
	api_begin(NULL);
	shared_page = ckptfs_malloc("p", 50 * 80 * PAGE);
	memset(shared_page, 0, 50 * 80 * PAGE);
	CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR2, &nested, NULL) == 0);
	CHECK(sigaction(SIGALRM, &alarms, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 200; i++)
		CHECK(ckptfs_checkpoint() == 0); /* while they come */
	while (nr_alarms < 10)
		usleep(100);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	usleep(1000);
	signal(SIGALRM, SIG_DFL);
	CHECK(ckptfs_wait() == 0);
	CHECK(shared_page[49 * 80 * PAGE] == (uint8_t)nr_alarms);
	CHECK(nr_nested == nr_alarms && shared_page[(40 * 80 + 1) * PAGE] == (uint8_t)nr_nested);
	signal(SIGUSR2, SIG_DFL);
	CHECK(sigaltstack(&none, NULL) == 0);
	free(stack.ss_sp);
	api_end();
}

/* A signal comes whenever the library lets one come. */
static bool storm;
static int nr_storms;

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	int r = syscall(SYS_rt_sigprocmask, how, set, old, 8) < 0 ? errno : 0;

	if (storm && getpid() == gettid() && set && !sigismember(set, SIGUSR1))
		raise(SIGUSR1);
	return r;
}

static void on_storm(int number)
{
	(void)number;
	nr_storms++;
	for (int i = 0; i < 20; i++)
		shared_page[i * PAGE]++;
}

/* Without room for copies it waits for the writer, which must be able to come then. */
static void a_handler_may_wait_at_any_moment(void)
{
	const struct ckptfs_options options = { .size = sizeof(options), .cow_bytes = CKPTFS_COW_NONE };
	struct sigaction action = { .sa_handler = on_storm };

	api_begin(&options);
	shared_page = ckptfs_malloc("p", 20 * PAGE);
	memset(shared_page, 0, 20 * PAGE);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		storm = true;
		CHECK(ckptfs_checkpoint() == 0 && api_status().under_way <= (uint32_t)i + 1);
		storm = false;
	}
	CHECK(ckptfs_wait() == 0 && nr_storms > 20 && shared_page[19 * PAGE] == (uint8_t)nr_storms);
	signal(SIGUSR1, SIG_DFL);
	api_end();
}

static void on_storm_ask(int number)
{
	int r = ckptfs_checkpoint();

	(void)number;
	CHECK(r == 0 || r == -EDEADLK);
	nr_storms += r == -EDEADLK;
}

static void a_handler_that_asks_in_the_midst_of_a_call_is_reported_so(void)
{
	struct sigaction action = { .sa_handler = on_storm_ask };
	uint8_t *p;

	api_begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	p[0] = 1;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	nr_storms = 0;
	storm = true;
	CHECK(ckptfs_checkpoint() == 0);
	storm = false;
	CHECK(ckptfs_wait() == 0 && nr_storms > 0);
	signal(SIGUSR1, SIG_DFL);
	api_end();
}

/* --- descriptors --- */

/* Who prints to a descriptor that it has closed does not print into a checkpoint, and who closes all others does not
 * end them. */
static void descriptors_of_the_library_are_not_the_programs(void)
{
	const struct ckptfs_options options = { .size = sizeof(options), .write_rate = 16 << 20 };
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	size_t len = 1 << 20;
	uint8_t *p;

	api_begin(&options);
	p = ckptfs_malloc("p", len);
	memset(p, 1, len);
	close(STDERR_FILENO);
	CHECK(ckptfs_checkpoint() == 0);
	while (api_status().last == 0) {
		ssize_t n = write(STDERR_FILENO, "printed", 7);

		(void)n; /* there may be a file for a moment */
	}
	CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
	for (int fd = 3; fd < 2000; fd++)
		close(fd);
	CHECK(close_range(3, ~0u, 0) == 0);
	memset(p, 2, len);
	api_take();
	CHECK(ckptfs_restart(1, 0, NULL) == 0 && api_all_are(p, len, 1));
	CHECK(ckptfs_restart(2, 0, NULL) == 0 && api_all_are(p, len, 2));
	api_end();
}

/* --- huge pages, and pages in many pieces --- */

static void huge_pages_are_tracked(void)
{
	size_t huge = 2 << 20, len = 3 * huge;
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (p == MAP_FAILED) {
		printf("ok (no huge pages here)\n");
		return;
	}
	api_begin(NULL);
	memset(p, 1, len);
	CHECK(ckptfs_protect("huge", p + 100, len - 100) == 0);
	api_take();
	CHECK(api_stats(1).pages == 1024);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 2, len);
	CHECK(ckptfs_wait() == 0);
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(api_all_are(p + 100, len - 100, 1));
	CHECK(ckptfs_unprotect(p + 100) == 0);
	memset(p, 3, len);
	api_end();
	munmap(p, len);
}

/* Which it splits as it likes. */
static void pages_that_the_kernel_has_joined_are_tracked(void)
{
	size_t huge = 2 << 20, len = 4 * huge;
	uint8_t *map = mmap(NULL, len + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	CHECK(map != MAP_FAILED);
	p = map + huge - (uintptr_t)map % huge;
	if (madvise(p, len, MADV_HUGEPAGE) < 0)
		printf("ok (the kernel joins no pages)\n");
	memset(p, 1, len);
	api_begin(NULL);
	CHECK(ckptfs_protect("p", p, len) == 0);
	api_take();
	CHECK(api_stats(1).pages == len / PAGE);
	/* one page of one, another one as a whole, half of the third, all again while that is being written */
	p[5 * PAGE] = 2;
	memset(p + huge, 3, huge);
	memset(p + 2 * huge, 4, huge / 2);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 5, len);
	CHECK(ckptfs_wait() == 0);
	CHECK(api_stats(2).pages >= 1 + huge / PAGE + huge / 2 / PAGE && api_stats(2).pages <= 3 * huge / PAGE);
	api_take();
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(p[5 * PAGE] == 2 && api_all_are(p, 5 * PAGE, 1) &&
	      api_all_are(p + 5 * PAGE + 1, huge - 5 * PAGE - 1, 1) && api_all_are(p + huge, huge, 3));
	CHECK(api_all_are(p + 2 * huge, huge / 2, 4) && api_all_are(p + 2 * huge + huge / 2, huge + huge / 2, 1));
	CHECK(ckptfs_restart(3, 0, NULL) == 0 && api_all_are(p, len, 5));
	CHECK(ckptfs_unprotect(p) == 0);
	api_end();
	munmap(map, len + huge);
}

/* Every other page of more than the kernel keeps pieces of. */
static void memory_in_many_pieces_is_tracked(void)
{
	size_t nr = 140000;
	uint8_t *p;

	api_begin(NULL);
	if (api_status().tracking == CKPTFS_TRACKING_USERFAULTFD)
		nr /= 10; /* which knows no pieces */
	p = ckptfs_malloc("p", nr * PAGE);
	for (size_t i = 0; i < nr; i += 2)
		p[i * PAGE] = 1;
	api_take();
	for (size_t i = 1; i < nr; i += 2)
		p[i * PAGE] = 2;
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	for (size_t i = 0; i < nr; i++)
		CHECK(p[i * PAGE] == (i % 2 == 0));
	api_end();
}

const struct api_test api_program_tests[] = {
	{ "system calls write to closed pages", calls_write_to_closed_pages },
	{ "threads write while checkpoints are taken", threads_write_while_checkpoints_are_taken },
	{ "threads write while regions go", threads_write_while_regions_go },
	{ "no call fails because another thread takes a checkpoint",
	  no_call_fails_because_another_thread_takes_a_checkpoint },
	{ "threads call at the same time", threads_call_at_the_same_time },
	{ "children of busy parents set handlers", children_of_busy_parents_set_handlers },
	{ "children are not tracked and parents are", children_are_not_tracked_and_parents_are },
	{ "handlers of the program are called and may write", handlers_of_the_program_are_called_and_may_write },
	{ "a handler may wait at any moment", a_handler_may_wait_at_any_moment },
	{ "a handler that asks in the midst of a call is told so",
		a_handler_that_asks_in_the_midst_of_a_call_is_reported_so },
	{ "descriptors of the library are not the program's", descriptors_of_the_library_are_not_the_programs },
	{ "huge pages are tracked", huge_pages_are_tracked },
	{ "pages that the kernel has joined are tracked", pages_that_the_kernel_has_joined_are_tracked },
	{ "memory in many pieces is tracked", memory_in_many_pieces_is_tracked },
	{ NULL, NULL },
};
