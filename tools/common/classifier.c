/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/classifier.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void classifier_find(char ret_path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret_path, PATH_MAX - sizeof("ckptfs-classify"));
	char *slash;

	ret_path[n > 0 ? n : 0] = 0;
	slash = strrchr(ret_path, '/');
	if (slash)
		strcpy(slash + 1, "ckptfs-classify");
	if (!slash || access(ret_path, X_OK) < 0)
		snprintf(ret_path, PATH_MAX, "%s/ckptfs-classify", CKPTFS_LIBEXECDIR);
}
