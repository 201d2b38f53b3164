/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Answers queries of peers about sealed directories (mpi-agent/daemon/nodes/question_format.h): which exist, their
 * catalogs, and pinning their chunks.
 *
 * A catalog is written once, to an unnamed file, and sent in parts. Pinning visits all chunks. Both may take long and
 * run in a separate thread, one at a time; meanwhile the answer is -EINPROGRESS. So every query is answered soon.
 */
#pragma once

#include <stddef.h>

struct answers;
struct buf;
struct fs;

/* Borrows fs; unnamed files are created in `dir`. */
int answers_new(struct fs *fs, const char *dir, struct answers **ret);
void answers_free(struct answers *a); /* stops running work; NULL is fine */
/* One thread at a time. 0 with the answer appended, or an error. */
int answers_give(struct answers *a, const void *question, size_t len, struct buf *ret);
