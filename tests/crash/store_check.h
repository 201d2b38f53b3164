/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Is a store that is not open sound, by all that fsck.ckptfs --read-data knows? */
#pragma once

#include <stdbool.h>
#include <stdio.h>

bool store_check(const char *path, FILE *to); /* false: not sound, and why is written to `to` */
