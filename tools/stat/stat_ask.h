/* Asking the daemon for its figures: the JSON in user.ckptfs.stat of a path. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/json_flat.h"

struct stat_answer {
	char *text; /* the JSON, NUL-terminated */
	struct json_flat j;
};

/* -EBADMSG: not understood; -ENODATA: not on a ckptfs. Says nothing. */
int stat_ask(const char *path, struct stat_answer *ret);
void stat_answer_release(struct stat_answer *a);
/* To standard error, what `r` means of `path`; `before`: it has been asked with success. */
void stat_complain(const char *path, int r, int before);

/* Of the files below a directory. */
struct stat_sums {
	uint64_t files, directories;
	uint64_t size, mapped, extents, frames;
	uint64_t not_durable; /* files */
};

/* Filled as far as could be read, also if that was not everything, which is told on standard error. */
int stat_sum(const char *directory, struct stat_sums *ret);
