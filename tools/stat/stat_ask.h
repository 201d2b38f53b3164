/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Reading the figures of the daemon: JSON in user.ckptfs.stat of a path. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/json/json_flat.h"

struct stat_answer {
	char *text; /* the JSON, NUL-terminated */
	struct json_flat j;
};

/* -EBADMSG: malformed; -ENODATA: not on a ckptfs. Errors are not reported. */
int stat_ask(const char *path, struct stat_answer *ret);
/* The same, until this time of the monotonic clock: -ETIMEDOUT if the daemon hangs. Forks. */
int stat_ask_until(const char *path, uint64_t until_ns, struct stat_answer *ret);
void stat_answer_release(struct stat_answer *a);
/* Prints error `r` of `path`; `before`: an earlier stat_ask() succeeded. */
void stat_complain(const char *path, int r, int before);

/* Sums over the files below a directory. */
struct stat_sums {
	uint64_t files, directories;
	uint64_t size, mapped, extents, frames;
	uint64_t not_durable; /* files */
};

/* Sums whatever can be read, also after errors, which are reported. */
int stat_sum(const char *directory, struct stat_sums *ret);
