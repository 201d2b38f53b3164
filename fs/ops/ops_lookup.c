/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>

#include "fs/control/control.h"
#include "fs/posix/namespace.h"
#include "fs/ops/ops.h"
#include "fs/cluster_hooks.h"

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct stat st;
	int r = names_lookup(fs_of(req), parent, name, &st);

	if (view_is(parent) || (r == 0 && view_is(st.st_ino)))
		ops_reply_entry_for(req, r, &st, OPS_VIEW_SECONDS); /* other nodes change the view */
	else if (r == -ENOENT) /* let the kernel cache that the name is absent */
		fuse_reply_entry(req, &(struct fuse_entry_param){ .entry_timeout = OPS_FOREVER });
	else
		ops_reply_entry(req, r, &st);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	names_forget(fs_of(req), &(struct names_forget){ ino, nlookup }, 1);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct names_forget batch[NAMES_FORGET_MAX];
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		batch[n++] = (struct names_forget){ forgets[i].ino, forgets[i].nlookup };
		if (n == NAMES_FORGET_MAX || i == count - 1) {
			names_forget(fs_of(req), batch, n);
			n = 0;
		}
	}
	fuse_reply_none(req);
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int r = control_statfs(fs_of(req), &st);

	(void)ino;
	if (r < 0)
		ops_reply(req, r);
	else
		fuse_reply_statfs(req, &st);
}
