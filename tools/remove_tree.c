#include "tools/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "tools/interrupt.h"

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/* What is left alone. */
struct limits {
	dev_t dev;
	uid_t uid; /* 0: of nobody */
};

static int remove_at(int dirfd, const char *name, const struct limits *l);

static int remove_names(DIR *dir, const struct limits *l)
{
	struct dirent *d;
	int r = 0;

	while (r == 0 && (errno = 0, d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = interrupted() ? -ECANCELED : remove_at(dirfd(dir), d->d_name, l);
	return r < 0 ? r : -errno;
}

static int open_directory(int dirfd, const char *name, const struct limits *l, DIR **ret)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == EACCES) { /* its owner may take what he has forbidden himself */
		if (fchmodat(dirfd, name, 0700, 0) == 0)
			fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != l->dev)
		return -EXDEV;
	if (l->uid != 0 && st.st_uid != l->uid)
		return -EPERM;
	if ((st.st_mode & 0700) != 0700 && fchmod(fd, 0700) < 0)
		return -errno;
	*ret = fdopendir(fd);
	if (!*ret)
		return -errno;
	fd = -1;
	return 0;
}

static int remove_at(int dirfd, const char *name, const struct limits *l)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	int r;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	r = open_directory(dirfd, name, l, &dir);
	if (r == 0)
		r = remove_names(dir, l);
	if (r == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

int remove_tree(int dirfd, const char *name, uid_t uid)
{
	struct stat st;

	return fstat(dirfd, &st) < 0 ? -errno : remove_at(dirfd, name, &(struct limits){ st.st_dev, uid });
}
