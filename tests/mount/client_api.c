/*
 * Usage: client_api DIR FULL|--outlive
 *
 * What libckptfs promises, on a mount (DIR) and where there is little room (FULL: another one). CKPTFS_TRACKING and CKPTFS_MODE say how writes are
 * noticed and when pages are written, BALLAST what takes the room there is on FULL's disk. A line for each promise; exit 1 at the first that does not hold.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ckptfs.h"

#define PAGE ((size_t)4096)
#define CHECK(x)                                                                             \
	do {                                                                                 \
		if (!(x)) {                                                                  \
			printf("FAILED line %d: %s (errno: %s)\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

#define HUGE_LEN (PAGE << 33) /* more pages than numbers */

static char dir[4096];
static int nr_dirs;
static const char *top;
static uint8_t *volatile nowhere = (uint8_t *)16; /* a mistake of the program's */

/* A directory of its own. */
static void begin(const struct ckptfs_options *options)
{
	snprintf(dir, sizeof(dir), "%s/api%d", top, nr_dirs++);
	CHECK(ckptfs_init(dir, options) == 0);
}

static void end(void)
{
	CHECK(ckptfs_finish() == 0);
}

/* The same directory, as the next process would find it. */
static void again(void)
{
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(dir, NULL) == 0);
}

static struct ckptfs_status status(void)
{
	struct ckptfs_status s = { .size = sizeof(s) };

	CHECK(ckptfs_status(&s) == 0);
	return s;
}

static struct ckptfs_stats stats(uint32_t number)
{
	struct ckptfs_stats s = { .size = sizeof(s) };

	CHECK(ckptfs_stats(number, &s) == 0);
	return s;
}

static void take(void)
{
	CHECK(ckptfs_checkpoint() == 0);
	CHECK(ckptfs_wait() == 0);
}

/* What comes of a checkpoint: the next call tells, unless the first one has waited for it. */
static int outcome(int (*next)(void))
{
	int r = ckptfs_checkpoint();

	CHECK(r == 0 || status().mode == CKPTFS_MODE_SYNC);
	return r == 0 ? next() : r;
}

static bool all_are(const uint8_t *p, size_t len, int value)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != value)
			return false;
	return true;
}

/* --- memory comes back --- */

static void content_is_as_it_was_at_the_request(void)
{
	size_t len = 4 << 20;
	uint8_t *p;

	begin(&(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .write_rate = 32 << 20, .mode = CKPTFS_MODE_ADAPTIVE });
	p = ckptfs_malloc("p", len);
	memset(p, 1, len);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 2, len); /* while it is being written */
	CHECK(ckptfs_wait() == 0);
	CHECK(stats(1).cow > 0 && stats(1).wait > 0);
	CHECK(stats(1).cow + stats(1).wait + stats(1).avoided + stats(1).after == len / PAGE);
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	CHECK(all_are(p, len, 1));
	end();
}

static void only_what_has_changed_is_written(void)
{
	size_t len = 8 << 20;
	uint8_t *p;

	begin(NULL);
	p = ckptfs_malloc("p", len);
	memset(p, 1, len);
	take();
	CHECK(stats(1).pages == len / PAGE);
	CHECK(stats(1).writes < len / PAGE / 4); /* not a request each */
	p[5 * PAGE] = p[6 * PAGE] = p[100 * PAGE + 7] = 9;
	take();
	CHECK(stats(2).pages == 3);
	CHECK(stats(2).written_bytes < 8 * PAGE);
	take();
	CHECK(stats(3).pages == 0);
	again();
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	p = ckptfs_malloc("p", len);
	CHECK(p && p[5 * PAGE] == 9 && p[6 * PAGE] == 9 && p[100 * PAGE + 7] == 9 && p[100 * PAGE + 8] == 1);
	p[0] = 3; /* what has been restored is clean */
	take();
	CHECK(stats(4).pages == 1);
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	CHECK(all_are(p, len, 1));
	end();
}

static void several_regions_find_their_content_by_name(void)
{
	static uint8_t mine[3 * PAGE + 77];
	uint8_t *a, *b, small[10] = "123456789", *mine_before = mine + 3;
	size_t len;
	void *p;

	begin(NULL);
	a = ckptfs_malloc("a", 3 * PAGE);
	b = ckptfs_malloc("b", 100);
	CHECK(a && b && ckptfs_protect("mine", mine_before, sizeof(mine) - 3) == 0);
	CHECK(ckptfs_protect("small", small, sizeof(small)) == 0);
	memset(a, 'a', 3 * PAGE);
	memset(b, 'b', 100);
	memset(mine_before, 'm', sizeof(mine) - 3);
	take();
	memset(mine, 0, sizeof(mine));
	memset(small, 0, sizeof(small));
	again();
	CHECK(ckptfs_protect("small", small, sizeof(small)) == 0);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(strcmp((char *)small, "123456789") == 0);
	CHECK(ckptfs_find("b", &p, &len) == 0 && len == 100 && all_are(p, 100, 'b'));
	a = ckptfs_malloc("a", 3 * PAGE);
	CHECK(a && all_are(a, 3 * PAGE, 'a'));
	CHECK(ckptfs_protect("mine", mine, sizeof(mine) - 3) == 0); /* three bytes from where it was */
	CHECK(all_are(mine, sizeof(mine) - 3, 'm'));
	mine[PAGE] = 'x';
	take();
	memset(mine, 0, sizeof(mine));
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(mine[PAGE] == 'x' && mine[PAGE + 1] == 'm' && mine[sizeof(mine) - 4] == 'm');
	CHECK(ckptfs_find("none", NULL, NULL) == -ENOENT);
	end();
}

static void addresses_are_kept_if_asked_for(void)
{
	uint8_t *p, *there;

	begin(NULL);
	p = ckptfs_malloc("p", 10 * PAGE);
	memset(p, 5, 10 * PAGE);
	take();
	again();
	CHECK(ckptfs_restart(0, CKPTFS_RESTART_ADDRESSES, NULL) == 0);
	CHECK(ckptfs_malloc("p", 10 * PAGE) == p && all_are(p, 10 * PAGE, 5));
	again();
	there = mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(there == p);
	CHECK(ckptfs_restart(0, CKPTFS_RESTART_ADDRESSES, NULL) == -EEXIST);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	p = ckptfs_malloc("p", 10 * PAGE);
	CHECK(p && p != there && all_are(p, 10 * PAGE, 5));
	munmap(there, PAGE);
	end();
}

static void regions_come_go_and_grow(void)
{
	uint8_t *a, *b, *c;

	begin(NULL);
	a = ckptfs_malloc("a", 100 * PAGE);
	b = ckptfs_malloc("b", 100 * PAGE);
	memset(a, 1, 100 * PAGE);
	memset(b, 2, 100 * PAGE);
	CHECK(ckptfs_checkpoint() == 0);
	CHECK(ckptfs_free(a) == 0); /* while it is being written */
	c = ckptfs_malloc("c", 90 * PAGE); /* has the place that `a` had in the file, and is zeros but for this */
	c[17] = 3;
	b = ckptfs_realloc(b, 150 * PAGE);
	CHECK(b && all_are(b, 100 * PAGE, 2) && all_are(b + 100 * PAGE, 50 * PAGE, 0));
	take();
	b = ckptfs_realloc(b, 20 * PAGE + 1);
	CHECK(b && all_are(b, 20 * PAGE + 1, 2));
	take();
	again();
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(ckptfs_find("a", NULL, NULL) == -ENOENT);
	c = ckptfs_malloc("c", 90 * PAGE);
	CHECK(c && c[17] == 3);
	c[17] = 0;
	CHECK(all_are(c, 90 * PAGE, 0));
	CHECK(!ckptfs_malloc("b", 100 * PAGE) && errno == ERANGE);
	b = ckptfs_malloc("b", 150 * PAGE);
	CHECK(b && all_are(b, 100 * PAGE, 2));
	CHECK(ckptfs_restart(3, 0, NULL) == -ERANGE); /* `b` is shorter there */
	CHECK(all_are(b, 100 * PAGE, 2));
	again();
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	a = ckptfs_malloc("a", 100 * PAGE);
	CHECK(a && all_are(a, 100 * PAGE, 1));
	end();
}

static void a_checkpoint_is_an_ordinary_file(void)
{
	char path[5000];
	struct stat st;
	uint8_t *p, bytes[8];
	int fd;

	begin(NULL);
	p = ckptfs_malloc("p", 5 * PAGE);
	memset(p, 'z', 5 * PAGE);
	take();
	snprintf(path, sizeof(path), "%s/000001", dir);
	CHECK(stat(path, &st) == 0 && (size_t)st.st_size > 6 * PAGE);
	fd = open(path, O_RDONLY);
	CHECK(pread(fd, bytes, 8, 0) == 8 && memcmp(bytes, "ckptIMAG", 8) == 0);
	CHECK(pread(fd, bytes, 8, 3 * PAGE) == 8 && memcmp(bytes, "zzzzzzzz", 8) == 0);
	close(fd);
	end();
}

static void the_newest_that_is_valid_is_taken(void)
{
	char path[5000];
	uint32_t number = 0;
	uint8_t *p;
	int fd;

	begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	for (int i = 1; i <= 3; i++) {
		p[0] = (uint8_t)i;
		take();
	}
	snprintf(path, sizeof(path), "%s/000003", dir);
	CHECK(chmod(path, 0600) == 0);
	fd = open(path, O_WRONLY);
	CHECK(pwrite(fd, "x", 1, 30) == 1);
	close(fd);
	snprintf(path, sizeof(path), "%s/000007", dir);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	CHECK(ckptfs_restart(3, 0, &number) == -EBADMSG && number == 0);
	CHECK(ckptfs_restart(5, 0, &number) == -ENOENT && number == 0);
	again();
	CHECK(ckptfs_restart(0, 0, &number) == 0 && number == 2);
	p = ckptfs_malloc("p", PAGE);
	CHECK(p[0] == 2);
	take();
	CHECK(status().last == 8);
	end();
}

static void a_parent_that_is_gone_is_told_and_mended(void)
{
	char path[5000];
	uint8_t *p;

	begin(NULL);
	p = ckptfs_malloc("p", 50 * PAGE);
	memset(p, 4, 50 * PAGE);
	take();
	snprintf(path, sizeof(path), "%s/000001", dir);
	CHECK(unlink(path) == 0);
	p[0] = 5;
	CHECK(outcome(ckptfs_checkpoint) == -ESTALE);
	CHECK(status().error == -ESTALE && status().last == 0);
	take();
	CHECK(stats(3).pages == 50);
	memset(p, 0, 50 * PAGE);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(p[0] == 5 && all_are(p + 1, 50 * PAGE - 1, 4));
	end();
}

/* --- system calls --- */

static void calls_write_to_closed_pages(void)
{
	size_t len = 64 * PAGE;
	uint8_t *p, *from = malloc(len);
	struct iovec iov[2], remote;
	int pipes[2], sockets[2], fd;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	FILE *f;

	begin(NULL);
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
	CHECK(all_are(p, len, 0));
	memset(p, 1, len);
	CLOSED(pread(fd, p + 1, len - 2, 0), len - 2);
	CHECK(all_are(p + 1, len - 2, 0) && p[0] == 1 && p[len - 1] == 1);
	memset(p, 1, len);
	CLOSED(readv(fd, iov, 2), 6 * PAGE);
	CHECK(p[2] == 1 && all_are(p + 3, 3 * PAGE, 0) && all_are(p + 10 * PAGE, 3 * PAGE, 0));
	CLOSED(preadv(fd, iov, 2, 0), 6 * PAGE);
	CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
	CHECK(write(pipes[1], from, 4 * PAGE) == (ssize_t)(4 * PAGE));
	CLOSED(read(pipes[0], p, len), 4 * PAGE);
	CHECK(all_are(p, 4 * PAGE, 8));
	CHECK(send(sockets[0], from, 2 * PAGE, 0) == (ssize_t)(2 * PAGE));
	CLOSED(recv(sockets[1], p + 20 * PAGE, len, 0), 2 * PAGE);
	CHECK(all_are(p + 20 * PAGE, 2 * PAGE, 8));
	CHECK(send(sockets[0], from, 6 * PAGE, 0) == (ssize_t)(6 * PAGE));
	CLOSED(recvmsg(sockets[1], &m, 0), 6 * PAGE);
	CHECK(all_are(p + 10 * PAGE, 3 * PAGE, 8));
	CHECK(send(sockets[0], from, PAGE, 0) == (ssize_t)PAGE);
	CLOSED(recvfrom(sockets[1], p + 30 * PAGE, PAGE, 0, NULL, NULL), PAGE);
	CHECK(p[30 * PAGE] == 8);
	remote = (struct iovec){ from, 6 * PAGE };
	memset(p, 1, len);
	CLOSED(process_vm_readv(getpid(), iov, 2, &remote, 1, 0), 6 * PAGE);
	CHECK(all_are(p + 3, 3 * PAGE, 8) && p[2] == 1);
	f = fopen("/dev/zero", "r");
	CLOSED(fread(p, 1, len, f), len);
	CHECK(all_are(p, len, 0));
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
	end();
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

	begin(NULL);
	for (int i = 0; i < 4; i++) {
		char name[8];

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
	end();
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

	begin(NULL);
	w.p = ckptfs_malloc("p", w.len);
	CHECK(pthread_create(&w.thread, NULL, read_on, &w) == 0);
	for (uint64_t i = 0; i < 100 || __atomic_load_n(&w.rounds, __ATOMIC_RELAXED) < 100; i++)
		CHECK(ckptfs_checkpoint() == 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
	CHECK(pthread_join(w.thread, NULL) == 0);
	end();
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
		CHECK(p && all_are(p, 20 * PAGE, name[0]));
		CHECK(ckptfs_wait() == 0 && (i == 14 || ckptfs_free(p) == 0));
	}
	return NULL;
}

static void threads_call_at_the_same_time(void)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	pthread_t threads[4];
	uint8_t *p;

	begin(NULL);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, call_on, (void *)names[i]) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	take();
	again();
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	for (int i = 0; i < 4; i++) {
		p = ckptfs_malloc(names[i], 30 * PAGE);
		CHECK(p && all_are(p, 20 * PAGE, names[i][0]) && all_are(p + 20 * PAGE, 10 * PAGE, 0));
	}
	end();
}

/* Whatever threads of the parent were in the midst of, a child goes on with its handlers and its memory. */
static void children_of_busy_parents_set_handlers(void)
{
	struct sigaction action = { .sa_handler = SIG_DFL };
	struct worker w[2] = { 0 };
	int state;
	pid_t pid;

	begin(NULL);
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
	end();
}

static void children_are_not_tracked_and_parents_are(void)
{
	static uint8_t mine[20 * PAGE];
	uint8_t *p;
	int state;
	pid_t pid;

	begin(NULL);
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
		snprintf(dir + strlen(dir), 10, ".child");
		CHECK(ckptfs_init(dir, NULL) == 0);
		CHECK(ckptfs_protect("p", p, 20 * PAGE) == 0);
		take();
		CHECK(stats(1).pages == 20);
		end();
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(pid, &state, 0) == pid && WIFEXITED(state) && WEXITSTATUS(state) == 0);
	CHECK(ckptfs_wait() == 0);
	CHECK(all_are(p, 20 * PAGE, 1) && all_are(mine, sizeof(mine), 1));
	p[3] = mine[3] = 7;
	CHECK(system("true") == 0); /* a child that shares our memory until it is another program */
	take();
	CHECK(stats(2).pages >= 1);
	memset(p, 0, 20 * PAGE);
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(p[3] == 7 && p[2] == 1 && mine[3] == 7 && mine[2] == 1);
	end();
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
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, old, alarms = { .sa_handler = on_alarm };
	struct itimerval often = { .it_interval.tv_usec = 150, .it_value.tv_usec = 150 }, never = { 0 };
	struct sigaction nested = { .sa_handler = on_nested, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 }, none = { .ss_flags = SS_DISABLE };
	uint8_t *p;

	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGSEGV, &action, &old) == 0); /* once before ours, once behind */
	for (int i = 0; i < 2; i++) {
		begin(NULL);
		p = shared_page = ckptfs_malloc("p", 50 * PAGE);
		if (i == 1)
			CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
		take();
		if (sigsetjmp(back, 1) == 0)
			*nowhere = 1;
		CHECK(nr_faults == i + 1 && p[0] == 1);
		end();
		CHECK(sigaction(SIGSEGV, &old, &action) == 0);
		CHECK(action.sa_sigaction == on_fault); /* as if we had not been there */
	}
	begin(NULL);
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
	end();
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

	begin(&options);
	shared_page = ckptfs_malloc("p", 20 * PAGE);
	memset(shared_page, 0, 20 * PAGE);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		storm = true;
		CHECK(ckptfs_checkpoint() == 0 && status().under_way <= (uint32_t)i + 1);
		storm = false;
	}
	CHECK(ckptfs_wait() == 0 && nr_storms > 20 && shared_page[19 * PAGE] == (uint8_t)nr_storms);
	signal(SIGUSR1, SIG_DFL);
	end();
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
	begin(NULL);
	memset(p, 1, len);
	CHECK(ckptfs_protect("huge", p + 100, len - 100) == 0);
	take();
	CHECK(stats(1).pages == 1024);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 2, len);
	CHECK(ckptfs_wait() == 0);
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(all_are(p + 100, len - 100, 1));
	CHECK(ckptfs_unprotect(p + 100) == 0);
	memset(p, 3, len);
	end();
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
	begin(NULL);
	CHECK(ckptfs_protect("p", p, len) == 0);
	take();
	CHECK(stats(1).pages == len / PAGE);
	p[5 * PAGE] = 2; /* one page of one, another one as a whole, half of the third, all again while that is being written */
	memset(p + huge, 3, huge);
	memset(p + 2 * huge, 4, huge / 2);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 5, len);
	CHECK(ckptfs_wait() == 0);
	CHECK(stats(2).pages >= 1 + huge / PAGE + huge / 2 / PAGE && stats(2).pages <= 3 * huge / PAGE);
	take();
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(p[5 * PAGE] == 2 && all_are(p, 5 * PAGE, 1) && all_are(p + 5 * PAGE + 1, huge - 5 * PAGE - 1, 1) && all_are(p + huge, huge, 3));
	CHECK(all_are(p + 2 * huge, huge / 2, 4) && all_are(p + 2 * huge + huge / 2, huge + huge / 2, 1));
	CHECK(ckptfs_restart(3, 0, NULL) == 0 && all_are(p, len, 5));
	CHECK(ckptfs_unprotect(p) == 0);
	end();
	munmap(map, len + huge);
}

/* Every other page of more than the kernel keeps pieces of. */
static void memory_in_many_pieces_is_tracked(void)
{
	size_t nr = 140000;
	uint8_t *p;

	begin(NULL);
	if (status().tracking == CKPTFS_TRACKING_USERFAULTFD)
		nr /= 10; /* which knows no pieces */
	p = ckptfs_malloc("p", nr * PAGE);
	for (size_t i = 0; i < nr; i += 2)
		p[i * PAGE] = 1;
	take();
	for (size_t i = 1; i < nr; i += 2)
		p[i * PAGE] = 2;
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	for (size_t i = 0; i < nr; i++)
		CHECK(p[i * PAGE] == (i % 2 == 0));
	end();
}

/* --- what goes wrong --- */

static void mistakes_are_told(void)
{
	struct ckptfs_status s = { .size = 1 };
	uint8_t stack[8 * PAGE], *p;

	CHECK(ckptfs_checkpoint() == -ENODEV && ckptfs_wait() == -ENODEV && ckptfs_finish() == -ENODEV);
	CHECK(!ckptfs_malloc("p", 1) && errno == ENODEV);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = 3 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .mode = 9 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .flags = 64 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .member = "a/b" }) == -EINVAL);
	CHECK(ckptfs_init("/nowhere/at/all", NULL) == -ENOENT);
	CHECK(ckptfs_init("/tmp", &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .flags = CKPTFS_REQUIRE_MOUNT }) == -ENOTTY);
	CHECK(setenv("CKPTFS_COW", "many", 1) == 0 && ckptfs_init(top, NULL) == -EINVAL && unsetenv("CKPTFS_COW") == 0);
	begin(NULL);
	CHECK(ckptfs_init(dir, NULL) == -EBUSY);
	CHECK(ckptfs_status(&s) == -EINVAL);
	p = ckptfs_malloc("p", 10);
	CHECK(p && !ckptfs_malloc("p", 10) && errno == EEXIST);
	CHECK(!ckptfs_malloc("", 10) && errno == EINVAL && !ckptfs_malloc(NULL, 10) && !ckptfs_malloc("q", 0));
	CHECK(ckptfs_protect("q", p, 5) == -EEXIST && ckptfs_protect("p", stack, 5) == -EEXIST);
	CHECK(ckptfs_protect("stack", stack, sizeof(stack)) == -EINVAL && ckptfs_protect("null", NULL, 5) == -EINVAL);
	CHECK(ckptfs_free(p + 1) == -EINVAL && ckptfs_unprotect(p) == -EINVAL && ckptfs_free(NULL) == 0);
	CHECK(ckptfs_restart(0, 0, NULL) == -ENOENT && ckptfs_restart(0, 8, NULL) == -EINVAL);
	CHECK(ckptfs_free(p) == 0);
	p = mmap(NULL, HUGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p == MAP_FAILED || (ckptfs_protect("huge", p, HUGE_LEN) == -EFBIG && munmap(p, HUGE_LEN) == 0));
	take(); /* of nothing */
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	end();
}

/* Else each would make its checkpoints from the other's. */
static void a_directory_has_one_process(void)
{
	const struct ckptfs_options members[] = { { .size = sizeof(members[0]), .member = "a" }, { .size = sizeof(members[0]), .member = "b" } };
	int state, to_child[2], from_child[2];
	char c;
	pid_t pid;

	CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
	begin(NULL);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		CHECK(ckptfs_init(dir, NULL) == -EBUSY);
		CHECK(ckptfs_init(dir, &members[0]) == 0);
		CHECK(write(from_child[1], "x", 1) == 1 && read(to_child[0], &c, 1) == 1);
		CHECK(ckptfs_finish() == 0);
		_exit(0);
	}
	CHECK(read(from_child[0], &c, 1) == 1);
	again(); /* whoever is left of us and has our descriptors does not count */
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(dir, &members[0]) == -EBUSY);
	CHECK(ckptfs_init(dir, &members[1]) == 0);
	CHECK(write(to_child[1], "x", 1) == 1 && waitpid(pid, &state, 0) == pid && WIFEXITED(state) && WEXITSTATUS(state) == 0);
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(dir, &members[0]) == 0);
	end();
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(from_child[i]);
	}
}

static void a_full_disk_is_told_and_the_program_goes_on(const char *full)
{
	size_t len = 48 << 20;
	uint32_t number;
	uint8_t *p;
	uint64_t x = 88172645463325252u;
	int r;

	snprintf(dir, sizeof(dir), "%s/full", full);
	CHECK(ckptfs_init(dir, NULL) == 0);
	p = ckptfs_malloc("p", len);
	p[0] = 1;
	take();
	CHECK(status().last == 1);
	for (size_t i = 0; i < len; i += 8) { /* more than there is room for */
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(p + i, &x, 8);
	}
	r = ckptfs_checkpoint();
	CHECK(r == 0 || status().mode == CKPTFS_MODE_SYNC);
	for (size_t i = 0; i < len; i += PAGE)
		p[i]++;
	CHECK((r < 0 ? r : ckptfs_wait()) == -ENOSPC);
	CHECK(ckptfs_wait() == 0); /* told once */
	CHECK(status().error == -ENOSPC && status().last == 1 && stats(2).error == -ENOSPC);
	CHECK(unlink(getenv("BALLAST")) == 0); /* then there is room */
	memset(p + PAGE, 0, len - PAGE);
	p[0] = 3;
	take();
	CHECK(stats(3).pages == len / PAGE); /* what has failed is still to be written */
	CHECK(ckptfs_restart(0, 0, &number) == 0 && number == 3 && p[0] == 3 && all_are(p + PAGE, len - PAGE, 0));
	CHECK(ckptfs_restart(1, 0, NULL) == 0 && p[0] == 1 && all_are(p + 1, len - 1, 0));
	end();
}

/* The other side of this is client.sh, which reads and writes lines. */
static int outlive(void)
{
	uint8_t *p;
	int r;

	begin(NULL);
	p = ckptfs_malloc("p", 30 * PAGE);
	memset(p, 1, 30 * PAGE);
	take();
	memset(p, 2, 30 * PAGE);
	printf("kill it\n");
	fflush(stdout);
	CHECK(getchar() == '\n');
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 3, 30 * PAGE);
	r = ckptfs_wait();
	CHECK((r == -ENOTCONN || r == -ECONNABORTED) && status().error == r && status().last == 1);
	printf("mount it\n");
	fflush(stdout);
	CHECK(getchar() == '\n');
	p[0] = 4;
	take();
	memset(p, 0, 30 * PAGE);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(p[0] == 4 && all_are(p + 1, 30 * PAGE - 1, 3));
	end();
	return 0;
}

int main(int argc, char **argv)
{
	const struct {
		const char *promise;
		void (*test)(void);
	} tests[] = {
		{ "content is as it was at the request", content_is_as_it_was_at_the_request },
		{ "only what has changed is written", only_what_has_changed_is_written },
		{ "several regions find their content by name", several_regions_find_their_content_by_name },
		{ "addresses are kept if asked for", addresses_are_kept_if_asked_for },
		{ "regions come, go and grow", regions_come_go_and_grow },
		{ "a checkpoint is an ordinary file", a_checkpoint_is_an_ordinary_file },
		{ "the newest that is valid is taken", the_newest_that_is_valid_is_taken },
		{ "a parent that is gone is told and mended", a_parent_that_is_gone_is_told_and_mended },
		{ "system calls write to closed pages", calls_write_to_closed_pages },
		{ "threads write while checkpoints are taken", threads_write_while_checkpoints_are_taken },
		{ "no call fails because another thread takes a checkpoint", no_call_fails_because_another_thread_takes_a_checkpoint },
		{ "threads call at the same time", threads_call_at_the_same_time },
		{ "children of busy parents set handlers", children_of_busy_parents_set_handlers },
		{ "children are not tracked and parents are", children_are_not_tracked_and_parents_are },
		{ "handlers of the program are called and may write", handlers_of_the_program_are_called_and_may_write },
		{ "a handler may wait at any moment", a_handler_may_wait_at_any_moment },
		{ "huge pages are tracked", huge_pages_are_tracked },
		{ "pages that the kernel has joined are tracked", pages_that_the_kernel_has_joined_are_tracked },
		{ "memory in many pieces is tracked", memory_in_many_pieces_is_tracked },
		{ "mistakes are told", mistakes_are_told },
		{ "a directory has one process", a_directory_has_one_process },
	};

	if (argc != 3) {
		fprintf(stderr, "usage: client_api DIR FULL|--outlive\n");
		return 2;
	}
	top = argv[1];
	if (strcmp(argv[2], "--outlive") == 0)
		return outlive();
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		tests[i].test();
		printf("ok %s\n", tests[i].promise);
		fflush(stdout);
	}
	a_full_disk_is_told_and_the_program_goes_on(argv[2]);
	printf("ok a full disk is told and the program goes on\n");
	return 0;
}
