/* SPDX-License-Identifier: GPL-3.0-or-later */
/* HDF5 and netCDF-4 by their own library. Like formats.h, but neither pure nor safe against malicious files: call it
 * only in the sandbox. */
#pragma once

#include "store/classify/typed.h"

/* Initialise the library before the process restricts itself. Does nothing in a build without the library. */
void format_hdf5_prepare(void);
bool format_hdf5_is(const uint8_t *p, uint64_t len);
/* As formats.h; -EOPNOTSUPP: built without the library. */
int format_hdf5(const uint8_t *p, uint64_t len, struct typed *ret);
