/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Chunkers beside one another, in memory: how fast each cuts, and what it saves on series of versions whose data
 * moves. All have the same smallest, mean and largest chunk. The rivals are the textbook forms: gear (one table
 * look-up, shift and addition per byte), a Rabin-style polynomial hash over a window of 48 bytes, and the maximum of
 * a window (RAM); pages of 4 KiB show what happens without looking at the content.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cdc_scan.h"
#include "base/fp.h"
#include "base/log.h"
#include "base/util.h"

#define PAGE 4096
#define ROUNDS 7
#define STEPS 8 /* versions of a series */
#define WINDOW 48

struct bench {
	const char *json;
	uint64_t size; /* of the noise, and a quarter of it for each version of a series */
	FILE *json_file;
	bool json_started;
};

static struct cdc vector, scalar;
static struct fp_key key;
static const struct cdc_params params = { 512, 4096, 32768 };

static uint64_t mix(uint64_t n) /* splitmix64 */
{
	n += 0x9e3779b97f4a7c15;
	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

static uint64_t next(uint64_t *seed)
{
	return mix((*seed)++);
}

static void figure(struct bench *b, const char *group, const char *field, const char *suffix, double value)
{
	if (!b->json_file)
		return;
	fprintf(b->json_file, "%s\n  \"%s%s%s\": %.4f", b->json_started ? "," : "{", group, field, suffix, value);
	b->json_started = true;
}

/* Chunkers: the length of the first chunk of p; the rest of the data is a chunk, too. */

static uint64_t gear_table[256];

static size_t cut_gear(const uint8_t *p, size_t len)
{
	size_t end = MIN(len, (size_t)params.max), i = params.min;
	uint64_t h = 0;

	/* Unrolled by hand: twice as fast as the plain loop, and a fair rival. One position in 4096 is a cut. */
#define STEP(k)                                \
	h = (h << 1) + gear_table[p[i + (k)]]; \
	if (h >> 52 == 0)                      \
		return i + (k) + 1;
	for (; i + 8 <= end; i += 8) {
		STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
	}
	for (; i < end; i++) {
		STEP(0)
	}
#undef STEP
	return end;
}

static uint64_t rabin_out[256]; /* what a byte adds that is about to leave the window */

#define RABIN_BASE UINT64_C(0x9b97714def8a3c2d)

static size_t cut_rabin(const uint8_t *p, size_t len)
{
	size_t end = MIN(len, (size_t)params.max);
	uint64_t h = 0;

	for (size_t i = params.min - WINDOW; i < end; i++) {
		if (i >= params.min)
			h -= rabin_out[p[i - WINDOW]];
		h = h * RABIN_BASE + p[i] + 1;
		if (i >= params.min && h >> 52 == 0)
			return i + 1;
	}
	return end;
}

/* The first byte behind a window that is not below the window's maximum: of noise 256 bytes after it. */
static size_t cut_maximum(const uint8_t *p, size_t len)
{
	size_t end = MIN(len, (size_t)params.max), i = 0;
	uint8_t max = 0;

	for (; i < end && i < params.avg - 256; i++)
		max = MAX(max, p[i]);
	for (; i < end; i++)
		if (p[i] >= max)
			return i + 1;
	return end;
}

static size_t cut_page(const uint8_t *p _unused_, size_t len)
{
	return MIN(len, (size_t)PAGE);
}

static size_t cut_scalar(const uint8_t *p, size_t len)
{
	size_t cut = cdc_cut(&scalar, p, len);

	return cut > 0 ? cut : len;
}

static size_t cut_vector(const uint8_t *p, size_t len)
{
	size_t cut = cdc_cut(&vector, p, len);

	return cut > 0 ? cut : len;
}

struct chunker {
	const char *field, *what;
	size_t (*cut)(const uint8_t *p, size_t len);
};

enum { BY_PAGE, GEAR, RABIN, MAXIMUM, SCALAR, VECTOR, NR_CHUNKERS };

static const struct chunker chunkers[NR_CHUNKERS] = {
	[BY_PAGE] = { "page", "pages", cut_page },
	[GEAR] = { "gear", "gear, scalar", cut_gear },
	[RABIN] = { "rabin", "Rabin-style, window of 48", cut_rabin },
	[MAXIMUM] = { "maximum", "maximum of a window (RAM)", cut_maximum },
	[SCALAR] = { "scalar", "ckptfs, scalar", cut_scalar },
	[VECTOR] = { "vector", "ckptfs, vectors", cut_vector },
};

static void init_chunkers(void)
{
	uint64_t power = 1;

	for (int i = 0; i < WINDOW - 1; i++)
		power *= RABIN_BASE;
	for (uint64_t i = 0; i < 256; i++) {
		gear_table[i] = mix(i);
		rabin_out[i] = (i + 1) * power;
	}
	fp_key_init(&key, FP_CLMUL, (const uint8_t[FP_KEY_LEN]){ 0 });
	cdc_init(&vector, &params);
	cdc_init(&scalar, &params);
	scalar.scan = cdc_scan_scalar;
}

/* Speed. Time on the processor, the best of some rounds: what else runs there is not what is measured. */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t cut_ns(const struct chunker *c, const uint8_t *p, size_t len)
{
	uint64_t start = cpu_ns();

	for (size_t off = 0; off < len;)
		off += c->cut(p + off, len - off);
	return cpu_ns() - start;
}

static size_t hash_page(const uint8_t *p, size_t len)
{
	static volatile uint64_t sink;
	size_t n = MIN(len, (size_t)PAGE);

	sink = sink ^ fp_of(&key, p, n).lo;
	return n;
}

/* All take turns in each round. */
static void speed(struct bench *b, const uint8_t *noise)
{
	static const struct chunker fp = { "fp", "fingerprints of pages", hash_page };
	uint64_t best[NR_CHUNKERS + 1];

	memset(best, 0xff, sizeof(best));
	for (int round = 0; round < ROUNDS; round++)
		for (size_t i = GEAR; i <= NR_CHUNKERS; i++)
			best[i] = MIN(best[i], cut_ns(i < NR_CHUNKERS ? &chunkers[i] : &fp, noise, b->size));
	printf("  %-44s%10s%10s\n", "noise", "GB/s", "x gear");
	for (size_t i = GEAR; i <= NR_CHUNKERS; i++) {
		const struct chunker *c = i < NR_CHUNKERS ? &chunkers[i] : &fp;
		double rate = (double)b->size / (double)best[i];

		printf("  %-44s%10.2f%10.2f", c->what, rate, (double)best[GEAR] / (double)best[i]);
		printf(i == VECTOR ? best[GEAR] >= 4 * best[i] ? "  (>= 4)\n" : "  (>= 4 MISSED)\n" : "\n");
		figure(b, "speed_", c->field, "_gb_s", rate);
	}
	fflush(stdout);
}

/* Data. Each fills len bytes, all from the seed. */

static void fill_noise(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = next(seed);

		memcpy(p + i, &v, MIN(len - i, sizeof(v)));
	}
}

static void fill_doubles(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		double v = 1 + (double)(next(seed) >> 12) * 0x1p-52;

		memcpy(p + i, &v, sizeof(v));
	}
}

/* Doubles with the precision of floats: three of eight bytes vary. */
static void fill_widened(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		double v = 1 + (double)(next(seed) >> 41) * 0x1p-23;

		memcpy(p + i, &v, sizeof(v));
	}
}

/* Rows of four 32-bit integers: running number, kind, small count, a neighbour's number. */
static void fill_table(uint64_t *seed, uint8_t *p, size_t len)
{
	uint32_t nr = (uint32_t)next(seed) % 1000000;

	for (size_t i = 0; i + 16 <= len; i += 16, nr++) {
		uint64_t n = next(seed);
		uint32_t row[4] = { nr, 1 + n % 4, (uint32_t)(n >> 8) % 60, nr + (uint32_t)(n >> 32) % 1000 };

		memcpy(p + i, row, sizeof(row));
	}
}

static void fill_indices(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		uint64_t v = next(seed) % 50000;

		memcpy(p + i, &v, sizeof(v));
	}
}

static void fill_counters(uint64_t *seed, uint8_t *p, size_t len)
{
	uint32_t v = (uint32_t)next(seed) % 1000000;

	for (size_t i = 0; i + 4 <= len; i += 4, v++)
		memcpy(p + i, &v, sizeof(v));
}

static void fill_text(uint64_t *seed, uint8_t *p, size_t len)
{
	static const char *const words[] = {
		"rank",	    "step",	 "energy", "of",    "the",	   "cell", "warning:", "iteration",
		"residual", "converged", "in",	   "block", "temperature", "is",   "wrote",    "to",
	};
	char line[200];

	for (size_t i = 0; i < len;) {
		uint64_t n = next(seed), w = next(seed);
		size_t l = (size_t)snprintf(line, sizeof(line), "12:%02u:%02u.%03u [%u] %s %s %s %s %u.%04u\n",
					    (unsigned)(n % 60), (unsigned)(n >> 8) % 60, (unsigned)(n >> 16) % 1000,
					    (unsigned)(n >> 32) % 64, words[w % 16], words[w >> 4 & 15],
					    words[w >> 8 & 15], words[w >> 12 & 15], (unsigned)(w >> 16) % 100,
					    (unsigned)(w >> 32) % 10000);

		memcpy(p + i, line, MIN(l, len - i));
		i += l;
	}
}

static void fill_flags(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = next(seed) & 1;
}

/*
 * A series: each version is the one before with a change per 64 KiB at random places, of 1 to 16 records: taken out,
 * put in, or (pages) replaced.
 */
struct series {
	const char *field, *what;
	void (*fill)(uint64_t *seed, uint8_t *p, size_t len);
	size_t record; /* bytes */
	bool in_place;
};

static const struct series all_series[] = {
	{ "noise", "noise, shifted", fill_noise, 1, false },
	{ "doubles", "doubles, shifted", fill_doubles, 8, false },
	{ "widened", "doubles from floats, shifted", fill_widened, 8, false },
	{ "table", "rows of small integers, shifted", fill_table, 16, false },
	{ "indices", "64-bit indices, shifted", fill_indices, 8, false },
	{ "counters", "32-bit counters, shifted", fill_counters, 4, false },
	{ "text", "log lines, shifted", fill_text, 1, false },
	{ "flags", "bytes of 0 or 1, shifted", fill_flags, 1, false },
	{ "pages", "noise, pages replaced", fill_noise, PAGE, true },
};

static size_t change(const struct series *s, uint64_t *seed, uint8_t *p, size_t len)
{
	size_t at = next(seed) % (len / s->record) * s->record;
	size_t n = s->in_place ? s->record : (1 + next(seed) % 16) * s->record;

	if (s->in_place) {
		s->fill(seed, p + at, n);
		return len;
	}
	n = MIN(n, len - at);
	if (next(seed) % 2) {
		memmove(p + at, p + at + n, len - at - n);
		return len - n;
	}
	memmove(p + at + n, p + at, len - at);
	s->fill(seed, p + at, n);
	return len + n;
}

/* Which chunks were seen: a hash table of fingerprints. */
struct seen {
	struct fp *slot; /* zero: free */
	size_t nr_slots; /* power of two, never half full */
};

static bool seen_add(struct seen *s, struct fp fp)
{
	size_t i = fp.lo & (s->nr_slots - 1);

	for (; s->slot[i].lo | s->slot[i].hi; i = (i + 1) & (s->nr_slots - 1))
		if (fp_equal(s->slot[i], fp))
			return false;
	s->slot[i] = fp;
	return true;
}

struct saving {
	struct seen seen;
	uint64_t total, stored, nr;
};

static void store(struct saving *v, const struct chunker *c, const uint8_t *p, size_t len)
{
	for (size_t off = 0, n; off < len; off += n) {
		n = c->cut(p + off, len - off);
		if (seen_add(&v->seen, fp_of(&key, p + off, n)))
			v->stored += n;
		v->total += n;
		v->nr++;
	}
}

static double saved(const struct saving *v)
{
	return 100 - 100 * (double)v->stored / (double)v->total;
}

static void report_series(struct bench *b, const struct series *s, const struct saving *v, double rate)
{
	double ratio = saved(&v[VECTOR]) / saved(&v[RABIN]);

	printf("  %-32s", s->what);
	for (size_t i = 0; i < NR_CHUNKERS; i++) {
		if (i == SCALAR)
			continue;
		printf("%9.2f", saved(&v[i]));
		figure(b, s->field, "_saved_", chunkers[i].field, saved(&v[i]));
	}
	printf("%9.3f%9.0f%9.2f%s\n", ratio, (double)v[VECTOR].total / (double)v[VECTOR].nr, rate,
	       ratio >= 0.98 ? "" : "  (>= 0.98 x Rabin MISSED)");
	fflush(stdout);
	figure(b, s->field, "_mean_", "rabin", (double)v[RABIN].total / (double)v[RABIN].nr);
	figure(b, s->field, "_mean_", "vector", (double)v[VECTOR].total / (double)v[VECTOR].nr);
	figure(b, s->field, "_gb_s_", "vector", rate);
}

static int run_series(struct bench *b, const struct series *s)
{
	size_t len = round_down(b->size / 4, PAGE), room = 2 * len;
	_cleanup_(freep) uint8_t *p = malloc(room);
	struct saving v[NR_CHUNKERS] = { 0 };
	uint64_t seed = mix((uint64_t)(s - all_series)) >> 1;
	uint64_t best = UINT64_MAX; /* ps per KB */
	int r = 0;

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < NR_CHUNKERS; i++) {
		v[i].seen.nr_slots = 1;
		while (v[i].seen.nr_slots < STEPS * room / params.min * 2)
			v[i].seen.nr_slots *= 2;
		v[i].seen.slot = calloc(v[i].seen.nr_slots, sizeof(*v[i].seen.slot));
		if (!v[i].seen.slot)
			r = -ENOMEM;
	}
	s->fill(&seed, p, len);
	for (int step = 0; r == 0 && step < STEPS; step++) {
		for (size_t i = 0; i < NR_CHUNKERS; i++)
			if (i != SCALAR)
				store(&v[i], &chunkers[i], p, len);
		best = MIN(best, cut_ns(&chunkers[VECTOR], p, len) * 1000 / (len / 1000));
		for (size_t i = b->size / 4 / KiB(64); i > 0 && len < room - KiB(64); i--)
			len = change(s, &seed, p, len);
	}
	if (r == 0)
		report_series(b, s, v, 1e6 / (double)best);
	for (size_t i = 0; i < NR_CHUNKERS; i++)
		free(v[i].seen.slot);
	return r;
}

static int run(struct bench *b)
{
	_cleanup_(freep) uint8_t *noise = malloc(b->size);
	uint64_t seed = 1 << 20;
	int r = 0;

	if (!noise)
		return -ENOMEM;
	init_chunkers();
	fill_noise(&seed, noise, b->size);
	speed(b, noise);
	printf("  %-32s%9s%9s%9s%9s%9s%9s%9s%9s\n", "saved, %", "pages", "gear", "Rabin", "maximum", "ckptfs",
	       "x Rabin", "chunk", "GB/s");
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all_series); i++)
		r = run_series(b, &all_series[i]);
	return r;
}

static void usage(void)
{
	printf("bench_chunk [OPTION]...\n"
	       "Speed and savings of chunkers, in memory.\n"
	       "  --size MIB     of noise for speed; versions of series have a quarter (64)\n"
	       "  --json FILE    write the figures there too\n");
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "size", required_argument, NULL, 's' },
		{ "json", required_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct bench b = { .size = MiB(64) };
	int c, r;

	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 's') {
			b.size = MiB(strtoull(optarg, NULL, 10));
		} else if (c == 'j') {
			b.json = optarg;
		} else {
			usage();
			return c == 'h' ? EXIT_SUCCESS : EXIT_FAILURE;
		}
	}
	if (optind != argc || b.size == 0) {
		usage();
		return EXIT_FAILURE;
	}
	if (b.json) {
		b.json_file = fopen(b.json, "w");
		if (!b.json_file) {
			log_errno(-errno, "%s: cannot write", b.json);
			return EXIT_FAILURE;
		}
	}
	r = run(&b);
	if (b.json_file) {
		fprintf(b.json_file, "\n}\n");
		if (fclose(b.json_file) != 0)
			r = log_errno(-errno, "%s: cannot write", b.json);
	}
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
