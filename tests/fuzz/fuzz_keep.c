/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as user.ckptfs.keep: refused, or a policy that keeps something; and as a store has it. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "client/retention.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keep_policy p = { 0 };
	uint32_t uid = 0;
	size_t len = 0;

	if (keep_stored_decode(data, size, &len, &uid) == 0)
		assert(len + KEEP_AUTHOR_LEN == size && data[len] == 0);

	if (keep_parse((const char *)data, size, &p) < 0)
		assert(keep_is_empty(&p));
	else
		assert(!keep_is_empty(&p) && size <= KEEP_LEN_MAX);
	return 0;
}
