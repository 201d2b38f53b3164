/*
 * What the daemon tells about itself: figures for ckptfs-stat (as JSON in virtual extended attributes), the answer to
 * statfs(2), counts and latencies of requests, and a dump of it all to the log.
 *
 * Keys of the JSON are an interface: they are added to and never change their meaning (schema_version).
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

/* What the kernel and the build made possible; shown, so that nothing falls back silently. */
struct control_paths {
	bool killpriv; /* buffered writes need no look at file capabilities */
	bool parallel_dirs; /* look-ups in one directory go on in parallel */
};

#define CONTROL_REQUESTS 64 /* kinds of requests, by protocol number */

int control_new(const struct options *o, struct control **ret);
void control_free(struct control *c); /* NULL is fine */

/* `names` by protocol number, CONTROL_REQUESTS long, NULL where there is none; borrowed. */
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
