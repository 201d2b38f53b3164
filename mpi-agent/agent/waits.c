/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/waits.h"

#define S(n) (UINT64_C(1000000000) * (n))

const struct waits *waits_of_agent(void)
{
	static const struct waits waits = {
		.hello_ns = S(10),
		.offer_ns = S(5),
		.lookup_ns = S(4),
		.stored_ns = S(15),
		.ask_ns = S(5),
		.fetch_ns = S(15),
		.stall_ns = S(60),
		.prepare_ns = S(3600),
		.window_ns = S(300),
		.keep_ns = S(600),
		.end_ns = S(10),
	};

	return &waits;
}
