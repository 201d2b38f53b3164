/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_watch.h"

#include <inttypes.h>
#include <string.h>

#include "base/json/json_flat.h"
#include "base/util.h"

struct stat_reading stat_reading_of(const struct json_flat *m)
{
	static const char *const known[] = {
		"written_by_cause.zero_bytes",	 "written_by_cause.previous_bytes", "written_by_cause.successor_bytes",
		"written_by_cause.memory_bytes", "written_by_cause.index_bytes",    "written_by_cause.shifted_bytes",
	};
	uint64_t plain = json_flat_u64(m, "compression.plain_bytes"),
		 stored = json_flat_u64(m, "compression.stored_bytes");
	struct stat_reading r = {
		.taken = true,
		.pid = json_flat_u64(m, "pid"),
		.uptime_ns = json_flat_u64(m, "uptime_ns"),
		.written = json_flat_u64(m, "written_bytes"),
		.read = json_flat_u64(m, "read_bytes"),
		.commits = json_flat_u64(m, "durability.commits"),
		.fresh = json_flat_u64(m, "written_by_cause.new_bytes"),
		.shrunk = plain - MIN(plain, stored),
	};

	r.cut = r.fresh;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		r.cut += json_flat_u64(m, known[i]);
	return r;
}

static void rate_line(FILE *to, const char *label, uint64_t bytes, double seconds)
{
	fprintf(to, "%-24s %7.1f MB/s", label, (double)bytes / 1e6 / seconds);
}

/* "10.00 : 1": of ten bytes written, one was stored. */
static void show_ratio(FILE *to, uint64_t cut, uint64_t fresh)
{
	char ratio[24] = "-";

	if (fresh > 0)
		snprintf(ratio, sizeof(ratio), "%.2f : 1", (double)cut / (double)fresh);
	fprintf(to, "%-24s %12s", "Deduplication:", ratio);
	if (cut == 0)
		fputs("  nothing was written", to);
	else
		fprintf(to, "  %.2f %% of the written bytes were known", 100.0 * (double)(cut - fresh) / (double)cut);
	fputs("\n\n", to);
}

void stat_show_rates(FILE *to, const struct stat_reading *before, const struct stat_reading *now)
{
	uint64_t fresh = now->fresh - before->fresh, shrunk = now->shrunk - before->shrunk;
	double seconds = (double)(now->uptime_ns - before->uptime_ns) / 1e9;

	if (!before->taken || before->pid != now->pid || now->uptime_ns <= before->uptime_ns) {
		fputs("Rates are shown from the second reading on.\n\n", to);
		return;
	}
	rate_line(to, "Written:", now->written - before->written, seconds);
	fprintf(to, "  in the last %.1f s\n", seconds);
	/* Compression follows with a delay, so it may concern bytes that the previous reading counted. */
	rate_line(to, "Stored:", fresh - MIN(fresh, shrunk), seconds);
	fputs("  new, after compression if enabled\n", to);
	rate_line(to, "Read:", now->read - before->read, seconds);
	fprintf(to, "\n%-24s %10.1f /s\n", "Commits:", (double)(now->commits - before->commits) / seconds);
	show_ratio(to, now->cut - before->cut, fresh);
}

/* Up to `columns` characters. */
static void draw_line(FILE *to, const char *p, size_t len, unsigned columns)
{
	unsigned n = 0;

	for (size_t i = 0; i < len; i++) {
		bool starts = (p[i] & 0xc0) != 0x80; /* start of a UTF-8 character */

		if (starts && columns > 0 && n++ == columns)
			break;
		fputc(p[i], to);
	}
	fputs("\033[K", to); /* clear the rest of the line */
}

void stat_draw(FILE *to, const char *text, size_t len, unsigned rows, unsigned columns)
{
	const char *p = text, *end = text + len;

	fputs("\033[H", to);
	/* Leave the last row to the cursor: a line feed there would scroll. */
	for (unsigned row = 1; p < end && (rows == 0 || row < rows); row++) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));

		stop = stop ? stop : end;
		draw_line(to, p, (size_t)(stop - p), columns);
		fputc('\n', to);
		p = stop + 1;
	}
	fputs("\033[J", to); /* clear the rows below */
}
