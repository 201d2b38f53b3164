/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The reduction as it is. A thread has one at a time, and here several agents share a thread. */
#include "mpi-agent/popular/reduce.c"

struct reduction *reduction_swap(struct reduction *red);

struct reduction *reduction_swap(struct reduction *red)
{
	struct reduction *before = reducing;

	reducing = red;
	return before;
}
