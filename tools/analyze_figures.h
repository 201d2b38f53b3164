/* What one way of cutting makes of one file, or of all files together. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Where bytes of a chunk have been seen before, the nearest first. */
enum source { FROM_SELF, FROM_SERIES, FROM_RANKS, FROM_OTHERS, NEW, NR_SOURCES };

enum codec { CODEC_LZ4, CODEC_ZSTD, NR_CODECS };
#define ZSTD_LEVEL 3

/* Bytes. In a sample, `source` and `coded` are of the sampled chunks, each times what it stands for. */
struct figures {
	uint64_t zero, data, nr_chunks; /* exact; zero + data is the size, of pages rounded up to a whole one */
	uint64_t source[NR_SOURCES];
	double coded[NR_CODECS]; /* of the new ones */
};

static inline void figures_add(struct figures *to, const struct figures *f)
{
	to->zero += f->zero;
	to->data += f->data;
	to->nr_chunks += f->nr_chunks;
	for (size_t i = 0; i < NR_SOURCES; i++)
		to->source[i] += f->source[i];
	for (size_t i = 0; i < NR_CODECS; i++)
		to->coded[i] += f->coded[i];
}

static inline uint64_t figures_coded(const struct figures *f, enum codec codec)
{
	return (uint64_t)llround(f->coded[codec]);
}

/* Of the file itself: a page that reaches beyond its end is a whole one only in a store. */
static inline uint64_t figures_zero(const struct figures *f, uint64_t size)
{
	return f->zero < size ? f->zero : size;
}

/*
 * The same as figures to show. If they are exact, nothing changes. New bytes of a sample are the estimate, though not
 * more than there is data; the rest of the data has been seen before, where the sample says in proportion.
 */
struct figures figures_estimate(const struct figures *f);
