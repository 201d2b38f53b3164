/* Decoders of the engine's journal records: whatever decodes must encode to something that decodes to the same. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/engine/record_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void replace_again(const struct replace *rp)
{
	struct buf b = BUF_EMPTY;
	struct replace got;

	replace_encode(rp, &b);
	assert(replace_decode(b.data, b.len, &got) == 0);
	assert(got.ino == rp->ino && got.size == rp->size && got.off == rp->off && got.len == rp->len && got.nr == rp->nr);
	free(got.x);
	buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct pack_marks marks;
	struct replace rp;

	if (replace_decode(p, len, &rp) == 0) {
		replace_again(&rp);
		free(rp.x);
	}
	if (marks_decode(p, len, &marks) == 0)
		assert(marks.next_pack > 0);
	return 0;
}
