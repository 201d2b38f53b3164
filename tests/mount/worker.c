/*
 * worker FILE MIB THREADS CHILDREN: a program to take images of. Each process of it has memory of its own, changes a page of it with every count, compares all of it
 * with what the count says, and tells the count, and those of its threads, in FILE.0, FILE.1...: so one that was restored shows whether it goes on where
 * it was. Whatever is not as it must be, it says "wrong" there. It ends after 10 minutes, in case that who started it has.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096u
#define WORDS (PAGE / sizeof(uint64_t))
#define THREADS_MAX 16

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

/* Page n % nr is filled with every count n; first all, with what they would have had before. */
static void work(const char *path, unsigned number, size_t nr, unsigned threads)
{
	uint64_t *memory = malloc(nr * PAGE);
	uint64_t first = (uint64_t)(number + 1) << 40;
	char temporary[4096], to[4096];
	int right = memory != NULL;

	snprintf(to, sizeof(to), "%s.%u", path, number);
	snprintf(temporary, sizeof(temporary), "%s.%u.new", path, number);
	for (uint64_t n = 0; n < nr && right; n++)
		fill(memory + n * WORDS, first + n);
	for (uint64_t n = nr;; n++) {
		FILE *f = fopen(temporary, "w");

		if (!f)
			exit(1);
		fill(memory + n % nr * WORDS, first + n);
		for (uint64_t k = n - nr + 1; k <= n && right; k++)
			right = is_filled(memory + k % nr * WORDS, first + k);
		fprintf(f, "%s %llu", right ? "right" : "wrong", (unsigned long long)(n - nr));
		for (unsigned i = 0; i < threads; i++)
			fprintf(f, " %llu", (unsigned long long)thread_count[i]);
		fputc('\n', f);
		fclose(f);
		rename(temporary, to);
		usleep(20000);
	}
}

int main(int argc, char *argv[])
{
	unsigned threads, children, number = 0;

	if (argc != 5)
		return 1;
	alarm(600);
	threads = (unsigned)atoi(argv[3]) % THREADS_MAX;
	children = (unsigned)atoi(argv[4]);
	for (unsigned i = 1; i <= children && number == 0; i++)
		if (fork() == 0) {
			number = i;
			alarm(600);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		}
	for (unsigned i = 0; i < threads; i++) {
		pthread_t t;

		if (pthread_create(&t, NULL, count, (void *)&thread_count[i]) != 0)
			return 1;
	}
	work(argv[1], number, (size_t)atoi(argv[2]) * 1048576 / PAGE, threads);
}
