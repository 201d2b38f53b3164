/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"
#include "tools/stat/report_style.h"

#define BARS_MAX 48u
#define NS_PER_S 1000000000
#define DAY_S UINT64_C(86400)

/* --- the head --- */

static void put_head(FILE *to, const struct report *r)
{
	const struct record_reading *now = &r->record->reading[r->record->nr - 1];

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
	      "<meta name=\"generator\" content=\"ckptfs-stat " CKPTFS_VERSION "\">\n<title>ckptfs: ",
	      to);
	html_text(to, json_flat_get(r->mount, "mountpoint"));
	fprintf(to, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header>\n<h1>", report_style);
	html_name(to, json_flat_get(r->mount, "mountpoint"));
	fputs("</h1>\n<p class=\"soft\">A ckptfs mount of <code>", to);
	html_name(to, json_flat_get(r->mount, "store"));
	fputs("</code>, as it was at ", to);
	parts_time(to, (time_t)now->time_s);
	fputs(".</p>\n</header>\n<main>\n", to);
}

static void put_card(FILE *to, const char *value, const char *label)
{
	fprintf(to, "<li><b>%s</b> <span>%s</span></li>\n", value, label);
}

static void put_cards(FILE *to, const struct report *r)
{
	uint64_t logical = json_flat_u64(r->mount, "logical_bytes"), disk = json_flat_u64(r->mount, "disk_bytes");
	char saved[32], files[32];

	snprintf(files, sizeof(files), "%zu", r->walk->nr_files);
	if (disk <= logical)
		snprintf(saved, sizeof(saved), "%.1f %%", logical ? 100 - parts_percent(disk, logical) : 0);
	else
		snprintf(saved, sizeof(saved), "nothing");
	fputs("<ul class=\"cards\">\n", to);
	put_card(to, human_size(logical).s, "in files, without holes");
	put_card(to, human_size(disk).s, "on disk");
	put_card(to, saved, "saved");
	put_card(to, files, r->walk->nr_files == 1 ? "file" : "files");
	if (strcmp(json_flat_get(r->mount, "garbage.known"), "true") == 0)
		put_card(to, human_size(json_flat_u64(r->mount, "garbage.bytes")).s, "garbage at the last collection");
	fputs("</ul>\n", to);
}

/* --- over time --- */

/* Bytes written per new byte between two readings of one daemon; -1: unknown. */
static double ratio_between(const struct record_reading *a, const struct record_reading *b)
{
	if (a->pid != b->pid || b->uptime_s < a->uptime_s || b->cut < a->cut || b->fresh <= a->fresh)
		return -1;
	return (double)(b->cut - a->cut) / (double)(b->fresh - a->fresh);
}

/* Bytes were written, and none of them was new. */
static bool all_known(const struct record_reading *a, const struct record_reading *b)
{
	return a->pid == b->pid && b->uptime_s >= a->uptime_s && b->cut > a->cut && b->fresh == a->fresh;
}

static void put_readings_table(FILE *to, const struct record *rec)
{
	fputs("<details><summary>The readings as a table</summary><div class=\"wide\"><table><thead><tr><th>Time</th>"
	      "<th class=\"n\">In files</th><th class=\"n\">Distinct</th><th class=\"n\">On disk</th>"
	      "<th class=\"n\">Written : new since the last</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < rec->nr; i++) {
		const struct record_reading *o = &rec->reading[i];
		double ratio = i > 0 ? ratio_between(&rec->reading[i - 1], o) : -1;

		fputs("<tr><th scope=\"row\">", to);
		parts_time(to, (time_t)o->time_s);
		fputs("</th>", to);
		parts_size_cell(to, o->logical);
		parts_size_cell(to, o->stored);
		parts_size_cell(to, o->disk);
		if (ratio >= 0)
			fprintf(to, "<td class=\"n\">%.2f</td></tr>\n", ratio);
		else
			fprintf(to, "<td class=\"n\">%s</td></tr>\n",
				i > 0 && all_known(o - 1, o) ? "all known" : "&ndash;");
	}
	fputs("</tbody></table></div></details>\n", to);
}

/* y: 4 * nr values. */
static void put_reading_charts(FILE *to, const struct record *rec, time_t *x, double *y)
{
	size_t nr = rec->nr;
	double *ratio = y + 3 * nr;
	struct chart_series sizes[] = { { "in files", y }, { "distinct", y + nr }, { "on disk", y + 2 * nr } };
	struct chart_series ratios[] = { { "written for each new byte", ratio } };
	bool any = false;

	for (size_t i = 0; i < nr; i++) {
		const struct record_reading *o = &rec->reading[i];

		x[i] = (time_t)o->time_s;
		y[i] = (double)o->logical;
		y[nr + i] = (double)o->stored;
		y[2 * nr + i] = (double)o->disk;
		ratio[i] = i > 0 ? ratio_between(o - 1, o) : -1;
		any = any || ratio[i] >= 0;
	}
	fputs("<figure>\n", to);
	chart_lines(to, &(struct chart){ "Bytes in files, distinct bytes and bytes on disk at each reading", x, nr,
					 sizes, ARRAY_SIZE(sizes), true });
	chart_legend(to, sizes, ARRAY_SIZE(sizes));
	fputs("</figure>\n", to);
	if (!any)
		return;
	fputs("<h3>Deduplication between readings</h3>\n"
	      "<p class=\"soft\">Bytes written for each byte that was new.</p>\n<figure>\n",
	      to);
	chart_lines(to, &(struct chart){ "Bytes written for each byte that was new, between one reading and the next",
					 x, nr, ratios, ARRAY_SIZE(ratios), false });
	fputs("</figure>\n", to);
}

/* Sums over sealed checkpoints in the order of sealing: known without earlier readings. */
static void put_seal_growth(FILE *to, const struct seals *s)
{
	_cleanup_(freep) time_t *x = calloc(s->nr + 1, sizeof(*x));
	_cleanup_(freep) double *y = calloc(s->nr + 1, 2 * sizeof(*y));
	double *fresh = y ? y + s->nr : NULL;
	struct chart_series series[] = { { "sizes", y }, { "new bytes", fresh } };
	double sizes = 0, sum = 0;
	size_t nr = 0;

	for (size_t i = 0; i < s->nr && x && y; i++) {
		if (!(s->v[i].facts & CKPTFS_SEAL_HAS_ROOT))
			continue;
		x[nr] = (time_t)(s->v[i].sealed_ns / NS_PER_S);
		y[nr] = sizes += (double)s->v[i].bytes;
		fresh[nr++] = sum += (double)s->v[i].new_bytes;
	}
	if (nr < 2)
		return;
	fputs("<h3>Growth by sealed checkpoints</h3>\n<p class=\"soft\">Sizes and new bytes of the sealed checkpoints that "
	      "exist, summed in the order of sealing.</p>\n<figure>\n",
	      to);
	chart_lines(to, &(struct chart){ "Sums of sizes and of new bytes of sealed checkpoints, by time of sealing", x,
					 nr, series, ARRAY_SIZE(series), true });
	chart_legend(to, series, ARRAY_SIZE(series));
	fputs("</figure>\n", to);
}

static void put_readings(FILE *to, const struct report *r)
{
	const struct record *rec = r->record;
	_cleanup_(freep) time_t *x = calloc(rec->nr, sizeof(*x));
	_cleanup_(freep) double *y = calloc(rec->nr, 4 * sizeof(*y));

	parts_open(to, "time", "Size and deduplication over time",
		   "The store keeps no history, but this page does: each time it is written again under the same name, it adds a "
		   "reading. Write it after every checkpoint, or from a timer.");
	if (rec->nr < 2)
		fputs("<p>This is the first reading. The next one starts the chart.</p>\n", to);
	else if (x && y)
		put_reading_charts(to, rec, x, y);
	put_readings_table(to, rec);
	put_seal_growth(to, &r->seals->all);
	fputs("</section>\n", to);
}

/* --- by the time of the last write --- */

/* The shortest round interval of which at most BARS_MAX cover the span. */
static uint64_t round_step(uint64_t span_s)
{
	static const uint64_t steps[] = { 1,	 2,	5,	   10,	      15,	  30,	     60,    120,
					  300,	 600,	900,	   1800,      3600,	  7200,	     14400, 21600,
					  43200, DAY_S, 2 * DAY_S, 7 * DAY_S, 14 * DAY_S, 30 * DAY_S };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (span_s / steps[i] + 2 <= BARS_MAX)
			return steps[i];
	return (span_s / (BARS_MAX - 2) / DAY_S + 1) * DAY_S;
}

static void put_step(FILE *to, uint64_t step_s)
{
	static const struct {
		uint64_t s;
		const char *name;
	} units[] = { { DAY_S, "day" }, { 3600, "hour" }, { 60, "minute" }, { 1, "second" } };
	size_t i = 0;

	while (step_s % units[i].s != 0)
		i++;
	fprintf(to, "%" PRIu64 " %s%s", step_s / units[i].s, units[i].name, step_s == units[i].s ? "" : "s");
}

struct intervals {
	uint64_t step_s;
	size_t nr;
	time_t x[BARS_MAX];
	double fresh[BARS_MAX], again[BARS_MAX];
	uint64_t files[BARS_MAX];
};

static void count_seals(const struct walk *w, struct intervals *ret)
{
	time_t from = w->files[0].mtime, last = w->files[w->nr_files - 1].mtime, step;

	ret->step_s = round_step((uint64_t)(last - from));
	step = (time_t)ret->step_s;
	from -= (from % step + step) % step; /* a file may be from before 1970 */
	ret->nr = (size_t)((uint64_t)(last - from) / ret->step_s) + 1;
	for (size_t i = 0; i < ret->nr; i++)
		ret->x[i] = from + (time_t)(i * ret->step_s);
	for (size_t i = 0; i < w->nr_files; i++) {
		const struct walk_file *f = &w->files[i];
		size_t at = (size_t)((uint64_t)(f->mtime - from) / ret->step_s);

		*(f->again ? &ret->again[at] : &ret->fresh[at]) += (double)f->mapped;
		ret->files[at]++;
	}
}

static void put_intervals_table(FILE *to, const struct intervals *e)
{
	double sum = 0;

	fputs("<details><summary>The intervals as a table</summary><div class=\"wide\"><table><thead><tr><th>From</th>"
	      "<th class=\"n\">Files</th><th class=\"n\">Size</th><th class=\"n\">Identical to an older file</th>"
	      "<th class=\"n\">Size so far</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < e->nr; i++) {
		if (e->files[i] == 0)
			continue;
		sum += e->fresh[i] + e->again[i];
		fputs("<tr><th scope=\"row\">", to);
		parts_time(to, e->x[i]);
		fputs("</th>", to);
		parts_number_cell(to, e->files[i]);
		parts_size_cell(to, (uint64_t)(e->fresh[i] + e->again[i]));
		parts_size_cell(to, (uint64_t)e->again[i]);
		parts_size_cell(to, (uint64_t)sum);
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table></div></details>\n", to);
}

static void put_intervals(FILE *to, const struct report *r)
{
	struct intervals e = { 0 };
	struct chart_series series[] = { { "new content", e.fresh }, { "identical to an older file", e.again } };

	parts_open(to, "times", "Files by time of writing",
		   "Existing files by the time of their last write. A file that is equal to an older one as a whole is "
		   "counted separately; partial sharing with older files is not.");
	if (r->walk->nr_files == 0) {
		fputs("<p>There are no files.</p>\n</section>\n", to);
		return;
	}
	count_seals(r->walk, &e);
	fputs("<figure>\n", to);
	chart_bars(to,
		   &(struct chart){ "Bytes of files by the time they were last written", e.x, e.nr, series,
				    ARRAY_SIZE(series), true },
		   e.step_s);
	chart_legend(to, series, ARRAY_SIZE(series));
	fputs("<figcaption>Each bar is ", to);
	put_step(to, e.step_s);
	fputs(".</figcaption>\n</figure>\n", to);
	put_intervals_table(to, &e);
	fputs("</section>\n", to);
}

/* --- the page --- */

static void put_foot(FILE *to, const struct report *r)
{
	fputs("</main>\n<footer>\n<p>Made by <code>ckptfs stat --html</code> of ckptfs ", to);
	html_text(to, json_flat_get(r->mount, "version"));
	fputs("; the store is <code>", to);
	html_text(to, json_flat_get(r->mount, "store_id"));
	fputs("</code>. Times are those of the machine that made it. The page loads no external resources.</p>\n", to);
	if (r->walk->nr_unread > 0)
		fprintf(to, "<p>Not counted, because it could not be read: %s.</p>\n",
			human_nr(r->walk->nr_unread, "entry").s);
	fputs("</footer>\n", to);
	record_print(to, r->record);
	fputs("</body>\n</html>\n", to);
}

void report_print(FILE *to, const struct report *r)
{
	put_head(to, r);
	parts_health(to, r);
	parts_seals(to, r);
	parts_delete(to, r);
	put_cards(to, r);
	put_readings(to, r);
	put_intervals(to, r);
	parts_savings(to, r);
	parts_fragmentation(to, r);
	parts_files(to, r);
	parts_directories(to, r);
	put_foot(to, r);
}
