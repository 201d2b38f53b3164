/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The daemon of this node: its socket, and the handshake. Errors are logged, with what to do. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "mpi-agent/wire/link.h"

struct arenas;

struct socket_path {
	char *path; /* freed by the owner of the struct */
	dev_t dev; /* dev and ino identify the socket */
	ino_t ino;
};

/* Finds `socket`, or the socket of the store mounted at `mount`. One may be NULL. -ENOENT, -EINVAL: not found. */
int socket_find(const char *mount, const char *socket, struct socket_path *ret);
/* Sends HELLO and waits for WELCOME. -EBUSY: another agent is connected. The arena of this end is passed with HELLO,
 * that of the daemon may be passed with WELCOME. */
int daemon_connect(const struct socket_path *at, uint64_t until_ns, struct arenas *shared, struct link *ret,
		   struct link_welcome *ret_welcome);
