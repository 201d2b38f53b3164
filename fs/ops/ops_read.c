/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>

#include "base/util.h"
#include "fs/posix/file.h"
#include "fs/fuse_loop.h"
#include "fs/ops/ops.h"
#include "store/engine.h"

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	void *p = loop_read_buffer();
	ssize_t n;

	(void)ino;
	n = p ? file_read(fs_of(req), file_of(fi), fi->flags, p, MIN(size, ENGINE_BUFFER_SIZE), (uint64_t)off,
			  loop_may_wait()) :
		-ENOMEM;
	if (n == -EINPROGRESS && loop_serve_in_place())
		fuse_reply_none(req); /* only frees the request */
	else if (n < 0)
		ops_reply(req, (int)n);
	else
		fuse_reply_buf(req, p, (size_t)n);
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	uint64_t found;
	int r;

	(void)ino;
	r = off < 0 ? -ENXIO : file_seek(file_of(fi), (uint64_t)off, whence, &found);
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_lseek(req, (off_t)found);
}
