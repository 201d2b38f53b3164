/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: mpirun -n N stencil --dir DIR [OPTION...]
 *
 * A weather model in miniature, in the manner of CM1: a domain of columns, split into square tiles over the ranks, in
 * which a disturbance spreads from one place. Where it has not been yet the air differs from level to level and from
 * nowhere to nowhere, so that pages of most tiles are equal; and each rank has the same tables, and saves them, as such
 * programs do.
 *
 * The result does not depend on the number of ranks, to the last bit: a cell is computed of its neighbours alone, by
 * the same operations in the same order (so it is compiled with -ffp-contract=off). Quiet air stays as it is, to the
 * last bit, too.
 *
 * A checkpoint is a file of each rank, DIR/ckpt.STEP.RANK: a page of header, the tables, and for each of its tiles a
 * page that says which one it is and its fields. A rank that finds a tile in its DIR when restarting reads it for all, so
 * any number of ranks can go on from it, and a checkpoint of which a tile is nowhere is none: the last one before it is
 * taken.
 *
 * With --memory, on libckptfs (LD_PRELOAD=libckptfs.so.0), checkpoints are left to that: tiles and tables are its
 * regions, DIR/NNNNNN/RANK its files. Then it says how long its steps took, and does not restart: ./bench client.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/ckptfs.h"

#pragma weak ckptfs_init
#pragma weak ckptfs_malloc
#pragma weak ckptfs_checkpoint
#pragma weak ckptfs_finish
#pragma weak ckptfs_strerror

#define PAGE 4096
#define MAGIC UINT64_C(0x314c49434e455453)
#define DIRS_MAX 64
#define STEPS_MAX 64 /* checkpoints that are looked at when restarting */
#define PRESSURES 256
#define VAPOURS 64
#define ENTRIES (PRESSURES * VAPOURS) /* of the table of a level */
#define COURANT 0.05

enum field { PRESSURE, EAST, NORTH, VAPOUR, NR_FIELDS };
enum side { WEST, EAST_SIDE, SOUTH, NORTH_SIDE, NR_SIDES };

struct conf {
	const char *dirs[DIRS_MAX]; /* the first is written to, all are looked at when restarting */
	int nr_dirs;
	int width, height; /* tiles */
	int edge, levels; /* of a tile: cells */
	int steps, every, hold;
	bool restart, memory;
};

struct tile {
	int number;
	double *now, *next; /* [field][level][edge + 2][edge + 2], with a frame of the neighbours' cells */
};

/* A page in front of each file (number: how many tiles), and of each tile in it. */
struct header {
	uint64_t magic;
	int32_t step, number, width, height, edge, levels;
};

static struct conf conf = { .width = 4, .height = 4, .edge = 64, .levels = 8, .steps = 40, .every = 10, .hold = -1 };
static int rank, nr_ranks;
static struct tile *tiles; /* of this rank: from first_tile(rank) on */
static int nr_tiles;
static double *tables; /* [level][PRESSURES][VAPOURS]: the part of it that rains down in a step */

static void die(const char *what, const char *path)
{
	fprintf(stderr, "stencil: rank %d: %s %s: %s\n", rank, what, path, strerror(errno));
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void *allocate(size_t nr, size_t size)
{
	void *p = calloc(nr, size);

	if (!p)
		die("allocate", "memory");
	return p;
}

/* --- with libckptfs --- */

static void check_memory(int r, const char *what)
{
	if (r >= 0)
		return;
	errno = -r;
	die(what, ckptfs_strerror(r));
}

/* All count from the same number: no rank takes one before all are there. */
static void start_memory(void)
{
	char member[32];
	struct ckptfs_options options = { .size = sizeof(options), .member = member };

	if (!ckptfs_init) {
		errno = ENOSYS;
		die("--memory:", "not on libckptfs");
	}
	snprintf(member, sizeof(member), "%04d", rank);
	check_memory(ckptfs_init(conf.dirs[0], &options), "checkpoints");
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Doubles of which there are checkpoints. */
static double *allocate_saved(size_t nr, const char *what, int number)
{
	char name[64];
	double *p;

	if (!conf.memory)
		return allocate(nr, sizeof(*p));
	snprintf(name, sizeof(name), "%s %d", what, number);
	p = ckptfs_malloc(name, nr * sizeof(*p));
	if (!p)
		die("allocate", name);
	return p;
}

static void free_saved(double *p)
{
	if (!conf.memory)
		free(p);
}

/* --- which rank has what --- */

static int nr_all(void)
{
	return conf.width * conf.height;
}

static int first_tile(int of)
{
	return (int)((int64_t)of * nr_all() / nr_ranks);
}

static int owner(int tile)
{
	int of = (int)(((int64_t)tile * nr_ranks) / nr_all());

	while (first_tile(of + 1) <= tile)
		of++;
	return of;
}

static int neighbour(int tile, enum side side)
{
	int x = tile % conf.width, y = tile / conf.width;

	x = (x + conf.width + (side == EAST_SIDE) - (side == WEST)) % conf.width;
	y = (y + conf.height + (side == NORTH_SIDE) - (side == SOUTH)) % conf.height;
	return y * conf.width + x;
}

static size_t at(int field, int level, int y, int x)
{
	size_t edge = (size_t)conf.edge + 2;

	return (((size_t)field * (size_t)conf.levels + (size_t)level) * edge + (size_t)(y + 1)) * edge + (size_t)(x + 1);
}

static size_t tile_len(void)
{
	return at(NR_FIELDS, 0, -1, -1);
}

/* --- the air at the beginning --- */

static double quiet(int field, int level)
{
	switch (field) {
	case PRESSURE:
		return 1.0 - 0.9 * level / conf.levels;
	case EAST:
		return 0.01 * (level + 1);
	case VAPOUR:
		return 0.5 / (level + 1);
	default:
		return 0;
	}
}

/* A hill of pressure and moisture in the middle, of finite width. */
static double disturbance(int field, int x, int y)
{
	double dx = x - conf.width * conf.edge / 2, dy = y - conf.height * conf.edge / 2,
	       r = (dx * dx + dy * dy) / (conf.edge * conf.edge / 16.0);

	if (r >= 1 || (field != PRESSURE && field != VAPOUR))
		return 0;
	return 0.3 * (1 - r) * (1 - r);
}

static void fill(struct tile *t)
{
	int x0 = t->number % conf.width * conf.edge, y0 = t->number / conf.width * conf.edge;

	for (int f = 0; f < NR_FIELDS; f++)
		for (int k = 0; k < conf.levels; k++)
			for (int y = 0; y < conf.edge; y++)
				for (int x = 0; x < conf.edge; x++)
					t->now[at(f, k, y, x)] = quiet(f, k) + disturbance(f, x0 + x, y0 + y);
}

static void make_tables(void)
{
	tables = allocate_saved((size_t)conf.levels * ENTRIES, "tables", 0);
	for (int k = 0; k < conf.levels; k++)
		for (int i = 0; i < ENTRIES; i++) {
			double p = (double)(i / VAPOURS) / PRESSURES, q = (double)(i % VAPOURS) / VAPOURS,
			       excess = q * (k + 1) - 0.3 - 0.1 * p;

			/* Quiet air is never that moist; the rest tells entries from each other. */
			tables[k * ENTRIES + i] = excess > 0 ? 0.1 * excess / (excess + 1) : -1e-9 * (i + 1) / (k + 1);
		}
}

static void make_tiles(void)
{
	nr_tiles = first_tile(rank + 1) - first_tile(rank);
	tiles = allocate((size_t)nr_tiles + 1, sizeof(*tiles));
	for (int i = 0; i < nr_tiles; i++) {
		tiles[i].number = first_tile(rank) + i;
		tiles[i].now = allocate_saved(tile_len(), "now", tiles[i].number);
		tiles[i].next = allocate_saved(tile_len(), "next", tiles[i].number);
		fill(&tiles[i]);
	}
}

/* --- the cells around a tile --- */

static size_t side_len(void)
{
	return (size_t)NR_FIELDS * (size_t)conf.levels * (size_t)conf.edge;
}

/* The cells of a side: of the tile's own, or of the frame around it. */
static void copy_side(double *tile, enum side side, bool frame, double *buf, bool into)
{
	int last = conf.edge - 1, line = side == WEST || side == SOUTH ? (frame ? -1 : 0) : (frame ? last + 1 : last);

	for (int f = 0; f < NR_FIELDS; f++)
		for (int k = 0; k < conf.levels; k++)
			for (int i = 0; i < conf.edge; i++) {
				double *cell =
					&tile[side == WEST || side == EAST_SIDE ? at(f, k, i, line) : at(f, k, line, i)];

				if (into)
					*cell = *buf++;
				else
					*buf++ = *cell;
			}
}

static void exchange(void)
{
	size_t nr = (size_t)nr_tiles * NR_SIDES, len = side_len();
	double *out = allocate(nr * len + 1, sizeof(*out)), *in = allocate(nr * len + 1, sizeof(*in));
	MPI_Request *requests = allocate(2 * nr + 1, sizeof(MPI_Request));
	int nr_requests = 0;

	for (int i = 0; i < nr_tiles; i++)
		for (int side = 0; side < NR_SIDES; side++) {
			size_t n = (size_t)(i * NR_SIDES + side);
			int other = neighbour(tiles[i].number, (enum side)side);

			copy_side(tiles[i].now, (enum side)side, false, out + n * len, false);
			/* What goes west from here comes to the other's east: sides are told by the receiver's. */
			MPI_Irecv(in + n * len, (int)len, MPI_DOUBLE, owner(other), tiles[i].number * NR_SIDES + side,
				  MPI_COMM_WORLD, &requests[nr_requests++]);
			MPI_Isend(out + n * len, (int)len, MPI_DOUBLE, owner(other), other * NR_SIDES + (side ^ 1),
				  MPI_COMM_WORLD, &requests[nr_requests++]);
		}
	MPI_Waitall(nr_requests, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < nr_tiles; i++)
		for (int side = 0; side < NR_SIDES; side++)
			copy_side(tiles[i].now, (enum side)side, true, in + (size_t)(i * NR_SIDES + side) * len, true);
	free(requests);
	free(out);
	free(in);
}

/* --- a step --- */

static double rain(int level, double pressure, double vapour)
{
	int p = (int)(pressure * (PRESSURES / 2)), q = (int)(vapour * (VAPOURS / 2));

	p = p < 0 ? 0 : p >= PRESSURES ? PRESSURES - 1 : p;
	q = q < 0 ? 0 : q >= VAPOURS ? VAPOURS - 1 : q;
	return tables[level * ENTRIES + p * VAPOURS + q];
}

static double spread(const double *c, size_t row)
{
	return 0.25 * ((c[-1] + c[1]) + (*(c - row) + c[row]));
}

static void step_cell(const double *const now[NR_FIELDS], double *const next[NR_FIELDS], size_t i, size_t row, int level)
{
	double dx[NR_FIELDS], dy[NR_FIELDS], part;

	for (int f = 0; f < NR_FIELDS; f++) {
		dx[f] = now[f][i + 1] - now[f][i - 1];
		dy[f] = now[f][i + row] - now[f][i - row];
		next[f][i] = spread(&now[f][i], row) - COURANT * (now[EAST][i] * dx[f] + now[NORTH][i] * dy[f]);
	}
	next[EAST][i] -= COURANT * dx[PRESSURE];
	next[NORTH][i] -= COURANT * dy[PRESSURE];
	next[PRESSURE][i] -= COURANT * (dx[EAST] + dy[NORTH]);
	part = rain(level, now[PRESSURE][i], now[VAPOUR][i]);
	if (part > 0) { /* which warms */
		next[VAPOUR][i] -= part * now[VAPOUR][i];
		next[PRESSURE][i] += 0.2 * part * now[VAPOUR][i];
	}
}

static void step_tile(struct tile *t)
{
	size_t row = (size_t)conf.edge + 2;
	double *was = t->now;

	for (int k = 0; k < conf.levels; k++) {
		const double *now[NR_FIELDS];
		double *next[NR_FIELDS];

		for (int f = 0; f < NR_FIELDS; f++) {
			now[f] = t->now + at(f, k, -1, -1);
			next[f] = t->next + at(f, k, -1, -1);
		}
		for (int y = 1; y <= conf.edge; y++)
			for (int x = 1; x <= conf.edge; x++)
				step_cell(now, next, (size_t)y * row + (size_t)x, row, k);
	}
	t->now = t->next;
	t->next = was;
}

/* --- checkpoints --- */

static size_t fields_len(void)
{
	return (size_t)NR_FIELDS * (size_t)conf.levels * (size_t)conf.edge * (size_t)conf.edge;
}

/* A tile without its frame, as it is in a file. */
static void copy_fields(double *tile, double *buf, bool into)
{
	for (int f = 0; f < NR_FIELDS; f++)
		for (int k = 0; k < conf.levels; k++)
			for (int y = 0; y < conf.edge; y++, buf += conf.edge) {
				double *line = &tile[at(f, k, y, 0)];

				memcpy(into ? line : buf, into ? buf : line, (size_t)conf.edge * sizeof(*buf));
			}
}

static void write_all(int fd, const void *p, size_t len, const char *path)
{
	for (const char *from = p; len > 0;) {
		ssize_t n = write(fd, from, len);

		if (n <= 0)
			die("write", path);
		from += n;
		len -= (size_t)n;
	}
}

static void write_header(int fd, int step, int number, const char *path)
{
	union {
		struct header h;
		char page[PAGE];
	} u = { .page = { 0 } };

	u.h = (struct header){ MAGIC, step, number, conf.width, conf.height, conf.edge, conf.levels };
	write_all(fd, &u, sizeof(u), path);
}

/* It has its name when it is whole; and is complete when all have theirs. */
static void checkpoint(int step)
{
	double *buf = allocate(fields_len(), sizeof(*buf));
	char path[PATH_MAX], part[PATH_MAX + 8];
	int fd;

	snprintf(path, sizeof(path), "%s/ckpt.%06d.%04d", conf.dirs[0], step, rank);
	snprintf(part, sizeof(part), "%s.part", path);
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		die("create", part);
	write_header(fd, step, nr_tiles, part);
	write_all(fd, tables, (size_t)conf.levels * ENTRIES * sizeof(*tables), part);
	for (int i = 0; i < nr_tiles; i++) {
		write_header(fd, step, tiles[i].number, part);
		copy_fields(tiles[i].now, buf, false);
		write_all(fd, buf, fields_len() * sizeof(*buf), part);
	}
	if (fsync(fd) < 0 || rename(part, path) < 0)
		die("sync", part);
	if (fsync(fd) < 0 || close(fd) < 0) /* and its name */
		die("sync", path);
	free(buf);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("checkpoint %d\n", step);
		fflush(stdout);
	}
}

/* --- restarting --- */

static off_t tile_off(int i)
{
	off_t tile = PAGE + (off_t)(fields_len() * sizeof(double));

	return PAGE + (off_t)conf.levels * ENTRIES * (off_t)sizeof(double) + i * tile;
}

static void read_all(int fd, void *p, size_t len, off_t off, const char *path)
{
	for (char *to = p; len > 0;) {
		ssize_t n = pread(fd, to, len, off);

		if (n == 0)
			errno = ENODATA;
		if (n <= 0)
			die("read", path);
		to += n;
		off += n;
		len -= (size_t)n;
	}
}

static void read_header(int fd, off_t off, const char *path, struct header *ret)
{
	read_all(fd, ret, sizeof(*ret), off, path);
	if (ret->magic == MAGIC && ret->width == conf.width && ret->height == conf.height && ret->edge == conf.edge &&
	    ret->levels == conf.levels && ret->number >= 0 && ret->number <= nr_all())
		return;
	errno = EINVAL;
	die("not of this domain:", path);
}

typedef void visit_fn(int fd, int tile, int step, off_t off, const char *path, void *userdata);

/* All tiles in files of checkpoints that can be seen from here, of one step or (-1) of all. */
static void visit(int step, visit_fn *fn, void *userdata)
{
	for (int d = 0; d < conf.nr_dirs; d++) {
		DIR *dir = opendir(conf.dirs[d]);
		const struct dirent *e;

		if (!dir)
			die("open", conf.dirs[d]);
		while ((e = readdir(dir)) != NULL) {
			char path[PATH_MAX];
			struct header h;
			int of_step, of_rank, end = 0, fd;

			if (sscanf(e->d_name, "ckpt.%d.%d%n", &of_step, &of_rank, &end) != 2 || e->d_name[end] ||
			    (step >= 0 && step != of_step))
				continue;
			snprintf(path, sizeof(path), "%s/%s", conf.dirs[d], e->d_name);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				die("open", path);
			read_header(fd, 0, path, &h);
			for (int i = 0, nr = h.number; i < nr; i++) {
				read_header(fd, tile_off(i), path, &h);
				fn(fd, h.number, h.step, tile_off(i) + PAGE, path, userdata);
			}
			close(fd);
		}
		closedir(dir);
	}
}

static void note_step(int fd, int tile, int step, off_t off, const char *path, void *userdata)
{
	int *newest = userdata;

	(void)fd, (void)tile, (void)off, (void)path;
	if (step > newest[0] && step < newest[1])
		newest[0] = step;
}

static void note_tile(int fd, int tile, int step, off_t off, const char *path, void *userdata)
{
	(void)fd, (void)step, (void)off, (void)path;
	((int *)userdata)[tile] = rank;
}

/* The newest step before `before` that anybody sees; -1: none. */
static int step_before(int before)
{
	int newest[2] = { -1, before };

	visit(-1, note_step, newest);
	MPI_Allreduce(MPI_IN_PLACE, newest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	return newest[0];
}

/* The rank that reads each tile: the lowest rank that sees it. False: one is nowhere. */
static bool find_readers(int step, int *readers)
{
	bool all = true;

	for (int i = 0; i < nr_all(); i++)
		readers[i] = INT_MAX;
	visit(step, note_tile, readers);
	MPI_Allreduce(MPI_IN_PLACE, readers, nr_all(), MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	for (int i = 0; i < nr_all(); i++)
		all &= readers[i] != INT_MAX;
	return all;
}

struct reading {
	const int *readers;
	double *bytes; /* of all tiles that this rank reads */
	MPI_Request *requests;
	int nr;
	bool *is_read; /* by tile: several directories may have it */
};

static void read_tile(int fd, int tile, int step, off_t off, const char *path, void *userdata)
{
	struct reading *rd = userdata;
	double *buf = rd->bytes + (size_t)rd->nr * fields_len();

	(void)step;
	if (rd->readers[tile] != rank || rd->is_read[tile])
		return;
	rd->is_read[tile] = true;
	read_all(fd, buf, fields_len() * sizeof(*buf), off, path);
	MPI_Isend(buf, (int)fields_len(), MPI_DOUBLE, owner(tile), tile, MPI_COMM_WORLD, &rd->requests[rd->nr++]);
}

static void load(int step, const int *readers)
{
	struct reading rd = { .readers = readers };
	size_t nr_mine = 0;
	MPI_Request *in = allocate((size_t)nr_tiles + 1, sizeof(MPI_Request));
	double *got = allocate((size_t)nr_tiles * fields_len() + 1, sizeof(*got));

	for (int i = 0; i < nr_all(); i++)
		nr_mine += readers[i] == rank;
	rd.bytes = allocate(nr_mine * fields_len() + 1, sizeof(*rd.bytes));
	rd.requests = allocate(nr_mine + 1, sizeof(MPI_Request));
	rd.is_read = allocate((size_t)nr_all(), sizeof(*rd.is_read));
	for (int i = 0; i < nr_tiles; i++)
		MPI_Irecv(got + (size_t)i * fields_len(), (int)fields_len(), MPI_DOUBLE, readers[tiles[i].number],
			  tiles[i].number, MPI_COMM_WORLD, &in[i]);
	visit(step, read_tile, &rd);
	MPI_Waitall(nr_tiles, in, MPI_STATUSES_IGNORE);
	MPI_Waitall(rd.nr, rd.requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < nr_tiles; i++)
		copy_fields(tiles[i].now, got + (size_t)i * fields_len(), true);
	free(got);
	free(in);
	free(rd.bytes);
	free(rd.requests);
	free(rd.is_read);
}

/* The step that it goes on from. */
static int restart(void)
{
	int *readers = allocate((size_t)nr_all(), sizeof(*readers)), step = INT_MAX;

	while ((step = step_before(step)) >= 0 && !find_readers(step, readers))
		if (rank == 0)
			printf("checkpoint %d is not complete\n", step);
	if (step < 0) {
		errno = ENOENT;
		die("a complete checkpoint in", conf.dirs[0]);
	}
	load(step, readers);
	free(readers);
	if (rank == 0)
		printf("restarted from %d with %d ranks\n", step, nr_ranks);
	return step;
}

/* --- the result --- */

/* The same for any number of ranks: the sum of what each tile gives, and in it each cell. */
static void print_result(int step)
{
	uint64_t sum = 0, cell;
	double *buf = allocate(fields_len(), sizeof(*buf));
	int moved = 0;

	for (int i = 0; i < nr_tiles; i++) {
		uint64_t h = (uint64_t)tiles[i].number + 1;
		bool is_moved = false;

		copy_fields(tiles[i].now, buf, false);
		for (size_t n = 0; n < fields_len(); n++) {
			memcpy(&cell, &buf[n], sizeof(cell));
			h = (h ^ cell) * UINT64_C(0x9e3779b97f4a7c15);
			h ^= h >> 29;
			is_moved |= buf[n] != quiet((int)(n / (fields_len() / NR_FIELDS)),
						    (int)(n / (size_t)(conf.edge * conf.edge)) % conf.levels);
		}
		sum += h;
		moved += is_moved;
	}
	free(buf);
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	MPI_Allreduce(MPI_IN_PLACE, &moved, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("step %d: checksum %016llx, %d of %d tiles disturbed\n", step, (unsigned long long)sum, moved,
		       nr_all());
}

static void usage(void)
{
	if (rank == 0)
		fprintf(stderr,
			"usage: stencil --dir DIR [--dir DIR...] [--width TILES] [--height TILES] [--edge CELLS] [--levels CELLS]\n"
			"  [--steps N] [--every N] [--restart] [--hold STEP: wait to be killed when its checkpoint is complete] [--memory]\n");
	MPI_Finalize();
	exit(1);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", 1, NULL, 'd' },
		{ "width", 1, NULL, 'w' },
		{ "height", 1, NULL, 'h' },
		{ "edge", 1, NULL, 'e' },
		{ "levels", 1, NULL, 'l' },
		{ "steps", 1, NULL, 's' },
		{ "every", 1, NULL, 'n' },
		{ "restart", 0, NULL, 'r' },
		{ "hold", 1, NULL, 'o' },
		{ "memory", 0, NULL, 'm' },
		{ 0 },
	};
	int *numbers[128] = {
		['w'] = &conf.width, ['h'] = &conf.height, ['e'] = &conf.edge, ['l'] = &conf.levels,
		['s'] = &conf.steps, ['n'] = &conf.every,  ['o'] = &conf.hold,
	};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
		if (c == 'r')
			conf.restart = true;
		else if (c == 'm')
			conf.memory = true;
		else if (c == 'd' && conf.nr_dirs < DIRS_MAX)
			conf.dirs[conf.nr_dirs++] = optarg;
		else if (c < 128 && numbers[c])
			*numbers[c] = atoi(optarg);
		else
			usage();
	}
	if (conf.nr_dirs == 0 || optind != argc || conf.width < 1 || conf.height < 1 || conf.edge < 4 ||
	    conf.levels < 1 || conf.every < 1 || conf.width > 1000 || conf.height > 1000 || conf.edge > 1000 ||
	    conf.levels > 100 || (conf.restart && conf.memory))
		usage();
}

int main(int argc, char **argv)
{
	double start;
	int step = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr_ranks);
	parse(argc, argv);
	if (conf.memory)
		start_memory();
	make_tables();
	make_tiles();
	if (conf.restart)
		step = restart();
	start = MPI_Wtime();
	while (step < conf.steps) {
		exchange();
		for (int i = 0; i < nr_tiles; i++)
			step_tile(&tiles[i]);
		if (++step % conf.every == 0 && conf.memory)
			check_memory(ckptfs_checkpoint(), "checkpoint");
		else if (step % conf.every == 0)
			checkpoint(step);
		if (step == conf.hold)
			pause();
	}
	if (conf.memory) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0)
			printf("seconds %.4f\n", MPI_Wtime() - start);
	}
	print_result(step);
	for (int i = 0; i < nr_tiles; i++) {
		free_saved(tiles[i].now);
		free_saved(tiles[i].next);
	}
	free(tiles);
	free_saved(tables);
	if (conf.memory)
		check_memory(ckptfs_finish(), "checkpoints");
	MPI_Finalize();
	return 0;
}
