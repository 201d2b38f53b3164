/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: mpirun -n N client DIR STEPS SEAL
 *
 * Ranks in a ring, each with a field in memory that libckptfs protects; what its neighbour sends comes by MPI straight
 * into such memory, too, and there is a table that is the same for all. Every few steps all take a checkpoint, and when
 * all have it the first rank of each node (those with the same DIR) seals it there with the program SEAL. Started again
 * they go on from the newest step that is sealed everywhere. Each node counts its checkpoints by itself; which step it
 * is the memory says.
 */
#include <errno.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ckptfs.h"

#define CELLS (3 * 65536) /* of a rank, and as many for its neighbour's: large messages go other ways than small ones */
#define EVERY 4

static int rank, nr_ranks, node_rank;
static MPI_Comm node;
static uint64_t step, *field, *from, *table;

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "client: rank %d: %s: %s\n", rank, what, ckptfs_strerror(r));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x7fb5d329728ea185);
	return x ^ x >> 27;
}

static void step_field(void)
{
	/* A part that is different each time, so that messages are small and large. */
	int len = (int)(step % 3 == 0 ? CELLS : 100 << step % 10);

	MPI_Sendrecv(field, len, MPI_UINT64_T, (rank + 1) % nr_ranks, 1, from, len, MPI_UINT64_T,
		     (rank + nr_ranks - 1) % nr_ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < CELLS; i++)
		field[i] = mix(field[i] + from[i] + table[i] + step);
}

static void checkpoint(const char *dir, const char *seal)
{
	struct ckptfs_status status = { .size = sizeof(status) };
	uint32_t least, most;

	check(ckptfs_checkpoint(), "checkpoint");
	check(ckptfs_wait(), "wait");
	check(ckptfs_status(&status), "status");
	MPI_Allreduce(&status.last, &least, 1, MPI_UINT32_T, MPI_MIN, node);
	MPI_Allreduce(&status.last, &most, 1, MPI_UINT32_T, MPI_MAX, node);
	check(least == most ? 0 : -EINVAL, "ranks have taken different checkpoints");
	MPI_Barrier(MPI_COMM_WORLD); /* all have it: now it may be sealed anywhere */
	if (node_rank == 0) {
		char command[8192];

		snprintf(command, sizeof(command), "'%s' '%s/%06" PRIu32 "' >/dev/null", seal, dir, status.last);
		check(system(command) == 0 ? 0 : -EIO, command);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Ranks with the same directory. */
static void find_node(const char *dir)
{
	uint32_t hash = 0;

	for (const char *c = dir; *c; c++)
		hash = hash * 31 + (uint8_t)*c;
	MPI_Comm_split(MPI_COMM_WORLD, (int)(hash & INT32_MAX), rank, &node);
	MPI_Comm_rank(node, &node_rank);
}

static void make_memory(void)
{
	field = ckptfs_malloc("field", CELLS * sizeof(*field));
	from = ckptfs_malloc("from", CELLS * sizeof(*from));
	table = ckptfs_malloc("table", CELLS * sizeof(*table));
	check(field && from && table ? 0 : -errno, "malloc");
	check(ckptfs_protect("step", &step, sizeof(step)), "protect");
}

static void fill_memory(void)
{
	step = 0;
	for (int i = 0; i < CELLS; i++) {
		field[i] = mix((uint64_t)(rank * CELLS + i));
		from[i] = 0;
		table[i] = mix((uint64_t)i);
	}
}

/* A node may have sealed one more than others when it was killed: then that is not of all. */
static void go_back_to(uint64_t least, uint32_t number)
{
	int r = 0;

	while (step > least && number > 0 && r == 0) {
		r = ckptfs_restart(--number, 0, NULL);
		r = r == -ENOENT ? 0 : r; /* not sealed */
	}
	check(r, "restart");
}

static void go_on(void)
{
	uint64_t mine, least, most;
	uint32_t number = 0;
	int r = ckptfs_restart(0, 0, &number);

	check(r == -ENOENT ? 0 : r, "restart");
	mine = r == 0 ? step : 0;
	/* and no rank takes one before all have looked */
	MPI_Allreduce(&mine, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
	if (least == 0) {
		fill_memory();
		return;
	}
	go_back_to(least, number);
	MPI_Allreduce(&step, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
	check(step == least && most == least ? 0 : -EINVAL, "ranks go on from different steps");
	if (rank == 0)
		printf("restarted from step %" PRIu64 "\n", step), fflush(stdout);
}

int main(int argc, char **argv)
{
	struct ckptfs_options options = { .size = sizeof(options), .flags = CKPTFS_SEALED };
	uint64_t steps = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, begin, sum = 0, total;
	char member[32];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	find_node(argv[1]);
	snprintf(member, sizeof(member), "rank%d", rank);
	options.member = member;
	check(ckptfs_init(argv[1], &options), "init");
	make_memory();
	go_on();
	for (begin = step; step < steps; step++) {
		if (step % EVERY == 0 && step > begin)
			checkpoint(argv[1], argv[3]);
		step_field();
	}
	for (int i = 0; i < CELLS; i++)
		sum = mix(sum + field[i]);
	MPI_Reduce(&sum, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("result %016" PRIx64 "\n", total);
	check(ckptfs_finish(), "finish");
	MPI_Finalize();
	return 0;
}
