/*
 * ckptfs-agent --status: a text about the agent of this node, asked for over a socket that has no name in any directory
 * but goes by the daemon's. Only its user and root are told.
 */
#pragma once

#include "mpi-agent/connect.h"

/* --- the agent that is asked --- */

/* a descriptor, which does not block; <0: nobody can ask, which is logged */
int status_listen(const struct socket_path *at);
/* Whoever asks gets the text, as much of it as goes without waiting. */
void status_answer(int fd, const char *text, size_t len);

/* --- who asks --- */

/* Prints it. -ENOENT: no agent is there; told. */
int status_ask(const struct socket_path *at);
