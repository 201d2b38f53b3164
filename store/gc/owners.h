/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Iterates over inodes and their owners. Internal to the engine. */
#pragma once

#include <stdbool.h>

#include "base/fp.h"

struct db;
struct db_iter;
struct db_snapshot;
struct ns_inode;

bool owner_has(const struct fp_domain *owner, const struct ns_inode *in); /* a regular file of this owner */
/* Iterates over a snapshot; NULL: the current state. The caller frees it. */
int owners_iter_new(struct db *db, const struct db_snapshot *state, struct db_iter **ret);
int owners_next(struct db_iter *it, struct ns_inode *ret); /* 1/0/<0 */
