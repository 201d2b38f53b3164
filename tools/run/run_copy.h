/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Resumable copy of a tree: after an interruption or a crash at any point, call it again with the same two directories.
 * A copied file is complete when it has the size and modification time of its source; the time is set last, after the
 * bytes are synced, read back from the disk and compared. A name with an incomplete file is removed, not written to:
 * other names may lead to the same file. Names that are not in the source are left alone.
 *
 * Copies directories, files with holes and hard links, symbolic links and FIFOs, with modes, times, extended attributes
 * in the user namespace if both sides support them, and owners if root. Sockets and devices: -EOPNOTSUPP. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct run_copy {
	bool (*go_on)(void *userdata, uint64_t copied); /* called after each MiB and file; false: stop with -ETIME */
	void *userdata;
	uint64_t bytes; /* out: copied now or complete before */
	char path[4096]; /* out: the file that failed, relative to the top of the tree */
};

/* Copies the content of directory `from` into directory `to`; both are borrowed. 0/<0 */
int run_copy_tree(struct run_copy *c, int from, int to);
/* Do both have the same names, and files the same sizes and modification times? 1/0/<0 */
int run_copy_is_same(int from, int to);
