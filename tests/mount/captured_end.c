/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: captured_end last|handler
 *
 * A program that knows nothing of checkpoints, and ends otherwise than by returning from main(): with the last of its
 * threads, the first one being gone; or by exit(3) in a handler of signals, in the midst of allocating.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void *go_on(void *arg)
{
	for (int i = 0; i < 300; i++) {
		free(malloc(5000));
		usleep(1000);
	}
	puts("the last one");
	return arg;
}

static void on_alarm(int number)
{
	(void)number;
	exit(7);
}

/* It may be where it should not. That a C library's own malloc() survives this is no promise, either, but programs live
 * on it. */
static _Noreturn void allocate_until_alarm(void)
{
	const struct itimerval soon = { .it_value.tv_usec = 200000 };

	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &soon, NULL);
	for (;;)
		free(malloc(100000));
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc == 2 && strcmp(argv[1], "handler") == 0)
		allocate_until_alarm();
	if (argc != 2 || strcmp(argv[1], "last") != 0 || pthread_create(&thread, NULL, go_on, NULL) != 0)
		return 2;
	pthread_exit(NULL);
}
