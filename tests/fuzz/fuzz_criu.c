/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as what lies beside pages of CRIU, with the size they are of: segments that are in the file, or an
 * error. */
#include <assert.h>
#include <errno.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/format_criu.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static const char *const names[] = { "pagemap-7.img", "mm-7.img", "files.img" };
	const struct le32 *lengths = (const struct le32 *)p;
	struct companion beside[3];
	struct typed t = TYPED_EMPTY(9 * 4096);
	size_t at = 12;
	int r;

	if (len < 12)
		return 0;
	for (size_t i = 0; i < 3; i++) {
		beside[i] = (struct companion){ names[i], p + at, MIN((size_t)le32_get(lengths[i]), len - at) };
		at += beside[i].len;
	}
	r = format_criu("pages-3.img", t.size, beside, 3, &t);
	assert(r == 0 || r == 1 || r == -EBADMSG || r == -E2BIG);
	for (size_t i = 0; i < t.nr_extents; i++)
		assert(t.extent[i].off <= t.size && t.extent[i].len <= t.size - t.extent[i].off &&
		       t.extent[i].variable < t.nr_variables);
	assert(r <= 0 || typed_check(&t) == 0);
	typed_release(&t);
	return 0;
}
