/* The daemon of this node: where its socket is, and the first words. What is wrong is logged, with what to do. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "mpi-agent/link.h"

struct arenas;

struct socket_path {
	char *path; /* freed by whoever has it */
	dev_t dev; /* of the socket: what it is known by */
	ino_t ino;
};

/* `socket`, or that of the store that is mounted at `mount`. One of them is NULL, perhaps. -ENOENT, -EINVAL: neither
 * can be. */
int socket_find(const char *mount, const char *socket, struct socket_path *ret);
/* Says HELLO and waits for WELCOME. -EBUSY: another agent is there. The memory of this end goes with the one, and the
 * daemon's comes with the other, perhaps. */
int daemon_connect(const struct socket_path *at, uint64_t until_ns, struct arenas *shared, struct link *ret,
		   struct link_welcome *ret_welcome);
