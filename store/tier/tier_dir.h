/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A tier in a directory that several machines share: Lustre, GPFS, BeeGFS, NFS, GlusterFS. An object is a file, its
 * name the path below the directory.
 */
#pragma once

#include <stddef.h>

struct tier;

struct tier_dir_conf {
	unsigned nr_threads; /* requests in flight at the filesystem; 0: 8. Further ones queue */
	size_t page; /* names in the answer of one list; 0: 10,000 */
};

/*
 * The directory must exist: a filesystem that is not mounted would leave an empty one in its place, and a name typed
 * wrong none. It stays open until the tier is closed, so the filesystem cannot be exchanged meanwhile. Failures are
 * logged.
 */
int tier_dir_open(const char *path, const struct tier_dir_conf *conf, struct tier **ret);
