/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The median of some times, which are sorted for it. */
#pragma once

#include <stdlib.h>

static inline int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static inline double median(double *times, int nr)
{
	qsort(times, (size_t)nr, sizeof(*times), by_size);
	return times[nr / 2];
}
