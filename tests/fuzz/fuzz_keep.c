/* Any bytes as user.ckptfs.keep: refused, or a policy that keeps something. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "client/keep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keep_policy p = { 0 };

	if (keep_parse((const char *)data, size, &p) < 0)
		assert(keep_is_empty(&p));
	else
		assert(!keep_is_empty(&p) && size <= KEEP_LEN_MAX);
	return 0;
}
