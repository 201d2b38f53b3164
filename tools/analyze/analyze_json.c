/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/util.h"
#include "tools/analyze/analyze_report.h"

#define SCHEMA_VERSION 1

static void add_figures(struct json *j, uint64_t size, const struct scratch_figures *f)
{
	json_u64(j, "zero_bytes", size - MIN(size, f->previous + f->known + f->new));
	json_u64(j, "previous_bytes", f->previous);
	json_u64(j, "known_bytes", f->known);
	json_u64(j, "new_bytes", f->new);
}

static void add_file(struct json *j, const struct report *r, size_t i)
{
	const struct file *f = &r->files->file[i];

	json_line(j);
	json_open(j, NULL);
	json_string(j, "path", f->path);
	json_string(j, "series", f->series_name);
	json_u64(j, "size_bytes", f->size);
	json_u64(j, "hole_bytes", f->holes);
	if (f->error < 0)
		json_string(j, "error", strerror(-f->error));
	json_open_array(j, "stores");
	for (size_t k = 0; k < r->stores->nr && r->stores->is_measured[i]; k++) {
		json_open(j, NULL);
		add_figures(j, f->size, &r->stores->figure[k].file[i]);
		json_close(j);
	}
	json_close_array(j);
	json_close(j);
}

static uint64_t measured_size(const struct report *r)
{
	uint64_t size = 0;

	for (size_t i = 0; i < r->files->nr; i++)
		size += r->stores->is_measured[i] ? r->files->file[i].size : 0;
	return size;
}

static void add_stores(struct json *j, const struct report *r)
{
	const struct stores *st = r->stores;
	uint64_t size = st->nr > 0 ? measured_size(r) : 0;

	json_line(j);
	json_open(j, "measured");
	json_u64(j, "files", st->nr_files);
	json_u64(j, "data_bytes", st->measured);
	json_open_array(j, "stores");
	for (size_t i = 0; i < st->nr; i++) {
		const struct store_figure *f = &st->figure[i];

		json_line(j);
		json_open(j, NULL);
		json_string(j, "chunking", f->chunking);
		json_string(j, "compress", f->compress);
		json_string(j, "options", f->options);
		add_figures(j, size, &f->all);
		json_u64(j, "store_bytes", f->bytes);
		if (st->compacted)
			json_u64(j, "compacted_bytes", f->compacted);
		json_close(j);
	}
	json_close_array(j);
	json_close(j);
}

static void add_recommended(struct json *j, const struct stores *st)
{
	struct store_choice c = stores_choose(st);

	json_line(j);
	json_open(j, "recommended");
	json_string(j, "options", st->figure[c.figure].options);
	json_bool(j, "compact", c.compact);
	json_u64(j, "expected_bytes", c.bytes);
	json_string(j, "why", REPORT_WHY);
	json_close(j);
}

static void add_rivals(struct json *j, const struct rival *rivals)
{
	json_line(j);
	json_open_array(j, "rivals");
	for (size_t i = 0; i < NR_RIVALS; i++) {
		json_open(j, NULL);
		json_string(j, "name", rivals[i].name);
		json_u64(j, "coded_bytes", rivals[i].coded);
		json_u64(j, "encode_ns", rivals[i].ns);
		json_close(j);
	}
	json_close_array(j);
}

static void add_total(struct json *j, const struct report *r)
{
	json_line(j);
	json_open(j, "total");
	json_u64(j, "files", r->files->nr);
	json_u64(j, "series", r->files->nr_series);
	json_u64(j, "size_bytes", r->files->size);
	json_u64(j, "hole_bytes", r->files->holes);
	json_close(j);
}

void report_json(const struct report *r)
{
	struct json j = json_to_file(stdout);
	const struct stores *st = r->stores;

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_bool(&j, "complete", st->complete);
	json_string(&j, "dedup", dedup_names[r->dedup]);
	json_bool(&j, "fsync", r->fsync);
	json_open_array(&j, "files");
	for (size_t i = 0; i < r->files->nr; i++)
		add_file(&j, r, i);
	json_close_array(&j);
	add_total(&j, r);
	add_stores(&j, r);
	if (st->nr > 0)
		add_recommended(&j, st);
	if (r->variables && st->nr > 0 && st->compacted) {
		json_line(&j);
		json_open(&j, "compacted");
		json_string(&j, "options", st->figure[st->rows_of].options);
		compact_rows_add_json(&st->rows, &j, "report");
		json_close(&j);
	}
	if (r->rivals)
		add_rivals(&j, r->rivals);
	if (r->images)
		images_add_json(r->images, &j, "images");
	json_end(&j);
}
