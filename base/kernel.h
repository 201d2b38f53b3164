/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The kernel that ckptfs requires: README.md, "Installation". */
#pragma once

#include <stdbool.h>

#define KERNEL_MAJOR 5
#define KERNEL_MINOR 15

/* Is `release`, as uname(2) has it, this version or a later one? Also true if it begins with no version. */
bool kernel_suffices(const char *release, unsigned major, unsigned minor);
