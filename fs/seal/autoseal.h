/*
 * Sealing by itself: what programs do anyway when a checkpoint is complete is taken for the order to seal it.
 *
 *   rename   a directory gets a name that is not temporary instead of one that is: "tmp", "temp", "partial", "incomplete"
 *            or "inprogress" is a word of it, perhaps with digits behind it (step.tmp, tmp-checkpoint-500, 7.tmp123)
 *   a name   a file of that name, such as commit_success.txt, appears in a directory
 *
 * The seal follows in a thread of its own: what is seen is answered at once. It waits for those who are writing to what
 * is to be sealed. Whoever has been told nothing of it may look (ckptfs-stat --epochs); a crash before it leaves the
 * directory unsealed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct autoseal;
struct fs;
struct who;

/* A list as after autoseal=, with colons between. -EINVAL: not one: "", "a::b", "a/b". */
int autoseal_check(const char *list);
bool autoseal_is_temporary(const char *name);

/* Has a thread that seals in `fs`, which it borrows until it is freed. */
int autoseal_new(struct fs *fs, const char *list, struct autoseal **ret);
/* Seals what waits, unless somebody still writes to it. NULL is fine, as below: nothing seals by itself. */
void autoseal_free(struct autoseal *a);

/* What has happened, by whom. Returns at once, without an error: what cannot be sealed is logged. */
void autoseal_made(struct autoseal *a, uint64_t dir, const char *name, const struct who *who);
void autoseal_renamed(struct autoseal *a, const char *from, uint64_t dir, const char *to, const struct who *who);
