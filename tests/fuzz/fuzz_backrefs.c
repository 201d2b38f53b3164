/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Keys of the back-references of a frame. Input that is accepted encodes to the same bytes again. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "index/backref_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct backref r;
	struct ns_key k;

	if (backref_key_decode(p, len, &r) == 0) {
		k = backref_key(&r);
		assert(k.len == len && memcmp(k.b, p, len) == 0);
	}
	return 0;
}
