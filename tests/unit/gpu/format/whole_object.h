/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A whole object of a delta in memory, as no program has it: the daemon reads its tables, and later its payload. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/format/delta_format.h"

static inline int delta_decode(const void *p, size_t len, struct delta_tables *ret)
{
	struct delta_header h;
	int r;

	r = delta_header_decode(p, len, &h);
	if (r < 0)
		return r;
	if (delta_object_len(&h) != len)
		return -EBADMSG;
	return delta_tables_decode(&h, (const uint8_t *)p + delta_tables_off(&h), (size_t)delta_tables_len(&h), ret);
}
