/* The ckptfs mounts of this mount namespace, in the order they were made. */
#pragma once

#include <stdio.h>

struct mounts {
	FILE *f;
	char point[4096], store[4096]; /* of the current one */
};

int mounts_open(struct mounts *m);
int mounts_next(struct mounts *m); /* 1 next, 0 end */
void mounts_close(struct mounts *m);
