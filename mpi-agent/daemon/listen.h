/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A listening socket in the filesystem that only its user can open. A socket left by a dead daemon is replaced; that of
 * a running daemon is not. Paths may be longer than a socket address.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct listener {
	int fd; /* for accept(), non-blocking; -1: none */
	int dir; /* directory of the socket */
	char name[256];
	dev_t dev; /* identify the socket file */
	ino_t ino;
};

#define LISTENER_NONE ((struct listener){ .fd = -1, .dir = -1 })

/* The directory must exist. Logs: -EADDRINUSE: another daemon listens there; -EEXIST: not a socket. */
int listener_open(struct listener *l, const char *path);
/* Close, and remove the socket unless another one has replaced it. LISTENER_NONE is fine. */
void listener_close(struct listener *l);
