/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/replica/gather.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "fs/fs.h"
#include "store/remote/cluster_calls.h"

int gather_chunks(struct fs *fs, int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr), void *userdata,
		  struct cluster_want *wants, size_t nr)
{
	_cleanup_(freep) struct cluster_want *remote = calloc(MAX(nr, (size_t)1), sizeof(*remote));
	size_t n = 0;
	int r = remote ? engine_cluster_chunks(fs->engine, wants, nr) : -ENOMEM;

	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++)
		if (!wants[i].got)
			remote[n++] = wants[i];
	r = n > 0 ? fetch(userdata, remote, n) : 0;
	n = 0;
	for (size_t i = 0; r == 0 && i < nr; i++) {
		if (!wants[i].got)
			wants[i].got = remote[n++].got;
		wants[i].got = wants[i].got && fp_is_of(fs->key, wants[i].fp, wants[i].buf, wants[i].len);
	}
	return r;
}
