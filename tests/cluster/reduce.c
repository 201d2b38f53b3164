/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: mpirun -n N reduce [SEED...]
 *        mpirun -n N reduce --measure K PERCENT TIMES
 *
 * The reduction over MPI: all ranks get the same, and it is what looking at all pages at once says of it. Or what it
 * costs, as a line of JSON: K pages are offered in all, and so many per cent of those of each rank by all others, too.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checksum.h"
#include "base/util.h"
#include "mpi-agent/popular/popular_format.h"
#include "mpi-agent/popular/reduce.h"
#include "mpi-agent/wire/mac.h"

#define PAGES 5000u /* distinct ones */

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "reduce: line %d: %s\n", __LINE__, #condition); \
			MPI_Abort(MPI_COMM_WORLD, 1);                                   \
		}                                                                       \
	} while (0)

static uint64_t mix(uint64_t n)
{
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

/* A whole reduction, waiting for the others. */
static int reduce(const struct merge_conf *conf, const struct mac_key *key, const struct popular_set *own,
		  struct popular_set *ret, struct reduce_cost *cost)
{
	struct reduction *red;
	int r = reduction_begin(MPI_COMM_WORLD, conf, key, own, &red);

	if (r < 0)
		return r;
	do
		r = reduction_test(red);
	while (r == REDUCTION_WAITS || r == REDUCTION_GOES_ON);
	if (r == REDUCTION_DONE)
		r = reduction_result(red, ret, cost);
	reduction_free(red);
	return r;
}

/* Some are popular, some are not; each node can tell which node has what. */
static int holds(uint64_t seed, uint32_t node, uint32_t page)
{
	return mix(seed * 1000003 + page * 1009u + node) % 100 < mix(seed + page) % 100;
}

static struct fp fp_of_page(uint32_t page)
{
	return (struct fp){ .lo = page, .hi = mix(page) >> 8 };
}

static uint32_t count_of(uint64_t seed, uint32_t nr_nodes, uint32_t page)
{
	uint32_t count = 0;

	for (uint32_t n = 0; n < nr_nodes; n++)
		count += (uint32_t)holds(seed, n, page);
	return count;
}

static void check_same_on_all(const struct popular_set *s)
{
	uint32_t crc = crc32c(s->v, s->nr * sizeof(*s->v)), low, high;

	MPI_Allreduce(&crc, &low, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&crc, &high, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
	CHECK(low == high);
}

static void check_result(const struct merge_conf *conf, uint64_t seed, const struct popular_set *s)
{
	size_t nr_pages = 0;

	for (uint32_t page = 0; page < PAGES; page++)
		nr_pages += count_of(seed, conf->nr_nodes, page) > 0;
	CHECK(s->nr == MIN(nr_pages, conf->max));
	for (size_t i = 0; i < s->nr; i++) {
		uint32_t page = (uint32_t)s->v[i].fp.lo, count = count_of(seed, conf->nr_nodes, page);

		CHECK(conf->max >= PAGES ? s->v[i].count == count && s->v[i].nr_owners == MIN(count, conf->nr_owners) :
					   s->v[i].count <= count);
		for (uint32_t k = 0; k < s->v[i].nr_owners; k++)
			CHECK(holds(seed, s->v[i].owners[k], page));
	}
}

/* One with another key, and nothing is decided. */
static void check_strangers_are_refused(const struct merge_conf *conf, uint32_t node, const struct popular_set *own)
{
	const struct mac_key key = { { node == conf->nr_nodes - 1 } };
	struct popular_set s;
	struct reduce_cost cost;

	if (conf->nr_nodes > 1)
		CHECK(reduce(conf, &key, own, &s, &cost) == -EBADMSG);
}

static void run(uint64_t seed, uint32_t nr_nodes, uint32_t node)
{
	uint32_t *hosts = calloc(nr_nodes, sizeof(*hosts));
	struct merge_conf conf = {
		.max = seed % 2 ? PAGES : 700, .nr_owners = (uint32_t)(seed % 3) + 1, .nr_nodes = nr_nodes, .hosts = hosts
	};
	static struct fp pages[PAGES];
	const struct mac_key key = { { (uint8_t)seed } };
	struct popular_set own, s;
	struct reduce_cost cost;
	size_t nr = 0;

	CHECK(hosts);
	for (uint32_t n = 0; n < nr_nodes; n++)
		hosts[n] = n;
	for (uint32_t page = 0; page < PAGES; page++)
		if (holds(seed, node, page))
			pages[nr++] = fp_of_page(page);
	CHECK(popular_of_node(&conf, node, pages, nr, &own) == 0);
	CHECK(reduce(&conf, &key, &own, &s, &cost) == 0);
	check_same_on_all(&s);
	check_result(&conf, seed, &s);
	if (node == 0)
		printf("seed %lu, %u ranks: %zu pages, %lu bytes per message, this rank merged %lu times\n",
		       (unsigned long)seed, nr_nodes, s.nr, (unsigned long)cost.message_bytes,
		       (unsigned long)cost.merges);
	check_strangers_are_refused(&conf, node, &own);
	popular_set_release(&own);
	popular_set_release(&s);
	free(hosts);
}

/* --- what it costs --- */

struct load {
	struct merge_conf conf;
	struct mac_key key;
	struct popular_set own;
	uint32_t node;
};

static void offer(struct load *c, uint32_t percent)
{
	size_t nr = MAX(c->conf.max / c->conf.nr_nodes, (size_t)1), nr_common = nr * percent / 100;
	struct fp *pages = calloc(nr, sizeof(*pages));

	CHECK(pages);
	for (size_t i = 0; i < nr; i++) {
		uint64_t n = mix((i < nr_common ? 0 : c->node + UINT64_C(1)) << 32 | i);

		pages[i] = (struct fp){ .lo = mix(n + 1), .hi = mix(n + 2) >> 8 };
	}
	CHECK(popular_of_node(&c->conf, c->node, pages, nr, &c->own) == 0);
	free(pages);
}

static void sum_up(const struct reduce_cost *cost, uint64_t ret[4])
{
	uint64_t here[2] = { cost->merges, cost->entries };

	MPI_Reduce(here, ret, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(here, ret + 2, 2, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Time on the processor, without MPI: of a merge of two sets for each entry that goes into it, and of a MAC for each
 * byte. */
static void measure_parts(const struct load *c, size_t bytes, double *merge_ns, double *mac_ns)
{
	struct popular_set sets[2], both;
	struct fp *pages = calloc(c->conf.max, sizeof(*pages));
	uint8_t *encoded = calloc(1, bytes), mac[MAC_LEN];
	uint64_t begun;

	CHECK(pages && encoded);
	for (uint32_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < c->conf.max; i++)
			pages[i] = (struct fp){ .lo = mix(i * 2 + k), .hi = mix(i * 2 + k + UINT64_C(1000000000)) >> 8 };
		CHECK(popular_of_node(&c->conf, k % c->conf.nr_nodes, pages, c->conf.max, &sets[k]) == 0);
	}
	begun = cpu_ns();
	CHECK(popular_merge(&c->conf, &sets[0], &sets[1], &both) == 0);
	*merge_ns = (double)(cpu_ns() - begun) / (double)(sets[0].nr + sets[1].nr);
	begun = cpu_ns();
	mac_compute(&c->key, encoded, bytes, mac);
	*mac_ns = (double)(cpu_ns() - begun) / (double)bytes;
	popular_set_release(&sets[0]);
	popular_set_release(&sets[1]);
	popular_set_release(&both);
	free(pages);
	free(encoded);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void measure(uint32_t nr_nodes, uint32_t node, size_t max, uint32_t percent, size_t times)
{
	uint32_t *hosts = calloc(nr_nodes, sizeof(*hosts));
	double *seconds = calloc(times, sizeof(*seconds)), merge_ns = 0, mac_ns = 0;
	struct load c = { .conf = { .max = max, .nr_owners = 2, .nr_nodes = nr_nodes, .hosts = hosts }, .node = node };
	struct reduce_cost cost;
	uint64_t sums[4];
	size_t nr = 0;

	CHECK(hosts && seconds);
	for (uint32_t n = 0; n < nr_nodes; n++)
		hosts[n] = n;
	offer(&c, percent);
	for (size_t i = 0; i < times; i++) {
		struct popular_set s;

		MPI_Barrier(MPI_COMM_WORLD);
		seconds[i] = MPI_Wtime();
		CHECK(reduce(&c.conf, &c.key, &c.own, &s, &cost) == 0);
		MPI_Barrier(MPI_COMM_WORLD);
		seconds[i] = MPI_Wtime() - seconds[i];
		nr = s.nr;
		popular_set_release(&s);
	}
	sum_up(&cost, sums);
	if (node == 0) {
		measure_parts(&c, cost.message_bytes, &merge_ns, &mac_ns);
		qsort(seconds, times, sizeof(*seconds), by_size);
		printf("{\"ranks\":%u,\"pages_each\":%zu,\"result\":%zu,\"message_bytes\":%lu,\"merges\":%lu,\"merges_of_one\":%lu,"
		       "\"entries\":%lu,\"entries_of_one\":%lu,\"seconds\":%.6f,\"merge_ns\":%.2f,\"seal_ns\":%.4f}\n",
		       nr_nodes, c.own.nr, nr, (unsigned long)cost.message_bytes, (unsigned long)sums[0],
		       (unsigned long)sums[2], (unsigned long)sums[1], (unsigned long)sums[3], seconds[times / 2],
		       merge_ns, mac_ns);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	popular_set_release(&c.own);
	free(seconds);
	free(hosts);
}

int main(int argc, char **argv)
{
	int nr, rank;

	CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
	MPI_Comm_size(MPI_COMM_WORLD, &nr);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (argc == 5 && strcmp(argv[1], "--measure") == 0) {
		CHECK(atoi(argv[2]) > 0 && atoi(argv[3]) >= 0 && atoi(argv[4]) > 0);
		measure((uint32_t)nr, (uint32_t)rank, (size_t)atoi(argv[2]), (uint32_t)atoi(argv[3]),
			(size_t)atoi(argv[4]));
		MPI_Finalize();
		return 0;
	}
	for (int i = 1; i < argc; i++)
		run((uint64_t)atoll(argv[i]), (uint32_t)nr, (uint32_t)rank);
	MPI_Finalize();
	return 0;
}
