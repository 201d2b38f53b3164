/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Generates the catalog of a sealed directory from the store; see store/catalog/catalog_format.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct content;
struct content_piece;
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
 * Where the bytes of a record with pieces are: `p` is the content of `c` from `off` on. Called before the record is put,
 * which then has no other record beside it. All is borrowed until put() returns.
 */
typedef void catalog_located_fn(void *userdata, struct content *c, uint64_t off, const struct content_piece *p, size_t nr);
/* The same for a sink that reads the chunks (content_read_chunks()). Takes the userdata of the sink. */
int catalog_write_located(struct fs *fs, uint64_t dir, const struct catalog_sink *to, catalog_located_fn *located);
/*
 * Permissions of group and others that a catalog written now would contain for a directory of this store. They depend
 * on the directories above it, which are not sealed. -ESTALE: the directory is gone. Costs a look-up per directory
 * above.
 */
#define CATALOG_ACCESS ((uint32_t)(S_IRWXG | S_IRWXO))
int catalog_access(struct fs *fs, uint64_t dir, uint32_t *ret);
