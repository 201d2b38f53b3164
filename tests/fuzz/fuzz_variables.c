/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The note about variables, whatever its bytes are: refused, or it is written as it was read. */
#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "store/recode/variables.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct variable_notes n = { 0 };
	struct buf again = BUF_EMPTY;

	if (variable_notes_decode(p, len, &n) < 0)
		return 0;
	variable_notes_encode(&n, &again);
	assert(buf_error(&again) == 0 && again.len == len && memcmp(again.data, p, len) == 0);
	for (size_t i = 0; i < n.nr; i++)
		assert(code_name(&n.v[i].coder).s[0] != 0);
	buf_release(&again);
	variable_notes_release(&n);
	return 0;
}
