/* SPDX-License-Identifier: GPL-3.0-or-later */
#pragma once

#include <stdint.h>

struct buf;

/*
 * Memory for a pack that is full after pack_bytes, in an empty buffer, unless it has some. It is in huge pages, so a
 * page fault happens for each 2 MiB; and aligned to blocks, as tier_dir_write.h wishes. Memory that is not written to is
 * not taken from the system. Without memory the buffer stays empty, and grows as any other.
 */
void tier_pack_reserve(struct buf *b, uint64_t pack_bytes);
