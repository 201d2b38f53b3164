/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The producer's view of a lineage: a directory of a mount, with a file per version. Commits objects, and detects
 * deleted versions that the record may refer to. Belongs to one thread at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "gpu/format/delta_format.h"

struct lineage;

/* Creates the directory if it is missing; warns if it is not writable. -ENOTTY: not on a ckptfs mount; errors of
 * open(2). */
int lineage_open(const char *dir, struct lineage **ret);
void lineage_close(struct lineage *l); /* NULL is fine */
static inline void lineage_closep(struct lineage **l)
{
	lineage_close(*l);
}

/*
 * Opens the directory again if the daemon was restarted, which serves the same versions. -ENOTCONN: it was not
 * restarted. Costs a round trip to the daemon.
 */
int lineage_reconnect(struct lineage *l);

struct lineage_commit {
	const struct delta_header *header;
	const struct iovec *parts; /* the object */
	size_t nr_parts;
	uint32_t flags; /* CKPTFS_DELTA_* */
	uint8_t key[LEAF_KEY_LEN];
	uint64_t write_ns, commit_ns; /* out: how long it took */
};

/* Errors of the ioctls (client/ioctl.h), and of write(2). */
int lineage_commit(struct lineage *l, struct lineage_commit *c);

/* Does the version exist? 1/0/<0. */
int lineage_has(const struct lineage *l, uint32_t number);
/* Ascending, in memory that the caller frees. */
int lineage_versions(const struct lineage *l, uint32_t **ret, size_t *ret_nr);
int lineage_delete(struct lineage *l, uint32_t number);
/*
 * Versions committed through this handle that were deleted or changed since, each reported once; the caller frees the
 * array. Costs a stat(2) for each version.
 */
int lineage_lost(struct lineage *l, uint32_t **ret, size_t *ret_nr);

int lineage_open_version(const struct lineage *l, uint32_t number); /* a file descriptor, for reading */
int lineage_read(int fd, void *p, size_t len, uint64_t off); /* all of it; -EBADMSG: the file ends before */
