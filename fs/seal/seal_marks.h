/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Marks on the inodes of a sealed directory, and the seal record that makes them one seal. The tree is frozen
 * (freeze.h). seal.c tells when they are written, and what a crash between two transactions leaves.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct fs;
struct ns_seal;

/* Borrows all of these. */
struct seal_marks {
	struct fs *fs;
	const uint64_t *inos; /* of the tree: the directory first, directories before their content */
	size_t nr;
	struct ns_seal *seal; /* as recorded */
};

/* Mark all inodes or none, some per transaction; the first one includes an incomplete record. Cancellable. Counts
 * directories, files and bytes in m->seal. */
int seal_marks_set(const struct seal_marks *m, uint32_t uid);
/* Remove all marks, and with the last one the record. Not cancellable. */
int seal_marks_clear(const struct seal_marks *m);
/* Write the record of a seal. Requires fs.names, exclusive. */
int seal_record_write(struct fs *fs, uint64_t dir, const struct ns_seal *seal);

/* After holding fs.names since `start_ns`, pause for other threads that wait for it. */
void seal_make_way(uint64_t start_ns);
