/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/compact/compact_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/json/json_write.h"
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

/* Finds or adds the row of a key. */
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
		snprintf(row->coder, sizeof(row->coder), "%.*s", (int)sizeof(res->coder), res->coder);
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

/* The scheme of most bytes. */
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
	json_print_cell(stdout, name, KEY_WIDTH); /* untrusted */
	printf(" %-6s %10s", type, human_size(row->plain).s);
	printf(" %10s", human_size(row->known).s);
	printf(" %10s", human_size(row->kept).s);
	printf(" %10s", human_size(row->coded).s);
	printf(" %10s", human_size(row->before).s);
	text_printf(stdout, " %10s %7.3f %7.0f  %-14s %s\n", human_size(row->after).s, ratio(row), mb_per_s(row),
		    scheme_name, row->coder);
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
	print_line("total", "", "", &sum);
	printf("%s %s on disk (%s, %.1f s",
	       r->dry_run ? "Would save about" :
	       less < 0	  ? "Grew by" :
			    "Saved",
	       human_size((uint64_t)llabs(less)).s, human_nr(r->nr_files, "file").s, r->seconds);
	printf(", %.1f CPU s/GB)\n", sum.plain > 0 ? (double)sum.code_ns / (double)sum.plain : 0);
	if (!r->complete)
		puts("Incomplete; the next ckptfs compact continues.");
}

static void add_figures(struct json *j, const struct compact_row *row)
{
	json_u64(j, "bytes", row->plain);
	json_u64(j, "coded_bytes", row->coded);
	json_u64(j, "before_bytes", row->before);
	json_u64(j, "after_bytes", row->after);
	json_u64(j, "kept_bytes", row->kept);
	json_u64(j, "known_bytes", row->known);
	json_u64(j, "code_ns", row->code_ns);
	json_real(j, "ratio", ratio(row), 4);
}

static void add_members(const struct compact_rows *r, struct json *j)
{
	struct compact_row sum = sum_up(r);

	json_u64(j, "schema_version", SCHEMA_VERSION);
	json_bool(j, "dry_run", r->dry_run);
	json_bool(j, "complete", r->complete);
	json_u64(j, "files", r->nr_files);
	json_real(j, "seconds", r->seconds, 3);
	add_figures(j, &sum);
	json_i64(j, "saved_bytes", saved(r, &sum));
	json_open_array(j, "variables");
	for (size_t i = 0; i < r->nr; i++) {
		json_line(j);
		json_open(j, NULL);
		json_string(j, "key", shown_key(r, &r->row[i]));
		json_string(j, "type", code_type_name(r->row[i].type).s);
		json_string(j, "scheme", scheme(r, &r->row[i]));
		json_string(j, "coder", r->row[i].coder);
		add_figures(j, &r->row[i]);
		json_close(j);
	}
	json_close_array(j);
}

void compact_rows_add_json(const struct compact_rows *r, struct json *j, const char *key)
{
	json_open(j, key);
	add_members(r, j);
	json_close(j);
}

void compact_rows_json(const struct compact_rows *r)
{
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	add_members(r, &j);
	json_end(&j);
}
