/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Content-defined chunk boundaries. Pure: no I/O, no allocation, no lock.
 *
 * Boundaries follow base/cdc.h, with one addition: a run of at least 4096 zeros is a piece of its own, whatever its
 * length, so that it becomes a hole. Its start and end depend on content alone as well.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cdc.h"

#define CHUNKER_ZEROS_MIN 4096u

/* Upper bound for the pieces of 1 MiB: chunks of 256 bytes, plus a chunk and a run of zeros per 4096. */
#define CHUNKER_ENDS_MAX (4096u + 512u)

/*
 * Find the end of each piece of p, which starts at a boundary. Bytes are left over if their boundary depends on later
 * data, as are the last zeros of a run that may continue: call again with more data behind them. The result does not
 * depend on how the data was divided between calls. With `is_all`, no data follows and the rest is the last piece. len
 * is at most 1 MiB. Returns the number of pieces; each is all zeros, or a chunk of at most max bytes.
 */
size_t chunker_cut(const struct cdc *c, const uint8_t *p, uint32_t len, bool is_all, uint32_t ret_ends[CHUNKER_ENDS_MAX]);
