/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: memory [--dir DIR] [--size MIB] [--order ascending|random|descending|arrays] [--iterations N] [--every N]
 * [--shift PAGES]
 *               [--work-us N] [--stream PASSES] [--huge]
 *
 * The memory benchmark of AI-Ckpt: a region, of which each iteration touches every byte, page by page in a fixed order;
 * a checkpoint every so many iterations (with --shift: so many pages later each time; then epochs do not begin where
 * iterations do). After each page it computes for as many microseconds as told: what matters is how fast the program is
 * beside the store. Without DIR no checkpoint is taken, and memory is not tracked. Options of libckptfs come by
 * environment. Of the order "arrays" a page of each of four arrays comes after the other.
 *
 * With --stream it measures what tracking costs while no checkpoint is under way: N times it writes over all memory
 * PASSES times, as fast as it can, while nobody tracks it, and as often after a checkpoint. Medians: of a pass while
 * nobody does ("plain_s"), of the first pass after a checkpoint ("first_s"), which opens all pages, and of the others
 * ("steady_s"). It is the same memory, since pages are not all alike to caches. --huge: of huge pages, as far as the
 * kernel has them.
 *
 * Prints one object of JSON.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "median.h"

#define PAGE ((size_t)4096)
#define SLEEP_NS 500000
#define NR_ARRAYS 4u
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* of kernels that are newer than the headers of some distributions */
#endif

static struct {
	const char *dir, *order;
	size_t size_mib;
	unsigned iterations, every, stream;
	uint64_t shift, work_ns;
	bool huge;
} conf = { .order = "ascending", .size_mib = 256, .iterations = 39, .every = 10 };

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "memory: %s: %s\n", what, ckptfs_strerror(r));
	exit(1);
}

static void arguments(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", 1, NULL, 'd' },	{ "size", 1, NULL, 's' },   { "order", 1, NULL, 'o' },
		{ "iterations", 1, NULL, 'i' }, { "every", 1, NULL, 'e' },  { "shift", 1, NULL, 'h' },
		{ "work-us", 1, NULL, 'w' },	{ "stream", 1, NULL, 't' }, { "huge", 0, NULL, 'g' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (c) {
		case 'd': conf.dir = optarg; break;
		case 's': conf.size_mib = strtoul(optarg, NULL, 10); break;
		case 'o': conf.order = optarg; break;
		case 'i': conf.iterations = (unsigned)strtoul(optarg, NULL, 10); break;
		case 'e': conf.every = (unsigned)strtoul(optarg, NULL, 10); break;
		case 'h': conf.shift = strtoul(optarg, NULL, 10); break;
		case 'w': conf.work_ns = (uint64_t)(strtod(optarg, NULL) * 1000); break;
		case 't': conf.stream = (unsigned)strtoul(optarg, NULL, 10); break;
		case 'g': conf.huge = true; break;
		default: exit(2);
		}
	if (conf.size_mib == 0 || conf.every == 0 || (conf.stream > 0 && (!conf.dir || conf.stream < 2)))
		exit(2);
}

static uint32_t *make_order(uint32_t nr)
{
	uint32_t *order = malloc(nr * sizeof(*order));
	uint64_t x = 88172645463325252u;

	for (uint32_t i = 0; i < nr; i++)
		if (strcmp(conf.order, "arrays") == 0) /* nr is of whole MiB */
			order[i] = i % NR_ARRAYS * (nr / NR_ARRAYS) + i / NR_ARRAYS;
		else
			order[i] = strcmp(conf.order, "descending") == 0 ? nr - 1 - i : i;
	for (uint32_t i = nr - 1; strcmp(conf.order, "random") == 0 && i > 0; i--) {
		uint32_t k, was = order[i];

		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		k = (uint32_t)(x % (i + 1));
		order[i] = order[k];
		order[k] = was;
	}
	return order;
}

/* What is computed after each page is slept, some pages' at once: then a busy machine does not lengthen it. */
static void work(void)
{
	static int64_t owed_ns;
	uint64_t start;

	owed_ns += (int64_t)conf.work_ns;
	if (owed_ns < SLEEP_NS)
		return;
	start = monotonic_ns();
	nanosleep(&(struct timespec){ .tv_nsec = owed_ns }, NULL);
	owed_ns -= (int64_t)(monotonic_ns() - start); /* it may have been longer */
}

static void touch(volatile uint8_t *page)
{
	for (size_t i = 0; i < PAGE; i++)
		page[i]++;
	if (conf.work_ns > 0)
		work();
}

static uint64_t iterate(uint8_t *p, const uint32_t *order, uint32_t nr)
{
	uint64_t start = monotonic_ns(), checkpoints = 0, at;

	for (uint64_t n = 0; n < (uint64_t)conf.iterations * nr; n++) {
		at = (checkpoints + 1) * conf.every * nr + checkpoints * conf.shift;
		if (conf.dir && n == at) {
			check(ckptfs_checkpoint(), "checkpoint");
			checkpoints++;
		}
		touch(p + (size_t)order[n % nr] * PAGE);
	}
	return monotonic_ns() - start;
}

static double pass(uint8_t *p, const uint32_t *order, uint32_t nr, int value)
{
	uint64_t start = monotonic_ns();

	for (uint32_t i = 0; i < nr; i++)
		memset(p + (size_t)order[i] * PAGE, value, PAGE);
	return (double)(monotonic_ns() - start) / 1e9;
}

/* One pass after the other; with `first`, what that took is told apart. */
static void passes(uint8_t *p, const uint32_t *order, uint32_t nr, double *first, double *others)
{
	for (unsigned i = 0; i < conf.stream; i++) {
		double took = pass(p, order, nr, (int)i);

		if (i > 0)
			others[i - 1] = took;
		else if (first)
			*first = took;
	}
}

/* What the last round may have split. */
static void collapse(uint8_t *p, size_t len)
{
	for (int tries = 0; madvise(p, len, MADV_COLLAPSE) < 0; tries++)
		check(errno == EAGAIN && tries < 1000 ? 0 : -errno, "huge pages");
}

static void stream(uint8_t *p, size_t len, const uint32_t *order, uint32_t nr)
{
	unsigned nr_others = conf.iterations * (conf.stream - 1);
	double *first = calloc(conf.iterations, sizeof(*first)), *plain = calloc(nr_others, sizeof(*plain)),
	       *steady = calloc(nr_others, sizeof(*steady));

	check(first && plain && steady ? 0 : -ENOMEM, "results");
	for (unsigned i = 0; i < conf.iterations; i++) {
		if (conf.huge)
			collapse(p, len);
		passes(p, order, nr, NULL, plain + (size_t)i * (conf.stream - 1));
		check(ckptfs_protect("memory", p, len), "protect");
		check(ckptfs_checkpoint(), "checkpoint");
		check(ckptfs_wait(), "wait");
		passes(p, order, nr, &first[i], steady + (size_t)i * (conf.stream - 1));
		check(ckptfs_unprotect(p), "unprotect");
	}
	printf("{\"plain_s\": %.6f, \"first_s\": %.6f, \"steady_s\": %.6f", median(plain, (int)nr_others),
	       median(first, (int)conf.iterations), median(steady, (int)nr_others));
	free(first);
	free(plain);
	free(steady);
}

/* Means over the checkpoints. */
static void print_stats(void)
{
	struct ckptfs_status status = { .size = sizeof(status) };
	struct ckptfs_stats sum = { 0 }, s = { .size = sizeof(s) };
	uint32_t nr = 0;

	check(ckptfs_wait(), "wait");
	check(ckptfs_status(&status), "status");
	for (uint32_t n = 1; n <= status.last && ckptfs_stats(n, &s) == 0; n++, nr++) {
		sum.pages += s.pages;
		sum.cow += s.cow;
		sum.wait += s.wait;
		sum.avoided += s.avoided;
		sum.after += s.after;
		sum.wait_ns += s.wait_ns;
		sum.write_ns += s.write_ns;
		sum.writes += s.writes;
		sum.begin_ns += s.begin_ns;
		sum.phases += s.phases;
	}
	if (nr == 0)
		return;
	printf(", \"checkpoints\": %u, \"pages\": %" PRIu64 ", \"cow\": %" PRIu64 ", \"wait\": %" PRIu64
	       ", \"avoided\": %" PRIu64 ", \"after\": %" PRIu64 ", \"phases\": %" PRIu64
	       ", \"wait_s\": %.4f, \"write_s\": %.4f, \"begin_s\": %.6f, \"writes\": %" PRIu64,
	       nr, sum.pages / nr, sum.cow / nr, sum.wait / nr, sum.avoided / nr, sum.after / nr, sum.phases / nr,
	       (double)sum.wait_ns / nr / 1e9, (double)sum.write_ns / nr / 1e9, (double)sum.begin_ns / nr / 1e9,
	       sum.writes / nr);
}

static uint8_t *map(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p == MAP_FAILED ? -errno : 0, "memory");
	return p;
}

int main(int argc, char **argv)
{
	uint32_t nr, *order;
	size_t len;
	uint8_t *p;

	arguments(argc, argv);
	len = conf.size_mib << 20;
	nr = (uint32_t)(len / PAGE);
	if (conf.dir)
		check(ckptfs_init(conf.dir, NULL), "init");
	p = conf.dir && conf.stream == 0 ? ckptfs_malloc("memory", len) : map(len);
	order = make_order(nr);
	check(p && order ? 0 : -ENOMEM, "memory");
	memset(p, 1, len); /* it is there */
	if (conf.stream > 0)
		stream(p, len, order, nr);
	else
		printf("{\"seconds\": %.6f", (double)iterate(p, order, nr) / 1e9);
	if (conf.dir) {
		print_stats();
		check(ckptfs_finish(), "finish");
	}
	printf("}\n");
	free(order);
	return 0;
}
