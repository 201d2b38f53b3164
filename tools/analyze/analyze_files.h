/*
 * The files to look at, and what their names say of them: files whose names differ in the number of the step are a
 * series, and series whose names differ in other numbers belong together, as ranks do: ckpt.RANK.STEP.
 *
 * They are read series by series, those that belong together one after the other, step by step. So of a chunk that was
 * seen before it is enough to know which file had it last: no nearer one had it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fp.h"
#include "tools/analyze_figures.h"

#define NR_CUTTINGS_MAX 3

/* As the mount option dedup= has them. */
extern const char *const domains_names[NR_FP_DOMAIN_KINDS];

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
	struct fp_domain domain; /* whose chunks it may share */
	struct figures figures[NR_CUTTINGS_MAX];
};

struct files {
	enum fp_domain_kind domains; /* set before files are added */
	struct file *file;
	size_t nr, nr_room;
	size_t nr_series, nr_families;
	size_t nr_links; /* further names of files that are in the list: left out */
	size_t nr_special; /* neither files nor directories, found below a directory: left out */
	uint64_t size; /* of all */
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
void files_release(struct files *fs);

/* Of a chunk of file number `file` that number `last`, <= file, had last. */
enum source files_relation(const struct files *fs, uint32_t file, uint32_t last);
