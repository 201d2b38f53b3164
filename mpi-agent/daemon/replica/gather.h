/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Reads chunks from this store or other nodes. */
#pragma once

#include <stddef.h>

struct cluster_want;
struct fs;

/*
 * Read chunks into wants[i].buf: from this store, else through `fetch`, as in struct cluster_calls, from their owners
 * and others. `got`: read, and the fingerprint matches. -ENOMEM, or the error of `fetch`.
 */
int gather_chunks(struct fs *fs, int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr), void *userdata,
		  struct cluster_want *wants, size_t nr);
