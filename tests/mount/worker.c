/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * worker FILE MIB THREADS CHILDREN: a program to take images of. Each process of it has memory of its own, changes a
 * page of it with every count, compares all of it with what the count says, and tells the count, and those of its
 * threads, in FILE.0, FILE.1...: so one that was restored shows whether it goes on where it was. Whatever is not as it
 * must be, it says "wrong" there. It ends after an hour, in case that its parent has.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096u
#define WORDS (PAGE / sizeof(uint64_t))
#define THREADS_MAX 16
#define LINE 512 /* bytes: enough for as many counts */
#define LIFE 3600 /* seconds */

static volatile uint64_t thread_count[THREADS_MAX];

static void *count(void *n)
{
	for (;;) {
		(*(volatile uint64_t *)n)++;
		usleep(1000);
	}
	return NULL;
}

static uint64_t mix(uint64_t n)
{
	n = (n ^ n >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return n ^ n >> 29;
}

static void fill(uint64_t *page, uint64_t seed)
{
	for (size_t i = 0; i < WORDS; i++)
		page[i] = mix(seed * WORDS + i);
}

static int is_filled(const uint64_t *page, uint64_t seed)
{
	for (size_t i = 0; i < WORDS; i++)
		if (page[i] != mix(seed * WORDS + i))
			return 0;
	return 1;
}

/* One line of always the same length, in a file that stays open: restored, it finds the file as it was. */
static void report(int fd, int right, uint64_t counted, unsigned threads)
{
	char line[LINE + 1];
	int n = snprintf(line, sizeof(line), "%s %llu", right ? "right" : "wrong", (unsigned long long)counted);

	for (unsigned i = 0; i < threads; i++)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " %llu", (unsigned long long)thread_count[i]);
	memset(line + n, ' ', LINE - 1 - (size_t)n);
	line[LINE - 1] = '\n';
	if (pwrite(fd, line, LINE, 0) != LINE)
		exit(1);
}

/* Page n % nr is filled with every count n; first all, with what they would have had before. */
static void work(const char *path, unsigned number, size_t nr, unsigned threads)
{
	uint64_t *memory = malloc(nr * PAGE);
	uint64_t first = (uint64_t)(number + 1) << 40;
	int right = memory != NULL, fd;
	char to[4096];

	snprintf(to, sizeof(to), "%s.%u", path, number);
	fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		exit(1);
	for (uint64_t n = 0; n < nr && right; n++)
		fill(memory + n * WORDS, first + n);
	for (uint64_t n = nr;; n++) {
		fill(memory + n % nr * WORDS, first + n);
		for (uint64_t k = n - nr + 1; k <= n && right; k++)
			right = is_filled(memory + k % nr * WORDS, first + k);
		report(fd, right, n - nr, threads);
		usleep(20000);
	}
}

int main(int argc, char *argv[])
{
	unsigned threads, children, number = 0;

	if (argc != 5)
		return 1;
	alarm(LIFE);
	threads = (unsigned)atoi(argv[3]) % THREADS_MAX;
	children = (unsigned)atoi(argv[4]);
	for (unsigned i = 1; i <= children && number == 0; i++)
		if (fork() == 0) {
			number = i;
			alarm(LIFE);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		}
	for (unsigned i = 0; i < threads; i++) {
		pthread_t t;

		if (pthread_create(&t, NULL, count, (void *)&thread_count[i]) != 0)
			return 1;
	}
	work(argv[1], number, (size_t)atoi(argv[2]) * 1048576 / PAGE, threads);
}
