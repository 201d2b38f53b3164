/*
 * Usage: memory [--dir DIR] [--size MIB] [--order ascending|random|descending] [--iterations N] [--every N] [--shift PAGES]
 *               [--work-us N] [--stream PASSES]
 *
 * The memory benchmark of AI-Ckpt: a region, of which each iteration touches every byte, page by page in a fixed order; a checkpoint
 * every so many iterations (with --shift: so many pages later each time; then epochs do not begin where iterations do). After each page it
 * computes for as many microseconds as told: what matters is how fast the program is beside the store. Without DIR no checkpoint is taken, and
 * memory is not tracked. Options of libckptfs come by environment. With --stream it takes one checkpoint and then writes over all memory so
 * many times, which is all that is measured.
 *
 * Prints one object of JSON.
 */
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
#include "client/ckptfs.h"

#define PAGE ((size_t)4096)
#define SLEEP_NS 500000

static struct {
	const char *dir, *order;
	size_t size_mib;
	unsigned iterations, every, stream;
	uint64_t shift, work_ns;
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
		{ "dir", 1, NULL, 'd' },   { "size", 1, NULL, 's' },	{ "order", 1, NULL, 'o' },  { "iterations", 1, NULL, 'i' },
		{ "every", 1, NULL, 'e' }, { "shift", 1, NULL, 'h' },	{ "work-us", 1, NULL, 'w' }, { "stream", 1, NULL, 't' },
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
		default: exit(2);
		}
	if (conf.size_mib == 0 || conf.every == 0)
		exit(2);
}

static uint32_t *make_order(uint32_t nr)
{
	uint32_t *order = malloc(nr * sizeof(*order));
	uint64_t x = 88172645463325252u;

	for (uint32_t i = 0; i < nr; i++)
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

/* Writes that take as little time as they can. */
static uint64_t stream(uint8_t *p)
{
	uint64_t start;

	memset(p, 1, conf.size_mib << 20);
	if (conf.dir) {
		check(ckptfs_checkpoint(), "checkpoint");
		check(ckptfs_wait(), "wait");
	}
	start = monotonic_ns();
	for (unsigned i = 0; i < conf.stream; i++)
		memset(p, (int)i, conf.size_mib << 20);
	return monotonic_ns() - start;
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
	printf(", \"checkpoints\": %u, \"pages\": %" PRIu64 ", \"cow\": %" PRIu64 ", \"wait\": %" PRIu64 ", \"avoided\": %" PRIu64
	       ", \"after\": %" PRIu64 ", \"phases\": %" PRIu64 ", \"wait_s\": %.4f, \"write_s\": %.4f, \"begin_s\": %.6f, \"writes\": %" PRIu64,
	       nr, sum.pages / nr, sum.cow / nr, sum.wait / nr, sum.avoided / nr, sum.after / nr, sum.phases / nr, (double)sum.wait_ns / nr / 1e9,
	       (double)sum.write_ns / nr / 1e9, (double)sum.begin_ns / nr / 1e9, sum.writes / nr);
}

int main(int argc, char **argv)
{
	uint32_t nr, *order;
	uint64_t took;
	uint8_t *p;

	arguments(argc, argv);
	nr = (uint32_t)(conf.size_mib << 20 >> 12);
	if (conf.dir)
		check(ckptfs_init(conf.dir, NULL), "init");
	p = conf.dir ? ckptfs_malloc("memory", (size_t)nr * PAGE) :
		       mmap(NULL, (size_t)nr * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	order = make_order(nr);
	if (!p || p == MAP_FAILED || !order)
		return 1;
	memset(p, 1, (size_t)nr * PAGE); /* it is there */
	took = conf.stream > 0 ? stream(p) : iterate(p, order, nr);
	printf("{\"seconds\": %.6f", (double)took / 1e9);
	if (conf.dir) {
		print_stats();
		check(ckptfs_finish(), "finish");
	}
	printf("}\n");
	free(order);
	return 0;
}
