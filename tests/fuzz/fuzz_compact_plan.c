/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a program says is to be compacted, piece by piece: added or refused; and whatever was added is sound. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fs/background/compact_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct ckptfs_compact_add a;
	struct compact_plan plan = { 0 };
	size_t nr = 0;
	uint32_t file;

	while (len > 0) {
		size_t n = MIN(len - 1, sizeof(a) - 16);

		if (*p == 0) {
			assert(compact_plan_add_file(&plan, 7, &file) == 0 && file + 1 == plan.nr_files);
			p++, len--;
			continue;
		}
		n = MIN(n, (size_t)*p * 8);
		memset(&a, 0, sizeof(a));
		memcpy((uint8_t *)&a + 16, p + 1, n); /* flags, type, shape, extents */
		compact_plan_add(&plan, &a);
		p += 1 + n;
		len -= 1 + n;
	}
	compact_plan_finish(&plan);
	for (size_t i = 0; i < plan.nr_variables; i++) {
		const struct compact_variable *v = &plan.variable[i];

		assert(v->shape.type.width >= 1 && v->shape.type.width <= 8 && v->shape.parts <= 2);
		for (size_t k = 0; k < v->nr_extents; k++, nr++)
			assert(v->extent[k].file < plan.nr_files && v->extent[k].len > 0 &&
			       v->extent[k].off + v->extent[k].len > v->extent[k].off);
	}
	assert(nr == plan.nr_extents);
	compact_plan_release(&plan);
	return 0;
}
