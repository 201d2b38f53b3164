#include "mpi-agent/daemon/replica/gather.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "fs/fs.h"
#include "store/remote/cluster_calls.h"

int gather_chunks(struct fs *fs, int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr), void *userdata,
		  struct cluster_want *wants, size_t nr)
{
	_cleanup_(freep) struct cluster_want *away = calloc(MAX(nr, (size_t)1), sizeof(*away));
	size_t n = 0;
	int r = away ? engine_cluster_chunks(fs->engine, wants, nr) : -ENOMEM;

	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++)
		if (!wants[i].got)
			away[n++] = wants[i];
	r = n > 0 ? fetch(userdata, away, n) : 0;
	n = 0;
	for (size_t i = 0; r == 0 && i < nr; i++) {
		if (!wants[i].got)
			wants[i].got = away[n++].got;
		wants[i].got = wants[i].got && fp_is_of(fs->key, wants[i].fp, wants[i].buf, wants[i].len);
	}
	return r;
}
