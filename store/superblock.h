/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The store's directory: recognizing, creating and locking it.
 *
 * Creation order: directories, then superblock.tmp, fsync, rename, fsync of the store directory. A directory without a
 * superblock is not a store: a crash before the rename leaves a partial attempt, which the next mount completes.
 */
#pragma once

#include <stdbool.h>

#include "store/superblock_format.h"

struct engine_conf;

struct store_dirs {
	int root, packs, journal; /* descriptors, -1: none */
	int lock;		  /* the superblock file, locked while it is open */
	bool created;		  /* the store, by this call */
	bool made;		  /* the directory, by this call */
	bool frozen;		  /* the filesystem under the store is read-only */
	struct superblock sb;
};

#define STORE_DIRS_NONE ((struct store_dirs){ .root = -1, .packs = -1, .journal = -1, .lock = -1 })

/* Open and lock `path`, creating the store if conf allows it. Errors as engine_open(). */
int store_dirs_open(const char *path, const struct engine_conf *conf, struct store_dirs *ret);
void store_dirs_release(struct store_dirs *d);
/* Remove a store that was created and never used; with removes_directory its directory, too. Crash order: the superblock
 * goes first, durably, so that one never stays without the folders. */
void store_remove_new(int root, const char *path, bool removes_directory);
