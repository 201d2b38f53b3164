/*
 * ckptfs-agent --status: a text about the agent of this node, over an abstract socket with a name derived from the
 * daemon's socket. Only for its user and root.
 */
#pragma once

#include "mpi-agent/agent/connect.h"

/* --- the agent that is asked --- */

/* a non-blocking descriptor; <0: status is not available, which is logged */
int status_listen(const struct socket_path *at);
/* Sends the text to a client, as much of it as is possible without blocking. */
void status_answer(int fd, const char *text, size_t len);

/* --- the client --- */

/* Prints it. -ENOENT: no agent is there; told. */
int status_ask(const struct socket_path *at);
