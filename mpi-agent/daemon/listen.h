/*
 * A socket of the filesystem that one daemon listens on, and only its user can open. A name that a dead daemon left is
 * taken over; that of a living one is not. Paths may be longer than a socket's address has room for.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct listener {
	int fd; /* that accepts, without waiting; -1: none */
	int dir; /* that it is in */
	char name[256];
	dev_t dev; /* of the name, to know it again */
	ino_t ino;
};

#define LISTENER_NONE ((struct listener){ .fd = -1, .dir = -1 })

/* The directory must be there. Logged: -EADDRINUSE somebody listens there, -EEXIST it is something else than a
 * socket. */
int listener_open(struct listener *l, const char *path);
/* And remove its name, unless it is another's by now. Of LISTENER_NONE, too. */
void listener_close(struct listener *l);
/* The other side of `path`: a descriptor, or -ECONNREFUSED and the like. Not logged. */
int listener_connect(const char *path);
