/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The files to analyze, arranged by their names. Files whose names differ only in the number of the step are a series.
 * Series whose names differ in other numbers, such as ranks, are a family: ckpt.RANK.STEP. Files are ordered by family,
 * series and step.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file {
	char *path; /* for arranging and messages */
	char *from; /* path to open, if different; else NULL */
	char *series_name; /* the path with # for the number of the step */
	char *family_name;	  /* the path with # for every number */
	size_t step_at, step_len; /* digits of the step in the path; len 0: none */
	uint32_t series, family;
	uint64_t size, holes;
	int error; /* negative errno: not read completely */
	dev_t dev;
	ino_t ino;
	uid_t uid;
	gid_t gid;
	int64_t mtime_ns;
	int beneath; /* as in struct files */
};

struct files {
	/*
	 * A directory: paths are relative to it, and no symbolic link and no other mount below it is followed, because users
	 * may replace directories by these at any time. Borrowed. 0: paths are ordinary paths.
	 */
	int beneath;
	struct file *file;
	size_t nr, nr_room;
	size_t nr_series, nr_families;
	size_t nr_links; /* further hard links to listed files; skipped */
	size_t nr_special; /* found below a directory, but neither files nor directories; skipped */
	uint64_t size, holes; /* of all; holes: after files_examine() */
};

/*
 * Adds a file, or all files below a directory. A symbolic link is followed as argument, but not below a directory. A
 * negative errno is reported; except after -ENOMEM, all other files have been added.
 */
int files_add(struct files *fs, const char *path);
/* The same as if `path` were called `as`. */
int files_add_as(struct files *fs, const char *path, const char *as);
/* open_plain_noatime() of a path of such files. */
int files_open(int beneath, const char *path, int flags);
/* Sorts the files, once all are added, into families and series. Drops further hard links to a file. */
int files_arrange(struct files *fs);
/*
 * Sets the current size and holes of each file. A file that cannot be opened is reported, and its `error` is set.
 */
void files_examine(struct files *fs);
void files_release(struct files *fs);
