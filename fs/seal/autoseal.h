/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Automatic sealing (autoseal=): the steps by which programs complete a checkpoint trigger its seal.
 *
 *   rename   a directory is renamed from a temporary name to one that is not. A name is temporary if "tmp", "temp",
 *            "partial", "incomplete" or "inprogress" is a word of it, optionally followed by digits
 *            (step.tmp, tmp-checkpoint-500, 7.tmp123)
 *   a name   a file of that name, such as commit_success.txt, appears in a directory
 *
 * The triggering request is answered at once; a separate thread seals. It waits while files in the directory are open
 * for writing, or belong to another user: as by ckptfs-seal, only files of the user that seals become immutable.
 * Programs are not notified; `ckptfs-stat --sealed` lists the seals. A crash before the seal leaves the directory
 * unsealed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct autoseal;
struct fs;
struct cred;

/* Check the value of autoseal=, separated by colons. -EINVAL for "", "a::b" or "a/b". */
int autoseal_check(const char *list);
bool autoseal_is_temporary(const char *name);

/* Starts threads that seal in `fs`, which is borrowed until autoseal_free(). */
int autoseal_new(struct fs *fs, const char *list, struct autoseal **ret);
/*
 * Seals pending directories, except those with files open for writing. NULL is fine here and below: no automatic
 * sealing.
 */
void autoseal_free(struct autoseal *a);

/* Report an event and the user that caused it. Return at once and without an error; failed seals are logged. */
void autoseal_made(struct autoseal *a, uint64_t dir, const char *name, const struct cred *cred);
void autoseal_renamed(struct autoseal *a, const char *from, uint64_t dir, const char *to, const struct cred *cred);
