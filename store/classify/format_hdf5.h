/* HDF5 and netCDF-4 by their own library: as formats.h has it, but neither pure nor to be called where a lie might
 * hurt. */
#pragma once

#include "store/classify/typed.h"

/* Before anything is restricted: what the library wants of the machine once. Without it in the build: nothing. */
void format_hdf5_prepare(void);
bool format_hdf5_is(const uint8_t *p, uint64_t len);
/* As formats.h; -EOPNOTSUPP: built without the library. */
int format_hdf5(const uint8_t *p, uint64_t len, struct typed *ret);
