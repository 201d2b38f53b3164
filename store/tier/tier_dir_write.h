/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writes the bytes of an object into a new file, without a copy in the page cache where that is possible.
 *
 * The copy would take more processor time than all other parts of a flush together, and the pages would only displace
 * those of programs: the object is read on other machines. So the part in whole blocks is written with O_DIRECT, if its
 * memory is aligned to blocks (flush_packs.c sees to that for packs), and the rest through the page cache. A filesystem
 * that refuses O_DIRECT, at once or with the first write, gets all of it through the page cache.
 */
#pragma once

#include <stddef.h>

#define TIER_DIRECT_BLOCK 4096u
#define TIER_DIRECT_MIN ((size_t)256 << 10) /* smaller objects are written through the page cache */

int tier_dir_write(int fd, const void *p, size_t len); /* from offset 0 on */
