/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Determines the contents of a file in a helper process that can do nothing but read it: ckptfs-classify. The helper
 * gets the file as an open descriptor, restricts itself before it reads the first byte (no files, no network, no
 * further processes, limits on memory and time), and answers on a pipe (typed_format.h). If it fails in any way, the
 * file is merely left unclassified.
 */
#pragma once

#include "store/classify/typed.h"

struct classify_conf {
	const char *helper; /* path of ckptfs-classify */
	unsigned limit_ms; /* for one file; then the helper is killed */
	/* rules that names_parse() has accepted; NULL: none. Applied in the helper, as matching may take long. */
	const char *names;
};

#define CLASSIFY_DIR_FILENO 3 /* in the helper: the directory of the file, if its name is given */

/*
 * `path`, unless NULL, is for formats that are described by other files of the same directory. 1: `ret` has the
 * variables of the file; 0: unknown, and ret_reason says why if the format is a known one (else ""). Errors that would
 * occur for the next file too: -ENOENT and others if the helper cannot be started, -ENOMEM. The file position of fd
 * does not matter.
 */
int classify_file(const struct classify_conf *conf, int fd, const char *path, struct typed *ret, char *ret_reason,
		  size_t reason_room);
