#include "tools/daemon.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DIED "the daemon of this mount has died; umount it and mount it again\n"

bool is_store(const char *path)
{
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s/superblock", path) < PATH_MAX && access(name, F_OK) == 0;
}

void tell_refusal(const char *tool, const char *path, const char *work, const char *verb, int r)
{
	fprintf(stderr, "%s: %s: ", tool, path);
	if (r == -EBUSY)
		fprintf(stderr, "%s is running already; wait for it to end\n", work);
	else if (r == -EPERM)
		fprintf(stderr, "only root and the user who mounted it may %s\n", verb);
	else if (r == -ENOTCONN || r == -ECONNABORTED)
		fputs(DIED, stderr);
	else if (r == -ENOTTY)
		fputs("not on a mounted ckptfs; ckptfs-stat lists those that are\n", stderr);
	else
		fprintf(stderr, "%s; the daemon's log says more\n", strerror(-r));
}

void tell_unopened(const char *tool, const char *path, const char *wanted, int r)
{
	fprintf(stderr, "%s: %s: ", tool, path);
	if (r == -ENOTCONN)
		fputs(DIED, stderr);
	else if (r == -ENOTDIR)
		fprintf(stderr, "not a directory; give %s\n", wanted);
	else
		fprintf(stderr, "%s\n", strerror(-r));
}
