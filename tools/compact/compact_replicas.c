/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_replicas.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/analyze/analyze_complain.h"
#include "tools/common/place.h"

/* The rest of `path` after `dir`; NULL: `path` is neither `dir` nor below it. */
static const char *below(const char *dir, const char *path)
{
	size_t len = strlen(dir);

	if (len == 0)
		return path;
	return strncmp(dir, path, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* Adds a replica, if it overlaps with `wanted`. `listed` is NAME/PATH. */
static int add_copy(struct files *fs, const char *root, const char *wanted, const char *listed)
{
	_cleanup_(freep) char *from = NULL, *as = NULL;
	const char *slash = strchr(listed, '/'), *path = slash ? slash + 1 : "";
	const char *part = below(wanted, path) ? path : below(path, wanted) ? wanted : NULL;
	struct stat st;

	if (!slash || !part)
		return 0;
	if (asprintf(&from, "%s/.ckptfs/nodes/%.*s%s%s", root, (int)(slash - listed), listed, *part ? "/" : "",
		     part) < 0)
		from = NULL;
	if (asprintf(&as, "%s%s%s", root, *part ? "/" : "", part) < 0)
		as = NULL;
	if (!from || !as)
		return -ENOMEM;
	if (part == wanted && stat(from, &st) < 0 && errno == ENOENT)
		return 0; /* that node sealed other directories there */
	return files_add_as(fs, from, as);
}

static int add_replicas(struct files *fs, const char *root, const char *wanted)
{
	_cleanup_(closep) int fd = openat_noatime(AT_FDCWD, *root ? root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_seal *s = calloc(1, sizeof(*s));
	int r = !s ? -ENOMEM : fd < 0 ? complain(-errno, "%s", root) : 0;

	while (r == 0) {
		*s = (struct ckptfs_seal){ .size = sizeof(*s),
					   .version = CKPTFS_IOC_VERSION,
					   .command = CKPTFS_SEAL_REPLICA,
					   .inode = s->inode };
		if (ioctl(fd, CKPTFS_IOC_SEAL, s) < 0) {
			r = errno == ENOENT ? 1 :
					      complain(-errno, "%s: cannot list replicas of other nodes", root);
			break;
		}
		r = add_copy(fs, root, wanted, s->path);
	}
	free(s);
	return MIN(r, 0);
}

int compact_replicas_add(struct files *fs, const char *directory)
{
	_cleanup_(freep) char *path = realpath(directory, NULL);
	_cleanup_(closep) int fd = path ? open(path, O_PATH | O_CLOEXEC) : -1;
	struct place place;
	size_t len;
	int r = fd < 0 ? -errno : place_find(fd, &place);

	if (r < 0)
		return complain(r, "%s", directory);
	if (place.root[0] != '\0')
		return complain(-EXDEV, "%s: only part of the filesystem is mounted here; give its mountpoint to include replicas",
				directory);
	len = strlen(place.point) - 1;
	place.point[len] = '\0';
	r = files_add(fs, path);
	return r < 0 ? r : add_replicas(fs, place.point, path[len] == '/' ? path + len + 1 : "");
}
