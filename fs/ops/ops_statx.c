/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * statx(2), for the birth time: the kernel requests it with protocol 7.39, which libfuse and the kernel headers may not
 * support yet. Hence the layout is defined here.
 */
#include <assert.h>
#include <linux/fuse.h>
#include <linux/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/posix/attr.h"
#include "fs/posix/inode.h"
#include "fs/posix/namespace.h"
#include "fs/ops/ops.h"

struct sx_time {
	int64_t sec;
	uint32_t nsec;
	int32_t reserved;
};

struct sx_answer {
	struct fuse_out_header header;
	uint64_t attr_valid;
	uint32_t attr_valid_nsec, flags;
	uint64_t spare[2];
	/* struct fuse_statx */
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask;
	struct sx_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare2[14];
};
static_assert(sizeof(struct sx_answer) == sizeof(struct fuse_out_header) + 32 + 256, "kernel ABI");

static struct sx_time time_of(struct timespec ts)
{
	return (struct sx_time){ .sec = ts.tv_sec, .nsec = (uint32_t)ts.tv_nsec };
}

static struct sx_answer answer_of(uint64_t unique, const struct stat *st, struct timespec birth)
{
	return (struct sx_answer){
		.header = { .len = sizeof(struct sx_answer), .unique = unique },
		.attr_valid = (uint64_t)OPS_FOREVER,
		.mask = STATX_BASIC_STATS | STATX_BTIME,
		.blksize = (uint32_t)st->st_blksize,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.mode = (uint16_t)st->st_mode,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = time_of(st->st_atim),
		.btime = time_of(birth),
		.ctime = time_of(st->st_ctim),
		.mtime = time_of(st->st_mtim),
		.rdev_major = major(st->st_rdev),
		.rdev_minor = minor(st->st_rdev),
	};
}

void ops_statx(struct fs *fs, int fd, const struct fuse_in_header *in)
{
	struct sx_answer answer;
	struct timespec birth;
	struct inode *i;
	struct stat st;
	ssize_t n;
	int r;

	r = inode_get(fs->inodes, in->nodeid, &i);
	if (r == 0) {
		r = attr_stat(fs, i, &st);
		if (r == 0)
			r = attr_birth(fs, in->nodeid, &birth);
		names_put(fs, i);
	}
	if (r < 0) {
		ops_answer_error(fd, in->unique, ops_errno(r));
		return;
	}
	answer = answer_of(in->unique, &st, birth);
	n = write(fd, &answer, sizeof(answer));
	(void)n; /* the kernel has aborted the request, or the mount is going away */
}
