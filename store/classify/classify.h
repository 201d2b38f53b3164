/*
 * What is in a file, asked of a process that may do nothing but read it: ckptfs-classify. It gets the file as an open
 * descriptor, restricts itself before it looks at the first byte (no files, no network, no further processes, limits of
 * memory and time), and answers on a pipe (typed_format.h). Whatever becomes of it, the file is only less well known.
 */
#pragma once

#include "store/classify/typed.h"

struct classify_conf {
	const char *helper; /* path of ckptfs-classify */
	unsigned limit_ms; /* for one file; then it is ended */
	/* rules that names_parse() has taken; NULL: none. Applied there, as matching may take long. */
	const char *names;
};

#define CLASSIFY_DIR_FILENO 3 /* of the helper: the directory of the file whose name it is told */

/*
 * The path, unless it is NULL, is for formats that say in other files of its directory what is in this one.
 * 1: `ret` has what is known of it, 0: nothing is known, and ret_reason says why if the file is of a format that we
 * know (else ""). What fails for the next file too: -ENOENT and others if the helper cannot be started, -ENOMEM. The
 * position of fd changes nothing.
 */
int classify_file(const struct classify_conf *conf, int fd, const char *path, struct typed *ret, char *ret_reason,
		  size_t reason_room);
