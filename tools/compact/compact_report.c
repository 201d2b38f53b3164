#include "tools/compact/compact_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"

#define SCHEMA_VERSION 1
#define KEY_WIDTH 36

void compact_rows_release(struct compact_rows *r)
{
	for (size_t i = 0; i < r->nr; i++)
		free(r->row[i].key);
	free(r->row);
	*r = (struct compact_rows){ 0 };
}

/* The row of a key, made where there is none. */
static struct compact_row *row_of(struct compact_rows *r, const char *key, struct code_type type)
{
	size_t low = 0, high = r->nr;
	char *copy;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(r->row[middle].key, key);

		if (order == 0)
			return &r->row[middle];
		*(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
	}
	if (r->nr == r->room) {
		size_t room = MAX(2 * r->room, (size_t)64);
		struct compact_row *more = reallocarray(r->row, room, sizeof(*more));

		if (!more)
			return NULL;
		r->row = more;
		r->room = room;
	}
	copy = strdup(key);
	if (!copy)
		return NULL;
	memmove(&r->row[low + 1], &r->row[low], (r->nr++ - low) * sizeof(*r->row));
	r->row[low] = (struct compact_row){ .key = copy, .type = type };
	return &r->row[low];
}

static void add_up(struct compact_row *to, const struct compact_row *row)
{
	to->plain += row->plain;
	to->coded += row->coded;
	to->before += row->before;
	to->after += row->after;
	to->kept += row->kept;
	to->known += row->known;
	to->code_ns += row->code_ns;
}

int compact_rows_add(struct compact_rows *r, const char *key, struct code_type type,
		     const struct ckptfs_compact_result *res)
{
	struct compact_row *row = row_of(r, key, type);

	if (!row)
		return -ENOMEM;
	add_up(row, &(struct compact_row){ .plain = res->plain,
					   .coded = res->coded,
					   .before = res->before,
					   .after = res->after,
					   .kept = res->kept,
					   .known = res->known,
					   .code_ns = res->code_ns });
	row->turns += res->turns == CKPTFS_COMPACT_TURNS ? res->coded : 0;
	if (res->coded > 0 && res->coded >= row->most) {
		snprintf(row->coder, sizeof(row->coder), "%s", res->coder);
		row->most = res->coded;
	}
	return 0;
}

static double ratio(const struct compact_row *row)
{
	return row->after > 0 ? (double)row->coded / (double)row->after : 1;
}

static double mb_per_s(const struct compact_row *row)
{
	return row->code_ns > 0 ? (double)(row->coded + row->kept) * 1000 / (double)row->code_ns : 0;
}

/* That most of it has. */
static const char *scheme(const struct compact_rows *r, const struct compact_row *row)
{
	bool turns = 2 * row->turns > row->coded;

	return row->coded == 0 ? "" :
	       r->aware	       ? (turns ? "aware-block" : "aware") :
	       turns	       ? "agnostic-block" :
				 "agnostic";
}

static const char *shown_key(const struct compact_rows *r, const struct compact_row *row)
{
	return *row->key ? row->key : r->aware ? "(no variable)" : "(whole files)";
}

static void print_line(const char *name, const char *type, const char *scheme_name, const struct compact_row *row)
{
	json_print_cell(stdout, name, KEY_WIDTH); /* names are users' bytes */
	printf(" %-6s %10s", type, human_size(row->plain).s);
	printf(" %10s", human_size(row->known).s);
	printf(" %10s", human_size(row->kept).s);
	printf(" %10s", human_size(row->coded).s);
	printf(" %10s", human_size(row->before).s);
	printf(" %10s %7.3f %7.0f  %-14s %s\n", human_size(row->after).s, ratio(row), mb_per_s(row), scheme_name,
	       row->coder);
}

static struct compact_row sum_up(const struct compact_rows *r)
{
	struct compact_row sum = { 0 };

	for (size_t i = 0; i < r->nr; i++)
		add_up(&sum, &r->row[i]);
	return sum;
}

/* Disk bytes saved; estimated for a dry run. */
static int64_t saved(const struct compact_rows *r, const struct compact_row *sum)
{
	return r->dry_run ? (int64_t)(sum->before - sum->after) : (int64_t)(r->freed - r->written);
}

void compact_rows_text(const struct compact_rows *r)
{
	struct compact_row sum = sum_up(r);
	int64_t less = saved(r, &sum);

	printf("%-*s %-6s %10s %10s %10s %10s %10s %10s %7s %7s  %-14s %s\n", KEY_WIDTH, "Variable", "type", "bytes",
	       "known", "kept", "coded", "from", "to", "ratio", "MB/s", "scheme", "coder");
	for (size_t i = 0; i < r->nr; i++)
		print_line(shown_key(r, &r->row[i]), code_type_name(r->row[i].type).s, scheme(r, &r->row[i]), &r->row[i]);
	print_line("together", "", "", &sum);
	printf("%s %s on disk (%" PRIu64 " files, %.1f s",
	       r->dry_run ? "Would save about" :
	       less < 0	  ? "Grew by" :
			    "Saved",
	       human_size((uint64_t)llabs(less)).s, r->nr_files, r->seconds);
	printf(", %.1f CPU s/GB)\n", sum.plain > 0 ? (double)sum.code_ns / (double)sum.plain : 0);
	if (!r->complete)
		puts("Not all was done; the next ckptfs-compact does the rest.");
}

static void json_figures(const struct compact_row *row)
{
	printf("\"bytes\":%" PRIu64 ",\"coded_bytes\":%" PRIu64 ",\"before_bytes\":%" PRIu64 ",\"after_bytes\":%" PRIu64
	       ",\"kept_bytes\":%" PRIu64 ",\"known_bytes\":%" PRIu64 ",\"code_ns\":%" PRIu64 ",\"ratio\":%.4f",
	       row->plain, row->coded, row->before, row->after, row->kept, row->known, row->code_ns, ratio(row));
}

void compact_rows_json(const struct compact_rows *r)
{
	struct compact_row sum = sum_up(r);

	printf("{\"schema_version\":%d,\"dry_run\":%s,\"complete\":%s,\"files\":%" PRIu64 ",\"seconds\":%.3f,",
	       SCHEMA_VERSION, r->dry_run ? "true" : "false", r->complete ? "true" : "false", r->nr_files, r->seconds);
	json_figures(&sum);
	printf(",\"saved_bytes\":%" PRId64, saved(r, &sum));
	fputs(",\"variables\":[", stdout);
	for (size_t i = 0; i < r->nr; i++) {
		fputs(i > 0 ? ",\n{\"key\":" : "\n{\"key\":", stdout);
		json_print_string(stdout, shown_key(r, &r->row[i]));
		printf(",\"type\":\"%s\",\"scheme\":\"%s\",\"coder\":\"%s\",", code_type_name(r->row[i].type).s,
		       scheme(r, &r->row[i]), r->row[i].coder);
		json_figures(&r->row[i]);
		putchar('}');
	}
	puts("]}");
}
