/*
 * Resumable copy of a tree: after an interruption or a crash at any point, call it again with the same
 * two directories. A file of the copy is done when it has the size and the time of change of its source, and it gets
 * that time last: after its bytes are synced, read back from the disk, and compared. Names that are not in the source
 * are left alone.
 *
 * Copied are directories, files with their holes and hard links among them, symbolic links, fifos; modes, times,
 * extended attributes in user. where both sides have them, and owners by root. Sockets and devices are not:
 * -EOPNOTSUPP. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct run_copy {
	bool (*go_on)(void *userdata, uint64_t copied); /* asked after each MiB or file; false: stop, -ETIME */
	void *userdata;
	uint64_t bytes; /* out: copied now, or found to be done */
	char path[4096]; /* out: which file it was about, if it failed; from the top of the tree */
};

/* What is in directory `from` becomes what is in directory `to`, both open and borrowed. 0/<0 */
int run_copy_tree(struct run_copy *c, int from, int to);
/* Do both have the same names, with the same sizes and, of files, times of change? 1/0/<0. */
int run_copy_is_same(int from, int to);
