/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/age.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/util.h"

uint64_t age_since(int64_t then_ns)
{
	int64_t now = (int64_t)now_ns();

	return now > then_ns ? (uint64_t)now - (uint64_t)then_ns : 0; /* a tier may have any time */
}

struct human human_age(uint64_t ns)
{
	static const struct {
		uint64_t s;
		char unit;
	} units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
	uint64_t s = ns / 1000000000;
	struct human h;
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(units) && s < units[i].s)
		i++;
	snprintf(h.s, sizeof(h.s), "%" PRIu64 "%c", s / units[i].s, units[i].unit);
	return h;
}
