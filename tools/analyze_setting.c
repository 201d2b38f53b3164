/*
 * The recommendation. Smaller is better, but what is simpler has other merits: pages are cut by counting, larger ones
 * need a smaller index, no compression costs no time, lz4 hardly any. So each step must pay.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/util.h"
#include "tools/analyze_report.h"

#define CUTTING_PERCENT 98 /* a finer cutting is worth it below this share of the coarser one's bytes */
#define CODEC_PERCENT 95   /* likewise compression, and zstd instead of lz4 */

static const char *const codec_names[] = { [CODEC_LZ4] = "lz4", [CODEC_ZSTD] = "zstd:3" };
static_assert(ZSTD_LEVEL == 3, "as the name says");

struct cutting_name cutting_name(const struct cutting *c)
{
	struct cutting_name n;

	if (c->page > 0)
		snprintf(n.s, sizeof(n.s), "pages of %s", human_size(c->page).s);
	else
		snprintf(n.s, sizeof(n.s), "content-defined chunks");
	return n;
}

static bool is_worth(uint64_t bytes, uint64_t than, unsigned percent)
{
	return (double)bytes < (double)than * percent / 100;
}

static uint64_t coded(const struct figures *f, int codec)
{
	return codec < 0 ? f->source[NEW] : figures_coded(f, (enum codec)codec);
}

static int best_codec(const struct figures *f)
{
	int best = -1;

	for (int codec = 0; codec < NR_CODECS; codec++)
		if (is_worth(coded(f, codec), coded(f, best), CODEC_PERCENT))
			best = codec;
	return best;
}

static double percent_less(uint64_t bytes, uint64_t than)
{
	return than > 0 ? 100 * (1 - (double)bytes / (double)than) : 0;
}

_printf_(2, 3) static void say(struct setting *s, const char *fmt, ...)
{
	size_t len = strlen(s->why);
	va_list args;

	va_start(args, fmt);
	vsnprintf(s->why + len, sizeof(s->why) - len, fmt, args);
	va_end(args);
}

/* "Pages of 4 KiB take 3.0 % less than content-defined chunks" */
static void say_chunking(const struct analysis *a, const uint64_t *sizes, struct setting *s)
{
	struct cutting_name mine = cutting_name(&a->cutting[s->cutting]);
	const char *joint = " take ";

	mine.s[0] = (char)toupper((unsigned char)mine.s[0]);
	say(s, "%s", mine.s);
	for (size_t i = 0; i < a->nr_cuttings; i++) {
		struct cutting_name other = cutting_name(&a->cutting[i]);
		double less = percent_less(s->expected, sizes[i]), more = -less;

		if (i == s->cutting)
			continue;
		if (less >= 0.05)
			say(s, "%s%.1f %% less than %s", joint, less, other.s);
		else if (more >= 0.05)
			say(s, "%sonly %.1f %% more than %s", joint, more, other.s);
		else
			say(s, "%sas much as %s", joint, other.s);
		joint = " and ";
	}
}

static void say_compression(const struct figures *f, struct setting *s)
{
	double lz4 = percent_less(coded(f, CODEC_LZ4), f->source[NEW]);
	double zstd = percent_less(coded(f, CODEC_ZSTD), f->source[NEW]);

	if (s->codec == CODEC_LZ4)
		say(s, "; lz4 makes them %.0f %% smaller, zstd:3 hardly more, %.0f %%.", lz4, zstd);
	else if (s->codec == CODEC_ZSTD)
		say(s, "; zstd:3 makes them %.0f %% smaller, lz4 %.0f %%.", zstd, lz4);
	else if (MAX(lz4, zstd) < 0.5)
		say(s, "; compression would not make them smaller.");
	else
		say(s, "; compression would make them only %.0f %% smaller.", MAX(lz4, zstd));
}

/* Sizes that are not the default: the figures are of these. */
static void write_options(const struct cutting *c, struct setting *s)
{
	const struct cdc_params *p = &c->cdc.params, usual = CDC_PARAMS_DEFAULT;
	char sizes[48] = "";

	if (c->page > 4096)
		snprintf(sizes, sizeof(sizes), ",page=%" PRIu32 "K", c->page / 1024);
	else if (c->page == 0 && (p->min != usual.min || p->avg != usual.avg || p->max != usual.max))
		snprintf(sizes, sizeof(sizes), ",cdc=%" PRIu32 ":%" PRIu32 ":%" PRIu32, p->min, p->avg, p->max);
	snprintf(s->options, sizeof(s->options), "chunking=%s%s,compress=%s", c->page > 0 ? "page" : "cdc", sizes,
		 s->codec < 0 ? "none" : codec_names[s->codec]);
}

void setting_recommend(const struct analysis *a, struct setting *ret)
{
	struct setting s = { 0 };
	struct figures f[NR_CUTTINGS_MAX];
	uint64_t sizes[NR_CUTTINGS_MAX];
	/* The coarsest first: larger pages, those of 4 KiB, by content. */
	const size_t order[] = { 1, 0, 2 };

	for (size_t i = 0; i < a->nr_cuttings; i++) {
		f[i] = figures_estimate(&a->total[i]);
		sizes[i] = coded(&f[i], best_codec(&f[i]));
	}
	s.cutting = a->nr_cuttings == 3 ? order[0] : 0;
	for (size_t k = 0; k < a->nr_cuttings; k++) {
		size_t i = a->nr_cuttings == 3 ? order[k] : k;

		if (is_worth(sizes[i], sizes[s.cutting], CUTTING_PERCENT))
			s.cutting = i;
	}
	s.codec = best_codec(&f[s.cutting]);
	s.expected = sizes[s.cutting];
	write_options(&a->cutting[s.cutting], &s);
	if (s.expected == 0) {
		say(&s, "There is nothing but zeros: any setting will do.");
	} else {
		say_chunking(a, sizes, &s);
		say_compression(&f[s.cutting], &s);
	}
	*ret = s;
}
