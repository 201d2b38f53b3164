/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Two ranks. One has sent a message; the other, which did nothing meanwhile, hears it at its first look: an agent looks
 * once, and then naps. The argument is a file that does not exist yet. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/world.h"

#define TIMES 20

static void wait_for(const char *path, int nr)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	int there = 0;

	while (there < nr) {
		_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

		nanosleep(&moment, NULL); /* without a call of MPI, which would look for messages */
		there = fd < 0 ? 0 : (int)lseek(fd, 0, SEEK_END);
	}
}

static int announce(struct peers *p, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	return fd < 0 || peers_send(p, 0, PEER_ALIVE, 0, NULL, 0) < 0 || peers_progress(p) < 0 || write(fd, "x", 1) != 1;
}

static int receive_one(struct peers *p, const char *path, int nr)
{
	_cleanup_(message_release) struct message m = MESSAGE_NONE;
	struct peer_header h;

	wait_for(path, nr);
	if (peers_progress(p) == 0 && peers_next(p, 0, &h, &m) == 1 && h.type == PEER_ALIVE)
		return 0;
	fprintf(stderr, "heard: message %d is there, and is not heard at the first look\n", nr);
	return 1;
}

int main(int argc, char *argv[])
{
	struct link_node nodes[2] = { { .name = "a" }, { .name = "b" } };
	struct world w = { .nodes = nodes };
	struct peers *p;
	int rank, nr, failed = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nr);
	w.rank = (uint32_t)rank;
	w.nr = (uint32_t)nr;
	w.messages = MPI_COMM_WORLD;
	if (argc != 2 || nr != 2 || peers_new(&w, NULL, &p) < 0) {
		fputs("Usage: mpirun -n 2 heard FILE\n", stderr);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (int i = 1; i <= TIMES && !failed; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		failed = rank == 1 ? announce(p, argv[1]) : receive_one(p, argv[1], i);
	}
	if (failed)
		MPI_Abort(MPI_COMM_WORLD, 1);
	peers_free(p);
	MPI_Finalize();
	return 0;
}
