/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Buckets 0 to 3 hold 0 to 3 ns. From there on four buckets share each power of two: bucket
 * 4 * (e - 1) + q holds [2^e + q * 2^(e-2), 2^e + (q + 1) * 2^(e-2)). The last one is open above.
 */
#include "base/hist.h"

#include "base/util.h"

static size_t bucket_of(uint64_t ns)
{
	unsigned e;
	size_t b;

	if (ns < 4)
		return ns;
	e = 63 - (unsigned)__builtin_clzll(ns);
	b = 4 * (e - 1) + (ns >> (e - 2) & 3);
	return MIN(b, (size_t)HIST_BUCKETS - 1);
}

static uint64_t bucket_last_ns(size_t b)
{
	if (b < 4)
		return b;
	if (b == HIST_BUCKETS - 1)
		return UINT64_MAX;
	return ((uint64_t)(4 + b % 4 + 1) << (b / 4 - 1)) - 1;
}

void hist_add(struct hist *h, uint64_t ns)
{
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	atomic_fetch_add_explicit(&h->nr, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->bucket[bucket_of(ns)], 1, memory_order_relaxed);
	while (ns > max &&
	       !atomic_compare_exchange_weak_explicit(&h->max_ns, &max, ns, memory_order_relaxed, memory_order_relaxed))
		;
}

uint64_t hist_nr_below(const struct hist *h, uint64_t ns)
{
	uint64_t nr = 0;

	for (size_t i = 0; i < bucket_of(ns); i++)
		nr += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
	return nr;
}

uint64_t hist_quantile_ns(const struct hist *h, double share)
{
	uint64_t count[HIST_BUCKETS], total = 0, below = 0;
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	/* Use a copy, and its sum instead of h->nr: requests are added concurrently. */
	for (size_t i = 0; i < HIST_BUCKETS; i++)
		total += count[i] = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
	for (size_t i = 0; i < HIST_BUCKETS; i++) {
		below += count[i];
		if (count[i] > 0 && (double)below >= share * (double)total)
			return MIN(bucket_last_ns(i), max); /* a quantile above the maximum would puzzle */
	}
	return 0;
}
