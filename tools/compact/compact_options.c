/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_options.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define CHAIN_MAX 15u

int compact_parse_chain(const struct conf_key *k, void *conf, const char *value, const char **ret_why)
{
	struct compact_planner *p = conf_field(k, conf);
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	*ret_why = "must be 0 to 15";
	if (*value < '0' || *value > '9' || *end || n > CHAIN_MAX)
		return -EINVAL;
	p->chain = (unsigned)n;
	p->chain_forced = true;
	return 0;
}

int compact_parse_budget(const struct conf_key *k, void *conf, const char *value, const char **ret_why)
{
	struct compact_planner *p = conf_field(k, conf);
	char *end;
	double n = strtod(value, &end);

	*ret_why = "must be CPU seconds per GB, more than 0";
	if (end == value || *end || !(n > 0 && n <= 1e6))
		return -EINVAL;
	p->budget = n;
	return 0;
}
