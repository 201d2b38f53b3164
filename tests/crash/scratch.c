/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int scratch_remove(const char *dir)
{
	return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -errno : 0;
}

int scratch_empty(const char *dir)
{
	int r = scratch_remove(dir);

	return r == 0 && mkdir(dir, 0700) < 0 ? -errno : r;
}
