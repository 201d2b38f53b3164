/* Any bytes as user.ckptfs.keep: refused, or a policy that keeps something; and as a store has it. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/retention.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keep_policy p = { 0 };
	uint32_t uid = 0;
	bool known;
	size_t len = keep_stored_decode(data, size, &known, &uid);

	assert(known ? len + KEEP_AUTHOR_LEN == size && data[len] == 0 : len == size && uid == 0);

	if (keep_parse((const char *)data, size, &p) < 0)
		assert(keep_is_empty(&p));
	else
		assert(!keep_is_empty(&p) && size <= KEEP_LEN_MAX);
	return 0;
}
