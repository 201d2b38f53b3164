/* The catalog of a sealed directory, made from the store: fs/catalog_format.h says what it is. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct fs;

/* Where the bytes go, one behind the other, up to 1 MiB and a record at a time. What it returns, if negative, ends
 * it. */
struct catalog_sink {
	int (*put)(void *userdata, const void *p, size_t len);
	void *userdata;
};

/*
 * Of a sealed directory, or of a copy of another node's: the same bytes that were taken, but for names of files outside
 * of it (fs/nodes.h). -ENODATA: it is neither. -ESTALE: it was unsealed meanwhile, and what was put is of no use. Takes
 * no lock for longer than a look-up; its memory is for the directories, and the files that have several names.
 */
int catalog_write(struct fs *fs, uint64_t dir, const struct catalog_sink *to);
/* Permissions of group and others that the catalog of a directory of this store tells, made now: what lies above it
 * decides, which is not sealed. -ESTALE: it is not there any more. As long as a look-up for each directory above. */
#define CATALOG_ACCESS ((uint32_t)(S_IRWXG | S_IRWXO))
int catalog_access(struct fs *fs, uint64_t dir, uint32_t *ret);
