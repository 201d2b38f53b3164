#include "tools/mounts.h"

#include <errno.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

int mounts_open(struct mounts *m)
{
	m->f = setmntent("/proc/self/mounts", "re");
	return m->f ? 0 : -errno;
}

int mounts_next(struct mounts *m)
{
	struct mntent e;

	while (getmntent_r(m->f, &e, m->line, sizeof(m->line))) {
		if (strcmp(e.mnt_type, "fuse.ckptfs") != 0)
			continue;
		m->store = e.mnt_fsname;
		m->point = e.mnt_dir;
		return 1;
	}
	return 0;
}

void mounts_close(struct mounts *m)
{
	if (m->f)
		endmntent(m->f);
	m->f = NULL;
}

int mounts_find(struct mounts *m, const char *path)
{
	_cleanup_(freep) char *real = realpath(path, NULL);
	int r = 0;

	if (!real || mounts_open(m) < 0)
		return 0;
	while ((r = mounts_next(m)) > 0 && strcmp(m->store, real) != 0 && strcmp(m->point, real) != 0)
		;
	mounts_close(m); /* what it points to is in `line` */
	return r;
}
