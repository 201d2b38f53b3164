/* What an error means for whoever called. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"
#include "client/ckptfs.h"

const char *ckptfs_strerror(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ ENODEV, "not begun: call ckptfs_init() first, in a child of fork(2), too" },
		{ ENOTTY, "not a directory of a ckptfs mount: mount one with mount.ckptfs, or give a path below it" },
		{ EBUSY,
		  "ckptfs_init() has been called before, here or by another process for the same directory and member: see stderr" },
		{ EEXIST, "that name, some of that memory or that address is taken: see stderr" },
		{ ENOENT, "there is no such checkpoint or region, or no directory to make the checkpoints in" },
		{ ERANGE, "the region has another length in the checkpoint" },
		{ ESTALE,
		  "the last checkpoint was removed while the next one was to be made from it: the next one will be complete" },
		{ EBADMSG, "damaged: the file is no checkpoint" },
		{ EOPNOTSUPP, "the file is of a later version, or the kernel cannot do what was asked for: see stderr" },
		{ ENOSPC,
		  "no space is left: delete old checkpoints and run ckptfs-gc --delete; the last complete one is still there" },
		{ EROFS, "the mount is read-only" },
		{ ENOTCONN, "the mount's daemon is not there: mount it again, and checkpoints go on" },
		{ ECONNABORTED, "the mount's daemon has ended meanwhile: mount it again, and checkpoints go on" },
		{ EDEADLK, "called by a signal handler in the midst of another call of the same thread" },
		{ ENOMEM, "not enough memory" },
		{ EFBIG, "more memory than 2^32 pages" },
		{ EIO, "the disk has failed: see stderr, and the mount's log" },
		{ EINVAL, "an argument that cannot be: see stderr" },
	};

	error = error < 0 ? -error : error;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return strerror(error);
}
