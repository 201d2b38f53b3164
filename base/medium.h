/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What kind of filesystem a directory lies on, and what follows for a store in it. */
#pragma once

#include <stdint.h>

enum medium_kind { MEDIUM_DISK, MEDIUM_MEMORY, MEDIUM_NETWORK, MEDIUM_FUSE };

struct medium {
	enum medium_kind kind;
	const char *type; /* as in mount(8), "": a local filesystem of another type */
	uint64_t size, available; /* bytes */
};

/* 0, or the error of statfs(2). */
int medium_of(const char *path, struct medium *ret);
/* A clause for messages: the missing guarantees, and what to do. NULL: a disk, with all guarantees. */
const char *medium_caution(enum medium_kind kind);
/* Logs a warning if a store on this medium has weaker guarantees than on a local disk. */
void medium_log_caution(const char *store, const struct medium *m);
