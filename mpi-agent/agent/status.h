/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-agent --status: a text about the agent of this node, over an abstract socket with a name derived from the
 * daemon's socket. Only for its user and root.
 */
#pragma once

#include "mpi-agent/agent/connect.h"

/* --- the agent --- */

/* Returns a non-blocking descriptor; <0: status is not available; logged. */
int status_listen(const struct socket_path *at);
/* Sends as much of the text to a client as possible without blocking. */
void status_answer(int fd, const char *text, size_t len);

/* --- the client --- */

/* Prints the text. -ENOENT: no agent; logged. */
int status_ask(const struct socket_path *at);
