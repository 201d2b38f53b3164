/* SPDX-License-Identifier: GPL-3.0-or-later */
/* flock, POSIX and open-file-description locks between processes. */
#include "posix.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

static struct flock range(short type, off_t start, off_t len)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
}

static int lock(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock l = range(type, start, len);

	return fcntl(fd, cmd, &l);
}

/* Run a block in another process and wait for it. */
#define ELSEWHERE                                                                                     \
	for (pid_t p_ = check_fork(); p_ >= 0; p_ == 0 ? _exit(0) : (check_join(p_), (void)(p_ = -1))) \
		if (p_ == 0)

CHECK(flock_excludes_other_processes)
{
	int fd = make_file("f", "x", 1);

	OK(flock(fd, LOCK_EX));
	ELSEWHERE {
		int other = OK(open("f", O_RDWR));

		FAILS(EWOULDBLOCK, flock(other, LOCK_EX | LOCK_NB));
		FAILS(EWOULDBLOCK, flock(other, LOCK_SH | LOCK_NB));
		OK(flock(fd, LOCK_EX | LOCK_NB)); /* inherited: the same lock */
	}
	OK(flock(fd, LOCK_SH));
	ELSEWHERE {
		int other = OK(open("f", O_RDONLY));

		OK(flock(other, LOCK_SH | LOCK_NB));
		FAILS(EWOULDBLOCK, flock(other, LOCK_EX | LOCK_NB));
	}
	OK(close(fd));
	ELSEWHERE {
		OK(flock(OK(open("f", O_RDWR)), LOCK_EX | LOCK_NB));
	}
}

CHECK(flock_waits_until_released)
{
	int fd = make_file("f", "x", 1);
	struct timespec a, b;
	pid_t pid;

	pid = check_fork();
	if (pid == 0) {
		OK(flock(OK(open("f", O_RDWR)), LOCK_EX));
		nap(400);
		_exit(0); /* its end releases it */
	}
	nap(150);
	clock_gettime(CLOCK_MONOTONIC, &a);
	OK(flock(fd, LOCK_EX));
	clock_gettime(CLOCK_MONOTONIC, &b);
	TRUE((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 50);
	check_join(pid);
}

CHECK(fcntl_locks_exclude_by_range)
{
	int fd = make_file("f", "x", 1);

	OK(lock(fd, F_SETLK, F_WRLCK, 100, 100));
	ELSEWHERE {
		int other = OK(open("f", O_RDWR));
		struct flock l = range(F_WRLCK, 0, 0);

		FAILS(EAGAIN, lock(other, F_SETLK, F_RDLCK, 150, 1));
		OK(lock(other, F_SETLK, F_WRLCK, 0, 100));
		OK(lock(other, F_SETLK, F_WRLCK, 200, 0));
		OK(fcntl(other, F_GETLK, &l));
		EQUAL(l.l_type, F_WRLCK);
		EQUAL(l.l_start, 100);
		EQUAL(l.l_len, 100);
		EQUAL(l.l_pid, getppid());
	}
	OK(lock(fd, F_SETLK, F_UNLCK, 120, 10)); /* splits it */
	ELSEWHERE {
		int other = OK(open("f", O_RDWR));

		OK(lock(other, F_SETLK, F_WRLCK, 120, 10));
		FAILS(EAGAIN, lock(other, F_SETLK, F_WRLCK, 119, 1));
		FAILS(EAGAIN, lock(other, F_SETLK, F_WRLCK, 130, 1));
	}
}

CHECK(fcntl_read_locks_are_shared)
{
	int fd = make_file("f", "x", 1);

	OK(lock(fd, F_SETLK, F_RDLCK, 0, 0));
	ELSEWHERE {
		int other = OK(open("f", O_RDWR));

		OK(lock(other, F_SETLK, F_RDLCK, 0, 0));
		FAILS(EAGAIN, lock(other, F_SETLK, F_WRLCK, 0, 0));
	}
	FAILS(EBADF, lock(OK(open("f", O_RDONLY)), F_SETLK, F_WRLCK, 0, 0));
}

CHECK(fcntl_lock_goes_with_any_close)
{
	int fd = make_file("f", "x", 1);

	OK(lock(fd, F_SETLK, F_WRLCK, 0, 0));
	OK(close(OK(open("f", O_RDONLY))));
	ELSEWHERE {
		OK(lock(OK(open("f", O_RDWR)), F_SETLK, F_WRLCK, 0, 0));
	}
}

static void wake(int sig)
{
	(void)sig;
}

CHECK(fcntl_wait_is_granted_or_interrupted)
{
	struct sigaction sa = { .sa_handler = wake };
	int fd = make_file("f", "x", 1), p[2];
	pid_t pid;
	char c;

	OK(pipe(p));
	pid = check_fork();
	if (pid == 0) {
		OK(lock(OK(open("f", O_RDWR)), F_SETLKW, F_WRLCK, 0, 0));
		EQUAL(write(p[1], "x", 1), 1);
		nap(700);
		_exit(0);
	}
	EQUAL(read(p[0], &c, 1), 1);
	sigaction(SIGALRM, &sa, NULL);
	ualarm(100000, 0);
	FAILS(EINTR, lock(fd, F_SETLKW, F_WRLCK, 0, 0));
	OK(lock(fd, F_SETLKW, F_WRLCK, 0, 0));
	check_join(pid);
}

CHECK(fcntl_deadlock_is_found)
{
	int fd = make_file("f", "x", 1), p[2];
	pid_t pid;
	char c;

	OK(pipe(p));
	OK(lock(fd, F_SETLK, F_WRLCK, 0, 1));
	pid = check_fork();
	if (pid == 0) {
		int other = OK(open("f", O_RDWR));

		OK(lock(other, F_SETLK, F_WRLCK, 1, 1));
		EQUAL(write(p[1], "x", 1), 1);
		OK(lock(other, F_SETLKW, F_WRLCK, 0, 1));
		_exit(0);
	}
	EQUAL(read(p[0], &c, 1), 1);
	nap(200);
	FAILS(EDEADLK, lock(fd, F_SETLKW, F_WRLCK, 1, 1));
	OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	check_join(pid);
}

CHECK(ofd_locks_belong_to_the_open_file)
{
	int a = make_file("f", "x", 1), b = OK(open("f", O_RDWR));

	OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
	FAILS(EAGAIN, lock(b, F_OFD_SETLK, F_WRLCK, 5, 1)); /* same process, other open file */
	FAILS(EAGAIN, lock(b, F_SETLK, F_WRLCK, 5, 1));
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 10, 1));
	OK(close(OK(open("f", O_RDONLY)))); /* does not release */
	FAILS(EAGAIN, lock(b, F_OFD_SETLK, F_RDLCK, 5, 1));
	OK(close(a));
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 5, 1));
}

CHECK(locks_guard_a_counter_of_4_processes)
{
	enum { N = 4, ROUNDS = 150 };
	pid_t pid[N];
	int i, k, value = 0, fd = make_file("f", &value, sizeof(value));

	for (i = 0; i < N; i++) {
		pid[i] = check_fork();
		if (pid[i] == 0) {
			int own = OK(open("f", O_RDWR));

			for (k = 0; k < ROUNDS; k++) {
				OK(lock(own, F_SETLKW, F_WRLCK, 0, 0));
				EQUAL(pread(own, &value, sizeof(value), 0), sizeof(value));
				value++;
				EQUAL(pwrite(own, &value, sizeof(value), 0), sizeof(value));
				OK(lock(own, F_SETLK, F_UNLCK, 0, 0));
			}
			_exit(0);
		}
	}
	for (i = 0; i < N; i++)
		check_join(pid[i]);
	EQUAL(pread(fd, &value, sizeof(value), 0), sizeof(value));
	EQUAL(value, N * ROUNDS);
}
