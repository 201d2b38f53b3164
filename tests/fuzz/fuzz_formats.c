/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as a file of any format, and as a pickle: variables that are in the file, or an error. */
#include <assert.h>
#include <errno.h>

#include "store/classify/formats.h"
#include "store/classify/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct typed t = TYPED_EMPTY(len);
	struct pickle pickle;
	int r = format_any(p, len, &t);

	assert(r == 0 || r == 1 || r == -EBADMSG || r == -E2BIG);
	for (size_t i = 0; i < t.nr_extents; i++)
		assert(t.extent[i].off <= len && t.extent[i].len <= len - t.extent[i].off &&
		       t.extent[i].variable < t.nr_variables);
	assert(r <= 0 || typed_check(&t) == 0);
	typed_release(&t);
	if (pickle_parse(p, len, &pickle) == 0)
		pickle_release(&pickle);
	return 0;
}
