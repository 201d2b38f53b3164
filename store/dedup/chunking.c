/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunking options: pages or content-defined chunks for new data. */
#include <errno.h>
#include <string.h>

#include "base/conf.h"
#include "base/util.h"
#include "store/engine.h"
#include "store/pack/pack.h"

static const char *const names[] = {
	[CHUNKING_PAGE] = "page",
	[CHUNKING_CDC] = "cdc",
	[CHUNKING_AUTO] = "auto",
};

int chunking_parse(const char *s, size_t len, enum chunking *ret)
{
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0) {
			*ret = (enum chunking)i;
			return 0;
		}
	return -EINVAL;
}

int chunking_parse_sizes(const char *s, struct cdc_params *ret)
{
	uint64_t sizes[3];
	struct cdc_params p;

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		const char *end = strchrnul(s, ':');
		char one[16];

		if ((*end == '\0') != (i + 1 == ARRAY_SIZE(sizes)) || (size_t)(end - s) >= sizeof(one))
			return -EINVAL;
		memcpy(one, s, (size_t)(end - s));
		one[end - s] = '\0';
		if (parse_size(one, &sizes[i]) < 0 || sizes[i] > PACK_VARIED_LEN_MAX)
			return -EINVAL;
		s = end + 1;
	}
	p = (struct cdc_params){ (uint32_t)sizes[0], (uint32_t)sizes[1], (uint32_t)sizes[2] };
	if (!cdc_params_valid(&p))
		return -EINVAL;
	*ret = p;
	return 0;
}
