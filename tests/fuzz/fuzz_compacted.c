/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The note about compacted directories, whatever its bytes are: refused, or it is written as it was read. */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "fs/background/compacted.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct buf again = BUF_EMPTY;
	struct compacted c = { 0 };

	if (compacted_decode(p, len, &c) < 0)
		return 0;
	compacted_encode(&c, &again);
	assert(buf_error(&again) == 0 && again.len == len && memcmp(again.data, p, len) == 0);
	buf_release(&again);
	compacted_release(&c);
	return 0;
}
