/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * How cuts are found. A rolling hash consumes one byte after the other; here everything is a function of the bytes at
 * fixed distances before a position, computed for many positions at once:
 *
 *   1. The mark, a byte: p[i] ^ p[i - 3], plus twice that of 32 bytes earlier, four times that of 64 bytes
 *      earlier, and so on, until nothing of it is left in the byte. In range for one position in 256, more for small
 *      chunks. Equal bytes have mark 0, which is never in range: runs of zeros are passed over and cut at max.
 *   2. For marked positions a hash of the 32 bytes before, which must be small: the shorter the chunk would be, the
 *      smaller. So lengths gather around avg (normalised chunking, as in FastCDC).
 *
 * Much data has few bits per byte (flags, digits, small integers): with eight weights it still reaches all values of
 * the mark about equally often. Where marks are rare nevertheless, a mark is enough from any_from on. The range is at
 * the odd end: bytes with low bits that are always zero have even marks, which would crowd at the other end.
 */
#include "base/cdc.h"

#include <errno.h>
#include <inttypes.h>

#include "base/cdc_scan.h"
#include "base/log.h"
#include "base/util.h"

bool cdc_params_valid(const struct cdc_params *p)
{
	return p->min >= 256 && p->avg / 2 >= p->min && p->max / 2 >= p->avg && p->max <= MiB(1);
}

int cdc_params_check(const struct cdc_params *p)
{
	if (cdc_params_valid(p))
		return 0;
	return log_cause(-EINVAL,
			 "chunk sizes %" PRIu32 ", %" PRIu32 ", %" PRIu32
			 ": not 256 <= min, 2 min <= mean, 2 mean <= max <= 1048576",
			 p->min, p->avg, p->max);
}

size_t cdc_scan_scalar(const struct cdc *c, const uint8_t *p, size_t end)
{
	size_t first = c->params.min - 1;
	int8_t mark[CDC_STRIDE] = { 0 };

	for (size_t i = first - CDC_WARM_UP; i < end; i++) {
		int8_t *m = &mark[i % CDC_STRIDE];

		*m = (int8_t)(uint8_t)(2 * *m + (p[i] ^ p[i - CDC_LAG]));
		if (*m > c->mark_above && i >= first && cdc_accepts(c, p, i))
			return i + 1;
	}
	return 0;
}

void cdc_init(struct cdc *c, const struct cdc_params *p)
{
	uint32_t marked = MAX(4096 / p->avg, 1u); /* positions in 256: a few times as many as easy cuts */

	*c = (struct cdc){
		.params = *p,
		/* One position in 4 avg is a hard cut, one in avg / 4 an easy one. With this the mean is avg, within
		 * 1 %. */
		.easy_from = (p->avg * 29 - p->min * 7) / 32,
		.any_from = p->avg * 3 / 2,
		.hard_below = (uint32_t)((UINT64_C(1) << 38) / ((uint64_t)p->avg * marked)),
		.easy_below = (uint32_t)((UINT64_C(1) << 42) / ((uint64_t)p->avg * marked)),
		.mark_above = (int8_t)(127 - marked),
		.scan = cdc_scan_scalar,
	};
#if defined(__aarch64__)
	c->scan = cdc_scan_neon;
#elif defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		c->scan = cdc_scan_avx2;
#endif
}

size_t cdc_cut(const struct cdc *c, const void *p, size_t len)
{
	size_t end = MIN(len, (size_t)c->params.max), cut;

	if (len < c->params.min)
		return 0;
	cut = c->scan(c, p, end);
	return cut == 0 && len >= c->params.max ? end : cut;
}
