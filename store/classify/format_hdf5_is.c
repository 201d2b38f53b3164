/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <string.h>

#include "store/classify/format_hdf5.h"

#define MAGIC "\211HDF\r\n\032\n"
#define BEHIND_MAX (UINT64_C(1) << 20) /* maximum size of a user block before the magic */

/* At the start, or behind a user block of 512, 1024, 2048, ... bytes. */
bool format_hdf5_is(const uint8_t *p, uint64_t len)
{
	for (uint64_t at = 0; at <= BEHIND_MAX && at + 8 <= len; at = at ? 2 * at : 512)
		if (memcmp(p + at, MAGIC, 8) == 0)
			return true;
	return false;
}
