/*
 * The files to look at, and what their names say of them: files whose names differ in the number of the step are a
 * series, and series whose names differ in other numbers belong together, as ranks do: ckpt.RANK.STEP.
 * They are listed series by series, those that belong together one after the other, step by step.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file {
	char *path; /* by which it is arranged, and told */
	char *from; /* where it is opened, if that is another one; else NULL */
	char *series_name; /* the path with # for the number of the step */
	char *family_name;	  /* the path with # for every number */
	size_t step_at, step_len; /* digits of the step in the path; len 0: has none */
	uint32_t series, family;
	uint64_t size, holes;
	int error; /* negative errno: read in part, or not at all */
	dev_t dev;
	ino_t ino;
	uid_t uid;
	gid_t gid;
	int64_t mtime_ns;
};

struct files {
	struct file *file;
	size_t nr, nr_room;
	size_t nr_series, nr_families;
	size_t nr_links; /* further names of files that are in the list: left out */
	size_t nr_special; /* neither files nor directories, found below a directory: left out */
	uint64_t size, holes; /* of all; holes: after files_examine() */
};

/*
 * Add a file, or all files below a directory; symbolic links are followed if given, not if found. 0, or a
 * negative errno after having said why: what could be added has been, save with -ENOMEM.
 */
int files_add(struct files *fs, const char *path);
/* The same as if `path` were called `as`. */
int files_add_as(struct files *fs, const char *path, const char *as);
/* Once all are added: what belongs together, and the order of reading. Further names of a file are dropped. */
int files_arrange(struct files *fs);
/*
 * Opens each, and sets its size and holes as they are now. One that cannot be opened has been complained about, and its
 * `error` is set.
 */
void files_examine(struct files *fs);
void files_release(struct files *fs);
