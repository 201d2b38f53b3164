/*
 * Where bytes are cut by content. Pure: no I/O, no allocation, no lock.
 *
 * base/cdc.h says where, with one addition: a run of 4096 zeros or more is a piece of its own, as long as it is, so
 * that it becomes a hole. Where it begins and ends depends on content alone too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cdc.h"

#define CHUNKER_ZEROS_MIN 4096u

/* Room for the ends of as many pieces as 1 MiB can have: chunks of 256 bytes, and a chunk and a run of zeros per
 * 4096. */
#define CHUNKER_ENDS_MAX (4096u + 512u)

/*
 * Where each piece of p ends; p begins behind a cut. What the bytes do not tell yet is left, and the last zeros of a
 * run that may go on: ask again with more behind it, and it does not matter where they were divided. With `is_all`
 * nothing comes behind, and the rest is the last piece. At most 1 MiB. Returns how many pieces; a piece is all zeros,
 * or a chunk of at most max bytes.
 */
size_t chunker_cut(const struct cdc *c, const uint8_t *p, uint32_t len, bool is_all, uint32_t ret_ends[CHUNKER_ENDS_MAX]);
