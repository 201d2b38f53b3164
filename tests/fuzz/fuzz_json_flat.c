/* Any bytes as the daemon's JSON: parsed or refused, and what was parsed can be asked and shown. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_flat.h"
#include "client/figures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_flat j;
	char *text = NULL;
	size_t len = 0;
	FILE *to;

	if (json_flat_parse((const char *)data, size, &j) < 0)
		return 0;
	to = open_memstream(&text, &len);
	if (to) {
		figures_print_metrics(to, &j, 1);
		fclose(to);
	}
	free(text);
	json_flat_release(&j);
	return 0;
}
