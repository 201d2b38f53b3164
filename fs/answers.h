/*
 * What this mount answers to others that ask about sealed directories (fs/question_format.h): which there are, their
 * catalogs, and lending what they are made of.
 *
 * A catalog is made once, into a file without a name, and told in parts; lending goes through all chunks. Both may take
 * long, and are done by a thread of their own, one at a time: meanwhile the answer is that it goes on. So every answer
 * comes soon.
 */
#pragma once

#include <stddef.h>

struct answers;
struct buf;
struct fs;

/* Borrows fs; `dir` is where files without a name are made. */
int answers_new(struct fs *fs, const char *dir, struct answers **ret);
void answers_free(struct answers *a); /* stops what is under way; NULL is fine */
/* One thread at a time. 0, with the answer appended, or why not. */
int answers_give(struct answers *a, const void *question, size_t len, struct buf *ret);
