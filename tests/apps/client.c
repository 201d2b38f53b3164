/*
 * Usage: mpirun -n N client DIR STEPS SEAL
 *
 * Ranks in a ring, each with a field in memory that libckptfs protects; what its neighbour sends comes by MPI straight into such memory, too. Every
 * few steps all take a checkpoint, and when all have it rank 0 seals it with the program SEAL. Started again they go on from the newest that
 * is sealed.
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

static int rank, nr_ranks;

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

static void step_field(uint64_t *field, uint64_t *from, uint64_t step)
{
	/* A part that is different each time, so that messages are small and large. */
	int len = (int)(step % 3 == 0 ? CELLS : 100 << step % 10);

	MPI_Sendrecv(field, len, MPI_UINT64_T, (rank + 1) % nr_ranks, 1, from, len, MPI_UINT64_T, (rank + nr_ranks - 1) % nr_ranks, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < CELLS; i++)
		field[i] = mix(field[i] + from[i] + step);
}

static void checkpoint(const char *dir, const char *seal)
{
	struct ckptfs_status status = { .size = sizeof(status) };
	uint32_t least, most;

	check(ckptfs_checkpoint(), "checkpoint");
	check(ckptfs_wait(), "wait");
	check(ckptfs_status(&status), "status");
	MPI_Allreduce(&status.last, &least, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD);
	MPI_Allreduce(&status.last, &most, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
	check(least == most ? 0 : -EINVAL, "ranks have taken different checkpoints");
	if (rank == 0) {
		char command[8192];

		snprintf(command, sizeof(command), "'%s' '%s/%06" PRIu32 "' >/dev/null", seal, dir, status.last);
		check(system(command) == 0 ? 0 : -EIO, command);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	struct ckptfs_options options = { .size = sizeof(options), .flags = CKPTFS_SEALED };
	uint64_t steps = argc == 4 ? strtoull(argv[2], NULL, 10) : 0, step = 0, sum = 0, total, *field, *from;
	uint32_t number = 0, least, most;
	char member[32];
	int r;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	snprintf(member, sizeof(member), "rank%d", rank);
	options.member = member;
	check(ckptfs_init(argv[1], &options), "init");
	field = ckptfs_malloc("field", CELLS * sizeof(*field));
	from = ckptfs_malloc("from", CELLS * sizeof(*from));
	check(field && from ? 0 : -errno, "malloc");
	check(ckptfs_protect("step", &step, sizeof(step)), "protect");
	for (int i = 0; i < CELLS; i++)
		field[i] = mix((uint64_t)(rank * CELLS + i));
	r = ckptfs_restart(0, 0, &number);
	check(r == -ENOENT ? 0 : r, "restart");
	MPI_Allreduce(&number, &least, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD); /* and nobody takes one before all have looked */
	MPI_Allreduce(&number, &most, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
	check(least == most ? 0 : -EINVAL, "ranks go on from different checkpoints");
	if (rank == 0 && number > 0)
		printf("restarted from %06" PRIu32 "\n", number), fflush(stdout);
	for (; step < steps; step++) {
		if (step % EVERY == 0 && step > 0)
			checkpoint(argv[1], argv[3]);
		step_field(field, from, step);
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
