/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * rounds FILE MIB ROUNDS: an MPI program to take images of, whose result depends on every round of every process. Each
 * has memory of its own; in a round it gets a number from its neighbour, fills a page from it and adds up with all.
 * FILE has the last round, FILE.result in the end what came out: it is the same however often the job was interrupted
 * and went on from its images.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS 512u /* of a page */

static uint64_t mix(uint64_t n)
{
	n = (n ^ n >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	return n ^ n >> 29;
}

static void report(const char *path, const char *suffix, unsigned long long n)
{
	char to[4096];
	FILE *f;

	snprintf(to, sizeof(to), "%s%s", path, suffix);
	f = fopen(to, "w");
	if (!f || fprintf(f, "%llu\n", n) < 0 || fclose(f) != 0)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What `nr` pages come to after all rounds, in all processes. */
static uint64_t work(const char *path, uint64_t *memory, size_t nr, unsigned rounds, int rank, int nr_ranks)
{
	uint64_t number = mix((uint64_t)rank + 1), got, sum, all = 0;

	for (size_t i = 0; i < nr * WORDS; i++)
		memory[i] = mix(number + i);
	for (unsigned n = 0; n < rounds; n++) {
		MPI_Sendrecv(&number, 1, MPI_UINT64_T, (rank + 1) % nr_ranks, 0, &got, 1, MPI_UINT64_T,
			     (rank + nr_ranks - 1) % nr_ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < WORDS; i++)
			memory[n % nr * WORDS + i] = mix(got + i);
		MPI_Allreduce(&got, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
		number = mix(got ^ sum);
		if (rank == 0)
			report(path, "", n + 1);
		usleep(20000);
	}
	for (size_t i = 0; i < nr * WORDS; i++)
		number = mix(number ^ memory[i]);
	MPI_Reduce(&number, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
	return all;
}

int main(int argc, char *argv[])
{
	int rank, nr_ranks;
	uint64_t *memory, result;
	size_t nr;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	nr = argc == 4 ? (size_t)atoi(argv[2]) * 256 : 0;
	memory = nr > 0 ? malloc(nr * WORDS * sizeof(*memory)) : NULL;
	if (!memory)
		MPI_Abort(MPI_COMM_WORLD, 1);
	result = work(argv[1], memory, nr, (unsigned)atoi(argv[3]), rank, nr_ranks);
	if (rank == 0)
		report(argv[1], ".result", (unsigned long long)result);
	free(memory);
	MPI_Finalize();
}
