/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/report_parts.h"

#include <inttypes.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/util.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"

#define DIRECTORIES_MAX 20u

double parts_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

void parts_open(FILE *to, const char *id, const char *title, const char *text)
{
	fprintf(to, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n<p class=\"soft\">%s</p>\n", id, id,
		title, text);
}

void parts_number_cell(FILE *to, uint64_t n)
{
	fprintf(to, "<td class=\"n\">%" PRIu64 "</td>", n);
}

void parts_size_cell(FILE *to, uint64_t bytes)
{
	fprintf(to, "<td class=\"n\">%s</td>", human_size(bytes).s);
}

void parts_percent_cell(FILE *to, uint64_t part, uint64_t whole)
{
	fprintf(to, "<td class=\"n\">%.1f %%</td>", parts_percent(part, whole));
}

void parts_bar_cell(FILE *to, uint64_t part, uint64_t whole)
{
	fputs("<td class=\"bar\">", to);
	chart_cell(to, part, whole);
	fputs("</td>", to);
}

void parts_time(FILE *to, time_t t)
{
	struct tm tm;
	char text[64];

	if (localtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &tm) > 0)
		fputs(text, to);
}

void parts_badge(FILE *to, enum health health, const char *text)
{
	static const char *const classes[] = { "ok", "warning", "critical" };

	fprintf(to, "<span class=\"badge %s\">%s</span>", classes[health], text);
}

char *parts_below(const char *mountpoint, const char *name)
{
	char *path;

	return asprintf(&path, "%s/%s", mountpoint, name) < 0 ? NULL : path;
}

void parts_path(FILE *to, const char *path)
{
	if (path[0])
		html_name(to, path);
	else
		fputs("(the mountpoint itself)", to);
}

/* --- where the savings come from --- */

static void put_stage(FILE *to, const char *name, uint64_t bytes, uint64_t whole, const char *why)
{
	fprintf(to, "<tr><th scope=\"row\">%s</th>", name);
	parts_bar_cell(to, bytes, whole);
	parts_size_cell(to, bytes);
	parts_percent_cell(to, bytes, whole);
	fprintf(to, "<td class=\"soft\">%s</td></tr>\n", why);
}

static void put_stages(FILE *to, const struct json_flat *m)
{
	uint64_t logical = json_flat_u64(m, "logical_bytes"), disk = json_flat_u64(m, "disk_bytes"),
		 whole = MAX(logical, disk);

	fputs("<div class=\"wide\"><table><thead><tr><th>Now</th><th></th><th class=\"n\">Size</th>"
	      "<th class=\"n\">Of files</th><th></th></tr></thead><tbody>\n",
	      to);
	put_stage(to, "In files", logical, whole, "without holes");
	put_stage(to, "Distinct", json_flat_u64(m, "stored_bytes"), whole, "each chunk once, garbage included");
	put_stage(to, "Compressed", json_flat_u64(m, "compressed_bytes"), whole, "where enabled and worthwhile");
	put_stage(to, "On disk", disk, whole, "with tables, journal and index");
	fputs("</tbody></table></div>\n", to);
}

static void put_causes(FILE *to, const struct json_flat *m)
{
	struct chart_part parts[] = {
		{ "new: stored", json_flat_u64(m, "written_by_cause.new_bytes") },
		{ "unchanged since the previous version", json_flat_u64(m, "written_by_cause.previous_bytes") },
		{ "next to a known chunk", json_flat_u64(m, "written_by_cause.successor_bytes") },
		{ "known, found in memory", json_flat_u64(m, "written_by_cause.memory_bytes") },
		{ "known, found in the index", json_flat_u64(m, "written_by_cause.index_bytes") },
		{ "moved, found in the previous version", json_flat_u64(m, "written_by_cause.shifted_bytes") },
		{ "zeros", json_flat_u64(m, "written_by_cause.zero_bytes") },
	};
	uint64_t whole = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		whole += parts[i].value;
	fputs("<h3>Bytes written since the mount, by result</h3>\n", to);
	if (whole == 0) {
		fputs("<p>Nothing was written since the mount.</p>\n", to);
		return;
	}
	fputs("<figure>\n", to);
	chart_share(to, "Bytes written since the mount, by result", parts, ARRAY_SIZE(parts));
	fputs("</figure>\n<table><tbody>\n", to);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		fprintf(to,
			"<tr><th scope=\"row\"><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"s%zu\" "
			"width=\"10\" height=\"10\" rx=\"2\"/></svg>%s</th>",
			i, parts[i].name);
		parts_size_cell(to, parts[i].value);
		parts_percent_cell(to, parts[i].value, whole);
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table>\n", to);
}

void parts_savings(FILE *to, const struct report *r)
{
	parts_open(to, "savings", "Where the savings come from", "From the content of files to bytes on disk.");
	put_stages(to, r->mount);
	put_causes(to, r->mount);
	fputs("</section>\n", to);
}

/* --- fragmentation --- */

static void put_worst(FILE *to, const struct walk *w)
{
	fputs("<h3>The most scattered files</h3>\n<div class=\"wide\"><table><thead><tr><th>File</th><th class=\"n\">Size</th>"
	      "<th class=\"n\">Places</th><th class=\"n\">Per MiB</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < w->nr_worst; i++) {
		fputs("<tr><th scope=\"row\" class=\"mono\">", to);
		html_name(to, w->worst[i].name);
		fputs("</th>", to);
		parts_size_cell(to, w->worst[i].mapped);
		parts_number_cell(to, w->worst[i].frames);
		fprintf(to, "<td class=\"n\">%.2f</td></tr>\n",
			walk_fragmentation(w->worst[i].frames, w->worst[i].mapped));
	}
	fputs("</tbody></table></div>\n", to);
}

void parts_fragmentation(FILE *to, const struct report *r)
{
	static const char *const classes[WALK_CLASSES] = { "up to 1", "up to 2",  "up to 4",
							   "up to 8", "up to 16", "more" };
	const struct walk *w = r->walk;

	parts_open(to, "fragmentation", "Fragmentation",
		   "Places in packs that reading a file visits, per MiB. A file written at once has 1; each further one costs time, "
		   "above all on rotating disks.");
	fprintf(to, "<p>Over all files: <strong>%.2f</strong> places per MiB.</p>\n",
		walk_fragmentation(w->frames, w->mapped));
	fputs("<div class=\"wide\"><table><thead><tr><th>Places per MiB</th><th></th><th class=\"n\">Size</th>"
	      "<th class=\"n\">Share</th><th class=\"n\">Files</th></tr></thead><tbody>\n",
	      to);
	for (unsigned i = 0; i < WALK_CLASSES; i++) {
		fprintf(to, "<tr><th scope=\"row\">%s</th>", classes[i]);
		parts_bar_cell(to, w->class_mapped[i], w->mapped);
		parts_size_cell(to, w->class_mapped[i]);
		parts_percent_cell(to, w->class_mapped[i], w->mapped);
		parts_number_cell(to, w->class_files[i]);
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table></div>\n", to);
	if (w->nr_worst > 0)
		put_worst(to, w);
	fputs("</section>\n", to);
}

/* --- directories --- */

static void put_directory(FILE *to, const struct walk_directory *d, uint64_t largest)
{
	fputs("<tr><th scope=\"row\" class=\"mono\">", to);
	parts_path(to, d->name);
	fputs("</th>", to);
	parts_bar_cell(to, d->mapped, largest);
	parts_size_cell(to, d->mapped);
	parts_size_cell(to, d->again);
	parts_number_cell(to, d->files);
	fprintf(to, "<td class=\"n\">%.2f</td></tr>\n", walk_fragmentation(d->frames, d->mapped));
}

unsigned parts_level(const struct walk *w)
{
	size_t named = 0;

	for (size_t i = 0; i < w->nr_directories[0]; i++)
		named += w->directories[0][i].name[0] != '\0';
	return named > 1 || w->nr_directories[1] < 2 ? 0 : 1;
}

void parts_directories(FILE *to, const struct report *r)
{
	const struct walk *w = r->walk;
	unsigned level = parts_level(w);
	const struct walk_directory *d = w->directories[level];
	size_t nr = w->nr_directories[level];
	struct walk_directory others = { 0 };

	parts_open(
		to, "directories", "Space by directory",
		"Content of files, before deduplication: a chunk that several directories share counts in each of them.");
	if (nr == 0) {
		fputs("<p>There are no files.</p>\n</section>\n", to);
		return;
	}
	fputs("<div class=\"wide\"><table><thead><tr><th>Directory</th><th></th><th class=\"n\">Size</th>"
	      "<th class=\"n\">Identical to older</th><th class=\"n\">Files</th>"
	      "<th class=\"n\">Places per MiB</th></tr></thead><tbody>\n",
	      to);
	for (size_t i = 0; i < MIN(nr, (size_t)DIRECTORIES_MAX); i++)
		put_directory(to, &d[i], d[0].mapped);
	for (size_t i = DIRECTORIES_MAX; i < nr; i++) {
		others.files += d[i].files;
		others.mapped += d[i].mapped;
	}
	fputs("</tbody></table></div>\n", to);
	if (nr > DIRECTORIES_MAX)
		fprintf(to, "<p class=\"soft\">And %zu more, with %s of %s.</p>\n", nr - DIRECTORIES_MAX,
			human_nr(others.files, "file").s, human_size(others.mapped).s);
	fputs("</section>\n", to);
}
