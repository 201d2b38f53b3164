/*
 * Usage: captured_signals ROUNDS
 *
 * A program that knows nothing of checkpoints: a handler of signals that maps memory interrupts a thread that allocates, also while that waits for a page that is being written;
 * meanwhile another one forks. Prints "right", if nobody waits for ever.
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

int main(int argc, char **argv)
{
	const struct itimerval often = { .it_interval.tv_usec = 2000, .it_value.tv_usec = 2000 }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	int rounds = argc == 2 ? atoi(argv[1]) : 0;
	pthread_t thread;
	sigset_t alarm;

	sigaction(SIGALRM, &action, NULL);
	pthread_create(&thread, NULL, allocate, NULL);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* they are the other one's */
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0, status; i < rounds || nr_alarms < rounds; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(malloc(10) ? 0 : 1);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	ending = true;
	pthread_join(thread, NULL);
	puts("right");
	return 0;
}
