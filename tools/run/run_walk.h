/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Walks two trees side by side: each directory of the first, and the directory with the same path in the second. Few
 * descriptors are open at any depth: those of a directory and of the one above it. Those above are closed, and reopened
 * by ".."; the walk checks that it then is the same directory. Memory: per level, the names of the directories that are
 * still to be entered. One thread.
 */
#pragma once

#include <sys/stat.h>

struct run_walk_name {
	int from, to; /* the two directories; borrowed */
	const char *name;
	const char *path; /* from the top of the tree */
	struct stat st; /* in the first tree; links are not followed */
};

/* 0: go on; any other result ends the walk, and is its result. */
struct run_walk {
	int (*enter)(void *userdata, const struct run_walk_name *n, int *ret_to); /* opens a directory of the second tree */
	int (*visit)(void *userdata, const struct run_walk_name *n); /* a name that is not a directory */
	int (*leave)(void *userdata, int from, int to, const struct stat *st); /* everything in the directory is done */
	void *userdata;
	char path[4096]; /* out: where the walk ended with a result other than 0 */
};

/* Both directories are borrowed. -ESTALE: a directory was moved meanwhile. */
int run_walk(struct run_walk *w, int from, int to);
