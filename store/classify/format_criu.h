/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Images of CRIU. pages-N.img contains nothing but pages. Files beside it describe them: pagemap-PID.img has their
 * addresses, mm-PID.img the mappings, files.img the names of files. Pure.
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

/* Is it a file of pages, by its name? Is it a file that describes pages? */
bool criu_is_pages(const char *name);
bool criu_is_companion(const char *name);

/* Classify a file of pages of this name and size, as in formats.h. 0: no file beside it describes its pages. */
int format_criu(const char *name, uint64_t len, const struct companion *beside, size_t nr, struct typed *ret);
