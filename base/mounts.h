/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The ckptfs mounts of a mount namespace, in the order they were made, and what keeps a store in use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct buf;

struct mounts {
	FILE *f;
	char *line;
	size_t size;
	/* Of the current one, borrowed until the next or mounts_close(). */
	const char *point, *store;
	const char *flags, *options; /* of the mount and of the filesystem, as in mount(8) */
	dev_t dev;
	uid_t uid; /* of the mounting user */
	gid_t gid;
};

int mounts_open(struct mounts *m); /* of this process's namespace */
int mounts_next(struct mounts *m); /* 1 next, 0 end */
void mounts_close(struct mounts *m);
/* The last mount of this store, else the last on this mountpoint, which lies on top: 1, *m is at it; 0: none. Links in
 * `path` are followed. mounts_close() either way. */
int mounts_find(struct mounts *m, const char *path);
/* mounts_find() of a path without links. Accesses neither the mount nor the store: both may hang. */
int mounts_find_real(struct mounts *m, const char *real);
/* The last mount on exactly this path: 1, *m is at it; 0: none. Does not access the mount: its daemon may be dead. */
int mounts_find_point(struct mounts *m, const char *point);
/* realpath(3) of a mountpoint, even if lookups fail there because its daemon has died. The caller frees it. NULL and
 * errno. */
char *mounts_real_path(const char *path);
/*
 * Asks the daemon of a mount, until this time of the monotonic clock: 0 it answers, or nothing is mounted there;
 * -ENOTCONN it has died; -ETIMEDOUT; other errors of statfs(2). `report` as in apart.h, with `point`.
 */
int mounts_ask(const char *point, uint64_t until_ns, void (*report)(const void *point));
/* For the go_on of struct apart: asks now and then whether the daemon still answers. */
struct mounts_patience {
	const char *point;
	uint64_t wait_ns; /* for one answer */
	void (*report)(const void *point); /* as mounts_ask() */
	uint64_t next_ns; /* 0 at first */
};
bool mounts_answers(struct mounts_patience *p); /* false: it has not answered in time */
/* Is this device mounted in this process's namespace? true also if mountinfo cannot be read. */
bool mounts_has(dev_t dev);

/* The current line of /proc/PID/mountinfo, in m->line, which is cut into its fields: 1 a ckptfs mount, 0 another. */
int mounts_parse(struct mounts *m);

/*
 * Lists the users of a store: the process that holds its lock, and one process of each mount namespace in which it is
 * still mounted: "locked by 71 (mount.ckptfs); mounted for 96 (bash) on /mnt/ckpt". Only root sees processes of other
 * users; the text says so if none was found. `dev`: of the mount, 0: unknown. Appends to *ret, without a final NUL;
 * nothing if nothing was found.
 */
void mounts_describe_users(const char *store, dev_t dev, struct buf *ret);
