/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Opens a checkpoint of a tier, and reads the content of its files with several threads. Every chunk is verified. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/tier/reading/tier_cache.h"
#include "store/tier/reading/tier_tree.h"
#include "tools/tier/tier_access.h"
#include "tools/tier/tier_list.h"

struct tier_reader;

/* Constant once opened, and used by several threads. */
struct tier_opened {
	struct tier_access *a; /* borrowed, like the next one */
	const struct tier_checkpoint *c;
	struct tier_reader *reader;
	const struct tier_manifest *m; /* of the reader */
	struct tier_tree *tree;
	struct tier_source *source;
};

/* -ENOENT: there is no manifest; -EBADMSG: manifest, key or catalog are damaged. Failures are logged, except -ENOENT. */
int tier_opened_open(struct tier_access *a, const struct tier_checkpoint *c, struct tier_opened *ret);
void tier_opened_close(struct tier_opened *o);
uint64_t tier_opened_data(const struct tier_opened *o); /* bytes in all files, without holes */

/* Functions are called from several threads; all but `failed` may be NULL. A negative result ends the reading. */
struct tier_content {
	int (*begin)(void *userdata, uint32_t inode, int *ret_fd); /* opens a file; closed after the part */
	bool (*is_known)(void *userdata, const struct tier_run *run); /* true: need not be read */
	int (*data)(void *userdata, int fd, uint64_t off, const struct tier_bytes *b);
	void (*verified)(void *userdata, const struct tier_run *run); /* the whole run was read */
	/* Part of a file cannot be read. r: as of tier_cache_read(), but never -EINTR. Returns 0 to read the rest. */
	int (*failed)(void *userdata, uint32_t inode, int r, const struct tier_fault *fault);
	void *userdata;
};
/* *ret_bytes: read, also on failure. -EINTR: interrupted. */
int tier_content_read(const struct tier_opened *o, const struct tier_content *c, uint64_t *ret_bytes);
