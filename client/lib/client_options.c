/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/lib/client_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/ckptfs.h"

#define FLAGS_KNOWN (CKPTFS_REQUIRE_MOUNT | CKPTFS_SEALED)

static const char *const modes[] = {
	[CKPTFS_MODE_SYNC] = "sync",
	[CKPTFS_MODE_ASYNC] = "async",
	[CKPTFS_MODE_ADAPTIVE] = "adaptive",
	[CKPTFS_MODE_PREDICTIVE] = "predictive",
};
static const char *const trackings[] = {
	[CKPTFS_TRACKING_MPROTECT] = "mprotect",
	[CKPTFS_TRACKING_USERFAULTFD] = "userfaultfd",
};

/* Sets *value by the environment if it is 0. */
static int fill_word(const char *variable, const char *const *words, uint32_t nr, const char *which, uint32_t *value)
{
	const char *s = getenv(variable);

	if (*value >= nr)
		return log_errno(-EINVAL, "checkpoints: invalid value %u of the option for %s", *value, variable);
	if (*value != 0 || !s || *s == '\0')
		return 0;
	for (uint32_t i = 1; i < nr; i++)
		if (strcmp(s, words[i]) == 0) {
			*value = i;
			return 0;
		}
	return log_errno(-EINVAL, "checkpoints: %s=%s: must be %s", variable, s, which);
}

static int fill_size(const char *variable, uint64_t *value)
{
	const char *s = getenv(variable);
	int r;

	if (*value != 0 || !s || *s == '\0')
		return 0;
	r = parse_size(s, value);
	return r < 0 ? log_errno(r, "checkpoints: %s=%s: must be a number, with optional suffix K, M or G", variable,
				 s) :
		       0;
}

/* Bytes, or percent. 0 in the environment means no copies, but in the options the default. */
static int fill_cow(uint64_t *bytes, uint32_t *percent)
{
	const char *s = getenv("CKPTFS_COW");
	char *end;
	unsigned long n;
	int r;

	if (*bytes != 0 || !s || *s == '\0')
		return 0;
	n = strtoul(s, &end, 10);
	if (strcmp(end, "%") == 0 && n > 100)
		return log_errno(-EINVAL, "checkpoints: CKPTFS_COW=%s: must be at most 100%%", s);
	if (strcmp(end, "%") == 0 && *s >= '0' && *s <= '9') {
		*percent = (uint32_t)n;
		*bytes = n == 0 ? CKPTFS_COW_NONE : 0;
		return 0;
	}
	r = fill_size("CKPTFS_COW", bytes);
	if (r == 0 && *bytes == 0)
		*bytes = CKPTFS_COW_NONE;
	return r;
}

/* At least a page per second: the program waits for single pages. */
static int fill_rate(uint64_t *rate)
{
	int r = fill_size("CKPTFS_RATE", rate);

	if (r == 0 && *rate > 0 && *rate < (uint64_t)sysconf(_SC_PAGESIZE))
		r = log_errno(-EINVAL, "checkpoints: write rate of %" PRIu64 ": must be at least a page per second",
			      *rate);
	return r;
}

static int fill_keep(uint32_t *keep)
{
	uint64_t n = *keep;
	int r = fill_size("CKPTFS_KEPT", &n);

	if (r == 0 && n > UINT32_MAX)
		r = log_errno(-ERANGE, "checkpoints: CKPTFS_KEPT=%s: too large", getenv("CKPTFS_KEPT"));
	*keep = (uint32_t)n;
	return r;
}

static int check_flags_and_member(const struct ckptfs_options *o)
{
	if (o->flags & ~FLAGS_KNOWN)
		return log_errno(-EINVAL, "checkpoints: unknown flags %#x", o->flags & ~FLAGS_KNOWN);
	if ((o->flags & CKPTFS_SEALED) && !o->member)
		return log_errno(-EINVAL, "checkpoints: CKPTFS_SEALED needs a member: only directories can be sealed");
	if (o->member &&
	    (o->member[0] == '\0' || o->member[0] == '.' || strchr(o->member, '/') || strlen(o->member) > 200))
		return log_errno(-EINVAL, "checkpoints: member '%s' is not a valid file name", o->member);
	return 0;
}

int options_fill(const struct ckptfs_options *given, struct ckptfs_options *ret, uint32_t *cow_percent)
{
	struct ckptfs_options o = { .size = sizeof(o) };
	int r;

	if (given && given->size != sizeof(o))
		return log_errno(-EINVAL, "checkpoints: size of options is %zu, must be %zu", given->size, sizeof(o));
	if (given)
		o = *given;
	*cow_percent = 0;
	r = check_flags_and_member(&o);
	if (r == 0)
		r = fill_word("CKPTFS_MODE", modes, ARRAY_SIZE(modes), "sync, async, adaptive or predictive", &o.mode);
	if (r == 0)
		r = fill_word("CKPTFS_TRACKING", trackings, ARRAY_SIZE(trackings), "userfaultfd or mprotect",
			      &o.tracking);
	if (r == 0)
		r = fill_cow(&o.cow_bytes, cow_percent);
	if (r == 0)
		r = fill_rate(&o.write_rate);
	if (r == 0)
		r = fill_keep(&o.keep);
	if (r < 0)
		return r;
	if (o.mode == CKPTFS_MODE_DEFAULT)
		o.mode = CKPTFS_MODE_ADAPTIVE;
	*ret = o;
	return 0;
}
