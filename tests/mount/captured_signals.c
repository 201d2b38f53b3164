/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: captured_signals forks|asks ROUNDS
 *
 * A program that knows nothing of checkpoints, and a handler of signals that maps memory. "forks": it interrupts a
 * thread that allocates, also while that waits for a page that is being written; meanwhile another one forks. "asks":
 * it interrupts one that asks for checkpoints, while others take memory away that these have. Prints "right", if nobody
 * waits for ever.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define NR 2000

int ckptfs_checkpoint(void) __attribute__((weak));
int ckptfs_wait(void) __attribute__((weak));

static atomic_bool ending;
static atomic_int nr_alarms;

static void on_alarm(int number)
{
	uint8_t *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)number;
	p[0] = 1;
	munmap(p, 65536);
	nr_alarms++;
}

static void *allocate(void *arg)
{
	static char *p[NR];

	(void)arg;
	for (unsigned i = 0; !ending; i = (i + 7) % NR) {
		free(p[i]);
		p[i] = malloc(1000 + i);
		memset(p[i], 1, 1000);
	}
	return NULL;
}

static void *map_and_unmap(void *arg)
{
	uint8_t *p[16] = { 0 };

	for (unsigned i = 0; !ending; i = (i + 1) % 16) {
		if (p[i])
			munmap(p[i], 65536);
		p[i] = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		p[i][0] = 1;
	}
	return arg;
}

static void set_alarm(long us)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ .it_interval.tv_usec = us, .it_value.tv_usec = us }, NULL);
}

static int fork_often(int rounds)
{
	for (int i = 0, status; i < rounds || nr_alarms < rounds; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(malloc(10) ? 0 : 1);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
	}
	return 0;
}

static int ask_often(int rounds)
{
	for (int i = 0; i < rounds; i++)
		if (ckptfs_checkpoint() != 0 || (i % 2 == 0 && ckptfs_wait() != 0))
			return 1;
	return 0;
}

static int beside_forks(int rounds)
{
	pthread_t thread;
	sigset_t alarm;
	int r;

	pthread_create(&thread, NULL, allocate, NULL);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* they are the other one's */
	set_alarm(2000);
	r = fork_often(rounds);
	set_alarm(0);
	ending = true;
	pthread_join(thread, NULL);
	return r;
}

static int beside_requests(int rounds)
{
	pthread_t threads[2];
	sigset_t alarm;
	int r;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, map_and_unmap, NULL);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL); /* they are main()'s */
	set_alarm(200);
	r = ask_often(rounds);
	set_alarm(0);
	ending = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return r;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	bool asks = argc == 3 && strcmp(argv[1], "asks") == 0;
	int rounds = argc == 3 ? atoi(argv[2]) : 0;

	sigaction(SIGALRM, &action, NULL);
	if ((asks ? beside_requests(rounds) : beside_forks(rounds)) != 0)
		return 1;
	puts("right");
	return 0;
}
