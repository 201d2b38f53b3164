/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Client of the daemon's compaction: sends a plan piece by piece, and gets the results. Functions return negative errno
 * and print nothing. */
#pragma once

#include "client/ioctl.h"
#include "store/codec/coding.h"

struct compact_daemon {
	int fd; /* in the mount; borrowed */
	uint64_t plan;
	struct ckptfs_compact_add *add; /* extents to be sent */
	uint32_t nr_variables;
};

/* Starts a plan. -ENOTTY: not a ckptfs mount. */
int compact_daemon_begin(struct compact_daemon *d, int fd);
/* Discards a plan that has not run. A zeroed struct is fine. */
void compact_daemon_end(struct compact_daemon *d);
int compact_daemon_file(struct compact_daemon *d, int fd, uint32_t *ret);
/* `before`: number plus 1 of the same variable one step before, or with is_rounded of the variable that it was rounded
 * from; 0: none. */
int compact_daemon_variable(struct compact_daemon *d, const char *key, const struct coding_shape *shape,
			    uint32_t before, bool is_rounded);
/* Adds an extent of the last variable. */
int compact_daemon_extent(struct compact_daemon *d, uint32_t file, uint64_t off, uint64_t len);
/* Runs the plan; *how is the argument of START, and then the result of STATUS. An interrupt stops it. `show` is called
 * repeatedly with the current struct ckptfs_compact. */
int compact_daemon_run(struct compact_daemon *d, struct ckptfs_compact *how,
		       void (*show)(void *userdata, const void *so_far), void *userdata);
/* Suspends or resumes background compaction. -EOPNOTSUPP: the mount has none. */
int compact_daemon_pause(int fd, bool pause);
int compact_daemon_result(const struct compact_daemon *d, uint32_t variable, struct ckptfs_compact_result *ret);
