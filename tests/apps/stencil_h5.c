/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: mpirun -n N stencil_h5 DIR [EDGE [CHECKPOINTS [STEPS-BETWEEN]]]
 *
 * Air in a box, as a code would compute it that writes HDF5: a warm bubble rises, waves of pressure run through,
 * moisture is carried along. Each rank has a column of EDGE x EDGE x EDGE cells of a square of ranks, exchanges its
 * sides with its neighbours, and writes DIR/ckpt.rankRANK.stepSTEP.h5 with eight variables: pressure, temperature,
 * energy (double), east, north, up (float), material (int), parcel (64-bit int). Neighbours in place are neighbours in
 * value, ranks have the same variables of other places, and steps differ little: what data-aware storage is for.
 */
#define H5_USE_18_API 1
#include <hdf5.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum field { PRESSURE, TEMPERATURE, EAST, NORTH, UP, MOISTURE, NR_FIELDS };

static int edge = 32, nr_checkpoints = 8, between = 10;
static int rank, nr_ranks, width; /* of the square, in ranks */
static int my_x, my_y;
static double *now[NR_FIELDS], *next[NR_FIELDS]; /* [edge][edge + 2][edge + 2]: level, north, east, with a frame */
static int64_t *parcel;

static size_t at(int level, int y, int x)
{
	return ((size_t)level * (size_t)(edge + 2) + (size_t)(y + 1)) * (size_t)(edge + 2) + (size_t)(x + 1);
}

static void check(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "stencil_h5: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Turbulence that is the same wherever the ranks are. */
static double turbulence(int level, int y, int x)
{
	uint64_t n = ((uint64_t)level << 40 ^ (uint64_t)y << 20 ^ (uint64_t)x) * 0x9e3779b97f4a7c15;

	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	return (double)(n >> 11) / 9007199254740992.0 - 0.5;
}

static void start(void)
{
	size_t nr = (size_t)edge * (size_t)(edge + 2) * (size_t)(edge + 2);

	for (int f = 0; f < NR_FIELDS; f++) {
		now[f] = calloc(nr, sizeof(double));
		next[f] = calloc(nr, sizeof(double));
		check(now[f] && next[f], "no memory");
	}
	parcel = calloc((size_t)edge * (size_t)edge * (size_t)edge, sizeof(*parcel));
	check(parcel != NULL, "no memory");
	for (int l = 0; l < edge; l++)
		for (int y = 0; y < edge; y++)
			for (int x = 0; x < edge; x++) {
				int gx = my_x * edge + x, gy = my_y * edge + y;
				double side = (double)(width * edge), height = (double)l / edge;
				double dx = gx / side - 0.4, dy = gy / side - 0.5, dz = height - 0.3;
				double bubble = exp(-40 * (dx * dx + dy * dy + dz * dz));
				size_t i = at(l, y, x);

				now[PRESSURE][i] = 101325 * exp(-height) + 50 * bubble;
				now[TEMPERATURE][i] = 300 - 20 * height + 5 * bubble + 0.01 * turbulence(l, gy, gx);
				now[EAST][i] = 5 + 2 * sin(6.28 * dy) + 0.001 * turbulence(l + 1000, gy, gx);
				now[NORTH][i] = 1 + sin(6.28 * dx);
				now[UP][i] = bubble;
				now[MOISTURE][i] = dz < 0.2 ? 0.012 * exp(-4 * height) : 0;
				parcel[((size_t)l * (size_t)edge + (size_t)y) * (size_t)edge + (size_t)x] =
					((int64_t)l * width * edge + gy) * width * edge + gx;
			}
}

/* The frame of every field, from the four neighbours; the box is closed to a ring. */
static void exchange(void)
{
	int west = my_y * width + (my_x + width - 1) % width, east = my_y * width + (my_x + 1) % width;
	int south = (my_y + width - 1) % width * width + my_x, north = (my_y + 1) % width * width + my_x;
	MPI_Datatype column, row;

	MPI_Type_vector(edge * (edge + 2), 1, edge + 2, MPI_DOUBLE, &column);
	MPI_Type_vector(edge, edge + 2, (edge + 2) * (edge + 2), MPI_DOUBLE, &row);
	MPI_Type_commit(&column);
	MPI_Type_commit(&row);
	for (int f = 0; f < NR_FIELDS; f++) {
		double *p = now[f];

		MPI_Sendrecv(p + 1, 1, column, west, f, p + edge + 1, 1, column, east, f, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		MPI_Sendrecv(p + edge, 1, column, east, f, p, 1, column, west, f, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(p + edge + 2, 1, row, south, f, p + (edge + 1) * (edge + 2), 1, row, north, f,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(p + edge * (edge + 2), 1, row, north, f, p, 1, row, south, f, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
	}
	MPI_Type_free(&column);
	MPI_Type_free(&row);
}

static void compute(void)
{
	const double dt = 0.02, diffusion = 0.05;
	int line = edge + 2, plane = line * line;

	for (int l = 0; l < edge; l++)
		for (int y = 0; y < edge; y++)
			for (int x = 0; x < edge; x++) {
				size_t i = at(l, y, x), below = l > 0 ? i - (size_t)plane : i,
				       above = l < edge - 1 ? i + (size_t)plane : i;
				double u = now[EAST][i], v = now[NORTH][i], w = now[UP][i];

				for (int f = 0; f < NR_FIELDS; f++) {
					const double *p = now[f];
					double spread = p[i - 1] + p[i + 1] + p[i - (size_t)line] +
							p[i + (size_t)line] - 4 * p[i];
					double carried = u * (p[i + 1] - p[i - 1]) +
							 v * (p[i + (size_t)line] - p[i - (size_t)line]) +
							 w * (p[above] - p[below]);

					next[f][i] = p[i] + dt * (diffusion * spread - 0.5 * carried);
				}
				next[EAST][i] -= dt * 1e-3 * (now[PRESSURE][i + 1] - now[PRESSURE][i - 1]);
				next[NORTH][i] -=
					dt * 1e-3 * (now[PRESSURE][i + (size_t)line] - now[PRESSURE][i - (size_t)line]);
				next[UP][i] += dt * 1e-2 * (now[TEMPERATURE][i] - 290);
				next[PRESSURE][i] -= dt * 20 *
						     (now[EAST][i + 1] - now[EAST][i - 1] +
						      now[NORTH][i + (size_t)line] - now[NORTH][i - (size_t)line]);
			}
	for (int f = 0; f < NR_FIELDS; f++) {
		double *p = now[f];

		now[f] = next[f];
		next[f] = p;
	}
}

static void write_variable(hid_t group, const char *name, hid_t file_type, hid_t type, const void *p)
{
	hsize_t dims[3] = { (hsize_t)edge, (hsize_t)edge, (hsize_t)edge };
	hid_t space = H5Screate_simple(3, dims, NULL);
	hid_t set = H5Dcreate2(group, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

	check(set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, p) >= 0, name);
	H5Dclose(set);
	H5Sclose(space);
}

/* What is saved of a cell, by variable. */
static double value(int variable, size_t i)
{
	switch (variable) {
	case 0:
		return now[PRESSURE][i];
	case 1:
		return now[TEMPERATURE][i];
	case 2:
		return 718 * now[TEMPERATURE][i] +
		       0.5 * (now[EAST][i] * now[EAST][i] + now[NORTH][i] * now[NORTH][i] + now[UP][i] * now[UP][i]);
	case 3:
		return now[EAST][i];
	case 4:
		return now[NORTH][i];
	case 5:
		return now[UP][i];
	default:
		return now[MOISTURE][i] > 0.008 ? 2 : now[MOISTURE][i] > 0.001 ? 1 : 0;
	}
}

static void save(const char *dir, int step)
{
	static const char *const names[] = { "pressure", "temperature", "energy", "east", "north", "up", "material" };
	size_t nr = (size_t)edge * (size_t)edge * (size_t)edge, k;
	double *p = malloc(nr * sizeof(*p));
	char path[4096];
	hid_t file, group;

	check(p != NULL, "no memory");
	snprintf(path, sizeof(path), "%s/ckpt.rank%04d.step%04d.h5", dir, rank, step);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	check(file >= 0, path);
	group = H5Gcreate2(file, "air", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	for (int v = 0; v < 7; v++) {
		k = 0;
		for (int l = 0; l < edge; l++)
			for (int y = 0; y < edge; y++)
				for (int x = 0; x < edge; x++)
					p[k++] = value(v, at(l, y, x));
		write_variable(group, names[v],
			       v < 3 ? H5T_IEEE_F64LE :
			       v < 6 ? H5T_IEEE_F32LE :
				       H5T_STD_I32LE,
			       H5T_NATIVE_DOUBLE, p);
	}
	write_variable(group, "parcel", H5T_STD_I64LE, H5T_NATIVE_INT64, parcel);
	H5Gclose(group);
	check(H5Fclose(file) >= 0, path);
	free(p);
}

int main(int argc, char *argv[])
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	width = (int)lround(sqrt(nr_ranks));
	check(argc >= 2 && argc <= 5 && width * width == nr_ranks,
	      "usage: mpirun -n SQUARE stencil_h5 DIR [EDGE [CHECKPOINTS [STEPS-BETWEEN]]]");
	edge = argc > 2 ? atoi(argv[2]) : edge;
	nr_checkpoints = argc > 3 ? atoi(argv[3]) : nr_checkpoints;
	between = argc > 4 ? atoi(argv[4]) : between;
	check(edge >= 4 && edge <= 256 && nr_checkpoints > 0 && between > 0, "4 <= EDGE <= 256");
	my_x = rank % width;
	my_y = rank / width;
	start();
	for (int step = 1; step <= nr_checkpoints * between; step++) {
		exchange();
		compute();
		if (step % between == 0)
			save(argv[1], step);
	}
	for (int f = 0; f < NR_FIELDS; f++) {
		free(now[f]);
		free(next[f]);
	}
	free(parcel);
	MPI_Finalize();
	return 0;
}
