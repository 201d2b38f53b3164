/*
 * Usage: mpirun -n N reduce [SEED...]
 *
 * The reduction over MPI: all ranks get the same, and it is what looking at all pages at once says of it.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/util.h"
#include "mpi-agent/reduce.h"
#include "mpi-agent/seal.h"

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

/* Some are popular, some are not; everybody can tell who has what. */
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
	const struct seal_key key = { { node == conf->nr_nodes - 1 } };
	struct popular_set s;
	struct reduce_cost cost;

	if (conf->nr_nodes > 1)
		CHECK(popular_reduce(MPI_COMM_WORLD, conf, &key, own, &s, &cost) == -EBADMSG);
}

static void run(uint64_t seed, uint32_t nr_nodes, uint32_t node)
{
	uint32_t *hosts = calloc(nr_nodes, sizeof(*hosts));
	struct merge_conf conf = {
		.max = seed % 2 ? PAGES : 700, .nr_owners = (uint32_t)(seed % 3) + 1, .nr_nodes = nr_nodes, .hosts = hosts
	};
	static struct fp pages[PAGES];
	const struct seal_key key = { { (uint8_t)seed } };
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
	CHECK(popular_reduce(MPI_COMM_WORLD, &conf, &key, &own, &s, &cost) == 0);
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

int main(int argc, char **argv)
{
	int nr, rank;

	CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
	MPI_Comm_size(MPI_COMM_WORLD, &nr);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i < argc; i++)
		run((uint64_t)atoll(argv[i]), (uint32_t)nr, (uint32_t)rank);
	MPI_Finalize();
	return 0;
}
