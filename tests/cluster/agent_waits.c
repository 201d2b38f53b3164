/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Timeouts of the agent that tests run, tests/cluster/ckptfs-agent of a build: those of the installed one, or what the
 * environment says, as in CKPTFS_AGENT_OFFER_MS=300.
 */
#include "mpi-agent/agent/waits.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/util.h"

#define NS_PER_MS UINT64_C(1000000)

static const struct {
	const char *name;
	size_t off;
	unsigned long fallback_ms;
} keys[] = {
	{ "CKPTFS_AGENT_HELLO_MS", offsetof(struct waits, hello_ns), 10000 },
	{ "CKPTFS_AGENT_OFFER_MS", offsetof(struct waits, offer_ns), 5000 },
	{ "CKPTFS_AGENT_LOOKUP_MS", offsetof(struct waits, lookup_ns), 4000 },
	{ "CKPTFS_AGENT_STORED_MS", offsetof(struct waits, stored_ns), 15000 },
	{ "CKPTFS_AGENT_ASK_MS", offsetof(struct waits, ask_ns), 5000 },
	{ "CKPTFS_AGENT_FETCH_MS", offsetof(struct waits, fetch_ns), 15000 },
	{ "CKPTFS_AGENT_STALL_MS", offsetof(struct waits, stall_ns), 60000 },
	{ "CKPTFS_AGENT_PREPARE_MS", offsetof(struct waits, prepare_ns), 3600000 },
	{ "CKPTFS_AGENT_WINDOW_MS", offsetof(struct waits, window_ns), 300000 },
	{ "CKPTFS_AGENT_KEEP_MS", offsetof(struct waits, keep_ns), 600000 },
	{ "CKPTFS_AGENT_END_MS", offsetof(struct waits, end_ns), 10000 },
};

const struct waits *waits_of_agent(void)
{
	static struct waits waits;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = getenv(keys[i].name);
		unsigned long ms = value ? strtoul(value, NULL, 10) : keys[i].fallback_ms;

		*(uint64_t *)((char *)&waits + keys[i].off) = ms * NS_PER_MS;
	}
	return &waits;
}
