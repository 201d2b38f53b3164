/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any text as rules, and what they make of the text itself, line by line: no longer than there is room. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "store/classify/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	char *text, why[100], got[64];
	struct names *n;
	size_t got_len;
	int r;

	if (len > 256) /* what takes long is not what is looked for */
		return 0;
	text = strndup((const char *)p, len);
	r = names_parse(text, &n, why, sizeof(why));
	assert(r == 0 || r == -EINVAL);
	for (size_t at = 0; r == 0 && at < len; at += 16)
		if (names_map(n, (const char *)p + at, MIN(len - at, (size_t)16), got, sizeof(got), &got_len) > 0)
			assert(got_len <= sizeof(got));
	if (r == 0)
		names_free(n);
	free(text);
	return 0;
}
