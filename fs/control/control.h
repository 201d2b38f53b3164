/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Statistics of the daemon: figures for ckptfs-stat (JSON in virtual extended attributes), the reply to statfs(2),
 * counts and latencies of requests, and a dump of all of these to the log.
 *
 * Keys of the JSON are an interface: keys may be added, but never change their meaning (schema_version).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>

struct buf;
struct control;
struct fs;
struct inode;
struct options;

/* Features of the kernel and the build in use; shown, so that no fallback goes unnoticed. */
struct control_paths {
	bool killpriv; /* buffered writes need no lookup of file capabilities */
	bool writeback; /* the kernel gathers small writes */
	bool parallel_dirs; /* lookups in one directory run in parallel */
};

#define CONTROL_REQUESTS 64 /* kinds of requests, by protocol number */

int control_new(const struct options *o, struct control **ret);
void control_free(struct control *c); /* NULL is fine */

/* `names` is indexed by protocol number, has CONTROL_REQUESTS entries, NULL for unused ones; borrowed. */
void control_name_requests(struct control *c, const char *const *names);
void control_set_paths(struct control *c, const struct control_paths *p);
void control_count(struct control *c, unsigned request, uint64_t ns);
void control_set_readahead(struct control *c, uint32_t kib);
void control_set_threads(struct control *c, unsigned nr);

/* The JSON of the whole mount, appended to *ret. From any thread once requests are served. */
int control_figures(struct fs *fs, struct buf *ret);
/* 1: a virtual attribute, its value appended to *ret; 0: not one; <0. */
int control_xattr(struct fs *fs, struct inode *i, const char *name, struct buf *ret);
int control_statfs(struct fs *fs, struct statvfs *ret);
void control_dump(struct fs *fs);
