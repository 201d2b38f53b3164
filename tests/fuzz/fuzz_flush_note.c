/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The note about the last manifest in a tier, whatever its bytes are: refused, or it is written as it was read. */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "fs/background/flush_note.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct buf again = BUF_EMPTY;
	static struct flush_note n;

	if (flush_note_decode(p, len, &n) < 0)
		return 0;
	flush_note_encode(&n, &again);
	assert(again.len == len && memcmp(again.data, p, len) == 0);
	buf_release(&again);
	return 0;
}
