/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as the page of ckptfs-stat --html: refused, or readings that come back the same when they are printed. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/stat/report_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct record r = { 0 }, again = { 0 };
	char *text = NULL;
	size_t len = 0;
	FILE *to;

	if (record_parse((const char *)data, size, &r) < 0)
		return 0;
	to = open_memstream(&text, &len);
	assert(to);
	record_print(to, &r);
	fclose(to);
	assert(record_parse(text, len, &again) == 0);
	assert(again.nr == r.nr && strcmp(again.store_id, r.store_id) == 0);
	assert(r.nr == 0 || memcmp(again.reading, r.reading, r.nr * sizeof(r.reading[0])) == 0);
	free(text);
	record_release(&r);
	record_release(&again);
	return 0;
}
