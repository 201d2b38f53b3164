#include "mpi-agent/waits.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/util.h"

#define NS_PER_MS UINT64_C(1000000)
#define MS_MAX 86400000ul

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

int waits_read(struct waits *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = getenv(keys[i].name);
		unsigned long ms = keys[i].fallback_ms;
		char *end;

		if (value) {
			ms = strtoul(value, &end, 10);
			if (*value < '0' || *value > '9' || *end != '\0' || ms == 0 || ms > MS_MAX)
				return log_errno(-EINVAL, "%s=%s: not a number of milliseconds", keys[i].name, value);
		}
		*(uint64_t *)((char *)ret + keys[i].off) = ms * NS_PER_MS;
	}
	return 0;
}
