/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Space reserved for ranges of a file by fallocate, and writes that use it. */
#pragma once

#include <stdint.h>

struct content;

/* Reserve the part of [off, end) that is not reserved yet. May wait for writes to finish: no lock held. -ENOSPC,
 * -EDQUOT. */
int content_reserve(struct content *c, uint64_t off, uint64_t end);
/* May this be written? Bytes of reserved ranges may, the others if there is room. May wait for writes to finish: no
 * lock held. -ENOSPC, -EDQUOT. */
int content_admit_write(struct content *c, uint64_t off, uint64_t len);
void content_spend(struct content *c); /* a job of this file starts: allow it the space of admitted writes */
void content_release_space(struct content *c); /* all that it has left; under its lock, or when it is freed */
