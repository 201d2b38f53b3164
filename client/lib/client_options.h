/* Options of ckptfs_init(): what the program says, else the environment, else the default. */
#pragma once

#include <stdint.h>

struct ckptfs_options;

/* `cow_percent`: 0 unless the environment says so. `given` may be NULL. Strings are the caller's. -EINVAL, logged. */
int options_fill(const struct ckptfs_options *given, struct ckptfs_options *ret, uint32_t *cow_percent);
