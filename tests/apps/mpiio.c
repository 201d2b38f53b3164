/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * MPI-IO by all ranks into one file: collective interleaved writes, independent writes of own blocks, a shared file
 * pointer; each rank then reads what its neighbour wrote. mpiio FILE [--read-only]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 10007 /* doubles; deliberately odd */
#define ROUNDS 12
#define RECORD 1000
#define RECORDS 20

static int rank, nr;

static void check(int r, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	if (r == MPI_SUCCESS)
		return;
	MPI_Error_string(r, text, &len);
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}
#define DO(expr) check((expr), #expr)

static double value(int owner, int round, int i)
{
	return owner * 1e6 + round * 1e3 + i * 0.5;
}

static void expect(const double *p, int owner, int round)
{
	for (int i = 0; i < BLOCK; i++) {
		if (p[i] == value(owner, round, i))
			continue;
		fprintf(stderr, "rank %d: block of rank %d, round %d, item %d: %g\n", rank, owner, round, i, p[i]);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static MPI_Offset offset(int owner, int round)
{
	return (MPI_Offset)(round * nr + owner) * BLOCK * sizeof(double);
}

static void write_blocks(MPI_File f)
{
	double *p = malloc(BLOCK * sizeof(*p));

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < BLOCK; i++)
			p[i] = value(rank, round, i);
		if (round % 2)
			DO(MPI_File_write_at_all(f, offset(rank, round), p, BLOCK, MPI_DOUBLE, MPI_STATUS_IGNORE));
		else
			DO(MPI_File_write_at(f, offset(rank, round), p, BLOCK, MPI_DOUBLE, MPI_STATUS_IGNORE));
	}
	DO(MPI_File_sync(f));
	free(p);
}

static void read_blocks(MPI_File f)
{
	double *p = malloc(BLOCK * sizeof(*p));
	int other = (rank + 1) % nr;

	for (int round = 0; round < ROUNDS; round++) {
		DO(MPI_File_read_at_all(f, offset(other, round), p, BLOCK, MPI_DOUBLE, MPI_STATUS_IGNORE));
		expect(p, other, round);
	}
	free(p);
}

/* Records of all ranks behind each other in any order, none lost, none torn. */
static void shared_pointer(const char *path)
{
	char name[4096], rec[RECORD];
	MPI_Offset size;
	MPI_File f;
	int *seen = calloc(nr, sizeof(*seen));

	snprintf(name, sizeof(name), "%s.log", path);
	DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f));
	memset(rec, 'a' + rank, sizeof(rec));
	for (int i = 0; i < RECORDS; i++)
		DO(MPI_File_write_shared(f, rec, RECORD, MPI_CHAR, MPI_STATUS_IGNORE));
	DO(MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	DO(MPI_File_get_size(f, &size));
	for (MPI_Offset off = 0; off < size; off += RECORD) {
		DO(MPI_File_read_at(f, off, rec, RECORD, MPI_CHAR, MPI_STATUS_IGNORE));
		for (int i = 1; i < RECORD; i++)
			if (rec[i] != rec[0])
				check(MPI_ERR_IO, "a record is torn");
		if (rec[0] < 'a' || rec[0] >= 'a' + nr)
			check(MPI_ERR_IO, "a record is nobody's");
		seen[rec[0] - 'a']++;
	}
	for (int i = 0; i < nr; i++)
		if (seen[i] != RECORDS)
			check(MPI_ERR_IO, "a record is lost");
	DO(MPI_File_close(&f));
	free(seen);
}

int main(int argc, char **argv)
{
	MPI_File f;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr);
	if (argc < 2)
		return 2;
	DO(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f));
	if (argc == 2)
		write_blocks(f);
	MPI_Barrier(MPI_COMM_WORLD);
	read_blocks(f);
	DO(MPI_File_close(&f));
	if (argc == 2)
		shared_pointer(argv[1]);
	MPI_Finalize();
	return 0;
}
