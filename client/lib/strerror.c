/* SPDX-License-Identifier: BSD-3-Clause */
/* Explanations of errors. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"
#include "client/lib/ckptfs.h"

const char *ckptfs_strerror(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ ENODEV, "not initialised: call ckptfs_init() first, also in a child of fork(2)" },
		{ ENOTTY, "not a directory of a ckptfs mount: mount one with mount.ckptfs, or use a path below one" },
		{ EBUSY,
		  "ckptfs_init() was called before, here or by another process for the same directory and member: see stderr" },
		{ EEXIST, "that name, some of that memory or that address is in use: see stderr" },
		{ ENOENT, "no such checkpoint or region, or no parent directory for the checkpoints" },
		{ ERANGE, "the region has another length in the checkpoint" },
		{ ESTALE,
		  "the last checkpoint, of which the next one is a clone, was removed: the next one will write all pages" },
		{ EBADMSG, "the file is damaged, or not a checkpoint" },
		{ EOPNOTSUPP, "the file is of a later version, or the kernel does not support the request: see stderr" },
		{ ENOSPC,
		  "no space left: delete old checkpoints and run ckptfs gc --delete; the last complete one is still there" },
		{ EDQUOT,
		  "quota exceeded: delete old checkpoints and run ckptfs gc --delete; the last complete one is still there" },
		{ EROFS, "the mount is read-only" },
		{ ENOTCONN, "the mount's daemon is not running: mount again, and checkpoints continue" },
		{ ECONNABORTED, "the mount's daemon has ended meanwhile: mount again, and checkpoints continue" },
		{ EDEADLK, "called by a signal handler during another call of the same thread" },
		{ ENOMEM, "not enough memory" },
		{ EFBIG, "more memory than 2^32 pages" },
		{ EIO, "the disk has failed: see stderr, and the mount's log" },
		{ EINVAL, "invalid argument: see stderr" },
	};

	error = error < 0 ? -error : error;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return strerror(error);
}
