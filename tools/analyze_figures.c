#include "tools/analyze_figures.h"

#include "base/util.h"

struct figures figures_estimate(const struct figures *f)
{
	struct figures e = { .zero = f->zero, .data = f->data, .nr_chunks = f->nr_chunks };
	uint64_t known = 0;

	for (size_t i = 0; i < NEW; i++)
		known += f->source[i];
	e.source[NEW] = MIN(f->source[NEW], f->data);
	for (size_t i = 0; i < NEW && known > 0; i++)
		e.source[i] =
			(uint64_t)((double)(f->data - e.source[NEW]) * ((double)f->source[i] / (double)known) + 0.5);
	for (size_t i = 0; i < NR_CODECS && f->source[NEW] > 0; i++)
		e.coded[i] = f->coded[i] * ((double)e.source[NEW] / (double)f->source[NEW]);
	return e;
}
