/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * kernels NAME MIB DIR: programs to take images of, in the spirit of the NAS Parallel Benchmarks. They go on until they
 * are ended; DIR/RANK says that a process has done its first round.
 *
 *	base	the sum of a series that comes to pi: no memory to speak of
 *	cg	conjugate gradients on a sparse matrix, rows divided among processes, the vectors with everybody
 *	ep	Gaussian deviates, counted in rings: embarrassingly parallel
 *	is	keys sorted into buckets, each process the owner of some
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PER_ROW 15

static int rank, nr_ranks;
static uint64_t state;

static double uniform(void)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (double)(state >> 11) / 9007199254740992.0;
}

static void *get(size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

static void done(const char *dir, int round)
{
	char path[4096];
	FILE *f;

	usleep(20000); /* others have processors to share */
	if (round > 0)
		return;
	snprintf(path, sizeof(path), "%s/%d", dir, rank);
	f = fopen(path, "w");
	if (!f)
		MPI_Abort(MPI_COMM_WORLD, 1);
	fclose(f);
}

static void base(const char *dir)
{
	double sum = 0, all;

	for (int round = 0;; round++) {
		for (int i = 0; i < 100000; i++) {
			double k = (double)round * 100000 * nr_ranks + (double)i * nr_ranks + rank;

			sum += (fmod(k, 2) == 0 ? 4 : -4) / (2 * k + 1);
		}
		MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		done(dir, round);
	}
}

/* A row: 1 on the diagonal and PER_ROW - 1 small others. */
static void cg(const char *dir, size_t mib)
{
	size_t rows = mib * 1048576 / (PER_ROW * 12) / 64 * 64, all = rows * (size_t)nr_ranks;
	double *value = get(rows * PER_ROW * sizeof(*value)), *x = get(all * sizeof(*x)), *p = get(all * sizeof(*p));
	double *r = get(rows * sizeof(*r)), *q = get(rows * sizeof(*q)), *own = get(rows * sizeof(*own));
	int *column = get(rows * PER_ROW * sizeof(*column));

	for (size_t i = 0; i < rows * PER_ROW; i++) {
		column[i] = i % PER_ROW == 0 ? (int)((size_t)rank * rows + i / PER_ROW) : (int)(uniform() * (double)all);
		value[i] = i % PER_ROW == 0 ? 1 : 0.01 * uniform();
	}
	for (int round = 0;; round++) {
		double rho = 0, rho_all, pq = 0, pq_all;

		if (round % 20 == 0) {
			memset(x, 0, all * sizeof(*x));
			for (size_t i = 0; i < all; i++)
				p[i] = 1;
			for (size_t i = 0; i < rows; i++)
				r[i] = 1;
		}
		for (size_t i = 0; i < rows; i++) {
			q[i] = 0;
			for (size_t k = i * PER_ROW; k < (i + 1) * PER_ROW; k++)
				q[i] += value[k] * p[column[k]];
			rho += r[i] * r[i];
			pq += q[i] * p[(size_t)rank * rows + i];
		}
		MPI_Allreduce(&rho, &rho_all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		MPI_Allreduce(&pq, &pq_all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (size_t i = 0; i < all; i++)
			x[i] += rho_all / pq_all * p[i];
		for (size_t i = 0; i < rows; i++) {
			r[i] -= rho_all / pq_all * q[i];
			own[i] = r[i] + 0.5 * p[(size_t)rank * rows + i];
		}
		MPI_Allgather(own, (int)rows, MPI_DOUBLE, p, (int)rows, MPI_DOUBLE, MPI_COMM_WORLD);
		done(dir, round);
	}
}

static void ep(const char *dir)
{
	double ring[10] = { 0 }, all[10];

	for (int round = 0;; round++) {
		for (int i = 0; i < 100000; i++) {
			double u = 2 * uniform() - 1, v = 2 * uniform() - 1, t = u * u + v * v;
			double f = t <= 1 && t > 0 ? sqrt(-2 * log(t) / t) : 0;

			ring[(int)fmin(9, fmax(fabs(u * f), fabs(v * f)))]++;
		}
		MPI_Allreduce(ring, all, 10, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		done(dir, round);
	}
}

/* A round changes two keys, as those of the original do, and ranks all of them. */
static void is(const char *dir, size_t mib)
{
	size_t nr = mib * 1048576 / 16, at = 0;
	uint32_t *key = get(nr * sizeof(*key)), *sorted = get(nr * sizeof(*sorted)), *got = get(2 * nr * sizeof(*got));
	int *count = get((size_t)nr_ranks * sizeof(int)), *first = get((size_t)nr_ranks * sizeof(int));
	int *count_in = get((size_t)nr_ranks * sizeof(int)), *first_in = get((size_t)nr_ranks * sizeof(int));

	for (size_t i = 0; i < nr; i++)
		key[i] = (uint32_t)((uniform() + uniform() + uniform() + uniform()) / 4 * 524288);
	for (int round = 0;; round++) {
		key[at] = (uint32_t)round % 524288;
		at = (at + 1) % nr;
		memset(count, 0, (size_t)nr_ranks * sizeof(int));
		for (size_t i = 0; i < nr; i++)
			count[key[i] * (uint64_t)nr_ranks / 524288]++;
		first[0] = first_in[0] = 0;
		for (int i = 1; i < nr_ranks; i++)
			first[i] = first[i - 1] + count[i - 1];
		for (size_t i = 0; i < nr; i++)
			sorted[first[key[i] * (uint64_t)nr_ranks / 524288]++] = key[i];
		for (int i = 0; i < nr_ranks; i++)
			first[i] -= count[i];
		MPI_Alltoall(count, 1, MPI_INT, count_in, 1, MPI_INT, MPI_COMM_WORLD);
		for (int i = 1; i < nr_ranks; i++)
			first_in[i] = first_in[i - 1] + count_in[i - 1];
		if ((size_t)first_in[nr_ranks - 1] + (size_t)count_in[nr_ranks - 1] > 2 * nr)
			MPI_Abort(MPI_COMM_WORLD, 1); /* the middle is fuller than that with many processes */
		MPI_Alltoallv(sorted, count, first, MPI_UINT32_T, got, count_in, first_in, MPI_UINT32_T, MPI_COMM_WORLD);
		done(dir, round);
	}
}

int main(int argc, char *argv[])
{
	size_t mib = argc == 4 ? (size_t)atoi(argv[2]) : 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	state = (uint64_t)rank + 1;
	if (mib > 0 && strcmp(argv[1], "base") == 0)
		base(argv[3]);
	if (mib > 0 && strcmp(argv[1], "cg") == 0)
		cg(argv[3], mib);
	if (mib > 0 && strcmp(argv[1], "ep") == 0)
		ep(argv[3]);
	if (mib > 0 && strcmp(argv[1], "is") == 0)
		is(argv[3], mib);
	fprintf(stderr, "usage: kernels base|cg|ep|is MIB DIR\n");
	MPI_Finalize();
	return 1;
}
