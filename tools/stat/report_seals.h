/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Sealed checkpoints in a report: the newest ones, verified without reading their data, and their space. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/seal/seals.h"

#define REPORT_SEALS_MAX 100u /* each is verified, and its space is computed */

enum seal_state { SEAL_UNKNOWN, SEAL_AS_SEALED, SEAL_DAMAGED };

struct report_seal {
	const struct sealed *seal;
	enum seal_state state;
	char *why; /* if it is not as sealed: a message; may be NULL */
	bool has_space; /* the three below are known */
	uint64_t shared; /* distinct bytes that other files refer to, too */
	uint64_t exclusive; /* those that only it refers to */
	uint64_t stored; /* disk space of these */
};

struct report_seals {
	struct seals all;
	struct report_seal *v; /* newest first */
	size_t nr;
};

/* Of the mount, those that the caller may see. Prints errors to standard error. -EINTR: interrupted. */
int report_seals_get(const char *mountpoint, struct report_seals *ret);
void report_seals_release(struct report_seals *s);
