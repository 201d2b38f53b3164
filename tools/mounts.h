/* The ckptfs mounts of this mount namespace, in the order they were made. */
#pragma once

#include <stdio.h>

struct mounts {
	FILE *f;
	const char *point, *store; /* of the current one, borrowed until the next */
	char line[8192];
};

int mounts_open(struct mounts *m);
int mounts_next(struct mounts *m); /* 1 next, 0 end */
void mounts_close(struct mounts *m);
/* The one of this store, or on this mountpoint: 1, and *m is at it, closed; 0: none. */
int mounts_find(struct mounts *m, const char *path);
