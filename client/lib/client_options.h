/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of ckptfs_init(): as given by the program, else by the environment, else the default. */
#pragma once

#include <stdint.h>

struct ckptfs_options;

/* *cow_percent: 0 unless set by the environment. `given` may be NULL. Borrows its strings. -EINVAL, logged. */
int options_fill(const struct ckptfs_options *given, struct ckptfs_options *ret, uint32_t *cow_percent);
