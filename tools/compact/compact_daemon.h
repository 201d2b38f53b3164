/* Having a mount's daemon compact variables: a plan, piece by piece, and what became of it. Negative errno throughout,
 * nothing is printed. */
#pragma once

#include "client/ioctl.h"
#include "store/codec/coding.h"

struct compact_daemon {
	int fd; /* of the mount; borrowed */
	uint64_t plan;
	struct ckptfs_compact_add *add; /* extents that wait to be sent */
	uint32_t nr_variables;
};

/* A new plan. -ENOTTY: this is no ckptfs mount. */
int compact_daemon_begin(struct compact_daemon *d, int fd);
/* What has not been run is given up. Of zeros, too. */
void compact_daemon_end(struct compact_daemon *d);
int compact_daemon_file(struct compact_daemon *d, int fd, uint32_t *ret);
/* `before`: 1 more than the number of the one that it was a step before, or, if it is_rounded, was rounded from; 0:
 * none. */
int compact_daemon_variable(struct compact_daemon *d, const char *key, const struct coding_shape *shape,
			    uint32_t before, bool is_rounded);
/* of the last variable */
int compact_daemon_extent(struct compact_daemon *d, uint32_t file, uint64_t off, uint64_t len);
/* Runs the plan; *how is the argument of START, and then the result of STATUS. An interrupt stops it. `show` is called
 * with the struct ckptfs_compact so far, again and again. */
int compact_daemon_run(struct compact_daemon *d, struct ckptfs_compact *how,
		       void (*show)(void *userdata, const void *so_far), void *userdata);
/* What the mount does by itself. -EOPNOTSUPP: nothing. */
int compact_daemon_pause(int fd, bool pause);
int compact_daemon_result(const struct compact_daemon *d, uint32_t variable, struct ckptfs_compact_result *ret);
