/* Generates the catalog of a sealed directory from the store; see mpi-agent/daemon/replica/catalog_format.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct fs;

/* Receives the bytes in order, whole records, up to about 1 MiB per call. A negative result ends the catalog. */
struct catalog_sink {
	int (*put)(void *userdata, const void *p, size_t len);
	void *userdata;
};

/*
 * Write the catalog of a sealed directory or of a replica. For a replica the bytes equal those received, except for
 * names that files have outside of it (mpi-agent/daemon/replica/replica.h). -ENODATA: neither. -ESTALE: unsealed
 * meanwhile; what was written is invalid. Takes no lock for longer than a look-up. Memory: the directories, and the
 * files with several names.
 */
int catalog_write(struct fs *fs, uint64_t dir, const struct catalog_sink *to);
/*
 * Permissions of group and others that a catalog written now would contain for a directory of this store. They depend
 * on the directories above it, which are not sealed. -ESTALE: the directory is gone. Costs a look-up per directory
 * above.
 */
#define CATALOG_ACCESS ((uint32_t)(S_IRWXG | S_IRWXO))
int catalog_access(struct fs *fs, uint64_t dir, uint32_t *ret);
