/*
 * Images of CRIU. pages-N.img has nothing but pages; which they are stands in files beside it: in pagemap-PID.img their
 * addresses, in mm-PID.img what was mapped there, in files.img the names of files. Pure.
 */
#pragma once

#include <stdbool.h>

#include "store/classify/typed.h"

/* A file of the same directory. */
struct companion {
	const char *name;
	const uint8_t *p;
	uint64_t len;
};

/* Is it a file of pages, going by its name? And does what is in this one matter to it? */
bool criu_is_pages(const char *name);
bool criu_is_companion(const char *name);

/* A file of pages of this name and size: as in formats.h. 0: none beside it tells of its pages. */
int format_criu(const char *name, uint64_t len, const struct companion *beside, size_t nr, struct typed *ret);
