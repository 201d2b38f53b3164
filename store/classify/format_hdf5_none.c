/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Replaces format_hdf5.c in a build without the library: returns -EOPNOTSUPP. */
#include <errno.h>

#include "store/classify/format_hdf5.h"

void format_hdf5_prepare(void)
{
}

int format_hdf5(const uint8_t *p, uint64_t len, struct typed *ret)
{
	(void)ret;
	return format_hdf5_is(p, len) ? -EOPNOTSUPP : 0;
}
