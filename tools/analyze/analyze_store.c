/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"

#define FIRST_INO 16u /* inode number of the first file */

/* The current store, and its current plan. */
struct work {
	const struct stores_conf *conf;
	struct stores *stores;
	struct files *all;
	struct files files; /* measured files: the array is owned, the strings are borrowed */
	size_t *number; /* index of each of them in `all` */
	size_t *order; /* indexes in `files`, in order of writing */
	struct scratch scratch;
	uint64_t before, after; /* progress before and after this store */
	uint64_t written; /* before the current file */
	bool stopped;

	struct compact_rows rows;
	uint64_t *inos;
	size_t nr_inos, room_inos;
	struct compact_variable *variable;
	size_t nr_variables, room_variables;
	struct compact_extent *extent;
	size_t nr_extents, room_extents;
};

static uint64_t ino_of(size_t measured)
{
	return FIRST_INO + measured;
}

/* Writing counts as half of the work on a store, compaction as the other half. */
static bool report_progress(struct work *s, uint64_t done, bool is_compacting)
{
	uint64_t all = s->stores->measured;
	double part = all > 0 ? (double)MIN(done, all) / (double)all / 2 + (is_compacting ? 0.5 : 0) : 1;
	uint64_t bytes = s->before + (uint64_t)((double)(s->after - s->before) * part);

	s->stopped = s->stopped || !s->conf->step(s->conf->userdata, bytes);
	return !s->stopped;
}

/* --- writing --- */

static bool write_goes_on(void *userdata, uint64_t done)
{
	struct work *s = userdata;

	return report_progress(s, s->written + done, false);
}

/* After a read error, the bytes read so far count. */
static int write_file(struct work *s, size_t i, uint64_t previous, struct store_figure *to)
{
	const struct file *f = &s->files.file[i];
	struct file *listed = &s->all->file[s->number[i]];
	_cleanup_(closep) int fd = open_plain_noatime(AT_FDCWD, f->path, O_RDONLY | O_CLOEXEC);
	struct scratch_file from = { .ino = ino_of(i),
				     .previous = previous,
				     .uid = f->uid,
				     .gid = f->gid,
				     .path = f->path,
				     .fd = fd,
				     .len = f->size };
	int r, error;

	if (listed->error < 0)
		return 0;
	if (fd < 0) {
		listed->error = complain(-errno, "%s: cannot open", f->path);
		return 0;
	}
	r = scratch_write(&s->scratch, &from, write_goes_on, s, &to->file[s->number[i]], &error);
	if (r < 0)
		return r;
	listed->error = error < 0 ? error : listed->error;
	scratch_figures_add(&to->all, &to->file[s->number[i]]);
	s->written += f->size - MIN(f->size, f->holes);
	return 0;
}

/* The previous version is the last file written of the same series, as a mount finds it by name. */
static int write_all(struct work *s, struct store_figure *to)
{
	_cleanup_(freep) uint64_t *last = calloc(s->all->nr_series + 1, sizeof(*last));
	int r = last ? 0 : -ENOMEM;

	s->written = 0;
	for (size_t k = 0; k < s->files.nr && r == 0 && !s->stopped; k++) {
		size_t i = s->order[k];

		r = write_file(s, i, last[s->files.file[i].series], to);
		last[s->files.file[i].series] = ino_of(i);
	}
	return r;
}

/* --- compacting --- */

static int make_room(void **p, size_t nr, size_t *room, size_t size)
{
	size_t more = MAX(2 * *room, (size_t)256);
	void *q;

	if (nr < *room)
		return 0;
	q = reallocarray(*p, more, size);
	if (!q)
		return -ENOMEM;
	*p = q;
	*room = more;
	return 0;
}

static bool plan_goes_on(void *userdata, uint64_t bytes)
{
	return report_progress(userdata, bytes, true);
}

static int plan_check(_unused_ void *userdata, _unused_ const struct set *set)
{
	return 0;
}

static int plan_begin(_unused_ void *userdata)
{
	return 0;
}

static void plan_end(void *userdata)
{
	struct work *s = userdata;

	for (size_t i = 0; i < s->nr_variables; i++)
		free((char *)s->variable[i].key);
	s->nr_inos = s->nr_variables = s->nr_extents = 0;
}

static int plan_file(void *userdata, const struct set_member *m, uint32_t *ret)
{
	struct work *s = userdata;
	int r = make_room((void **)&s->inos, s->nr_inos, &s->room_inos, sizeof(*s->inos));

	if (r < 0)
		return r;
	*ret = (uint32_t)s->nr_inos;
	s->inos[s->nr_inos++] = ino_of((size_t)(m->file - s->files.file));
	return 0;
}

static int plan_variable(void *userdata, const char *key, const struct coding_shape *shape, uint32_t before,
			 bool rounded)
{
	struct work *s = userdata;
	struct compact_variable v = { .key = strdup(key), .shape = *shape };
	int r = make_room((void **)&s->variable, s->nr_variables, &s->room_variables, sizeof(*s->variable));

	if (r < 0 || !v.key) {
		free((char *)v.key);
		return -ENOMEM;
	}
	*(rounded ? &v.wide : &v.before) = before;
	s->variable[s->nr_variables++] = v;
	return 0;
}

static int plan_extent(void *userdata, uint32_t file, uint64_t off, uint64_t len)
{
	struct work *s = userdata;
	int r = make_room((void **)&s->extent, s->nr_extents, &s->room_extents, sizeof(*s->extent));

	if (r < 0)
		return r;
	s->extent[s->nr_extents++] = (struct compact_extent){ file, off, len };
	s->variable[s->nr_variables - 1].nr_extents++;
	return 0;
}

static bool compact_goes_on(void *userdata, _unused_ const struct compact_report *so_far)
{
	struct work *s = userdata;

	return report_progress(s, s->stores->measured, true);
}

static int take_results(struct work *s, const struct compact_planner *p, const struct compact_result *result)
{
	int r = 0;

	for (size_t i = 0; i < s->nr_variables && r == 0; i++) {
		const struct compact_result *from = &result[i];
		struct ckptfs_compact_result res = { .plain = from->plain,
						     .coded = from->coded,
						     .before = from->before,
						     .after = from->after,
						     .kept = from->kept,
						     .known = from->known,
						     .code_ns = from->code_ns,
						     .turns = from->turns ? CKPTFS_COMPACT_TURNS : CKPTFS_COMPACT_WHOLE };

		snprintf(res.coder, sizeof(res.coder), "%s", code_name(&from->coder).s);
		r = compact_rows_add(&s->rows, p->planned[i].key, p->planned[i].type, &res);
	}
	return r;
}

static int plan_run(void *userdata, const struct compact_planner *p)
{
	struct work *s = userdata;
	_cleanup_(freep) struct compact_result *result = calloc(s->nr_variables + 1, sizeof(*result));
	struct compact_conf conf = { .inos = s->inos,
				     .variable = s->variable,
				     .nr_variables = s->nr_variables,
				     .result = result,
				     .order = p->scheme == SCHEME_AUTO ? COMPACT_BEST :
					      p->scheme == SCHEME_AWARE_BLOCK || p->scheme == SCHEME_AGNOSTIC_BLOCK ?
									 COMPACT_TURNS :
									 COMPACT_WHOLE,
				     .block = p->block,
				     .chain = p->chain,
				     .chain_forced = p->chain_forced,
				     .budget = p->budget,
				     .step = compact_goes_on,
				     .userdata = s };
	const struct compact_extent *x = s->extent;
	struct compact_report report = { 0 };
	int r;

	if (!result)
		return -ENOMEM;
	for (size_t i = 0; i < s->nr_variables; x += s->variable[i++].nr_extents)
		s->variable[i].extent = x;
	r = engine_compact(s->scratch.e, &conf, &report);
	if (r == 0)
		r = take_results(s, p, result);
	s->rows.nr_files += p->plan_files;
	s->rows.freed += report.freed;
	s->rows.written += report.written;
	return r;
}

static int plan_report_error(_unused_ void *userdata, int error)
{
	return error;
}

static const struct compact_target scratch_target = {
	.goes_on = plan_goes_on,
	.check = plan_check,
	.begin = plan_begin,
	.file = plan_file,
	.variable = plan_variable,
	.extent = plan_extent,
	.run = plan_run,
	.end = plan_end,
	.report_error = plan_report_error,
};

static int compact_all(struct work *s)
{
	struct compact_planner p = *s->conf->planner;
	uint64_t from = monotonic_ns();
	int r;

	p.target = &scratch_target;
	p.userdata = s;
	r = compact_planner_run(&p, &s->files);
	s->rows.aware = p.any_aware;
	s->rows.complete = r == 0 && !p.incomplete && !s->stopped;
	s->rows.seconds = (double)(monotonic_ns() - from) / 1e9;
	compact_planner_release(&p);
	return r < 0 ? complain(r, "%s: cannot compact the scratch store", s->scratch.path) : 0;
}

/* --- stores --- */

/* Includes sizes that differ from the defaults, since the figures depend on them. */
static void write_options(const struct stores_conf *c, struct store_figure *f)
{
	const struct cdc_params usual = CDC_PARAMS_DEFAULT;
	bool has_cdc = strcmp(f->chunking, "page") != 0 && memcmp(&c->cdc, &usual, sizeof(usual)) != 0;
	bool has_page = strcmp(f->chunking, "cdc") != 0 && c->page != 4096;
	static const char *const domains[NR_FP_DOMAIN_KINDS] = { "", ",dedup=group", ",dedup=user" };
	char page[24] = "", cdc[48] = "";

	if (has_page)
		snprintf(page, sizeof(page), ",page=%" PRIu32 "K", c->page / 1024);
	if (has_cdc)
		snprintf(cdc, sizeof(cdc), ",cdc=%" PRIu32 ":%" PRIu32 ":%" PRIu32, c->cdc.min, c->cdc.avg, c->cdc.max);
	snprintf(f->options, sizeof(f->options), "chunking=%s%s%s,compress=%s%s", f->chunking, page, cdc, f->compress,
		 domains[c->dedup]);
}

static int fill_store(struct work *s, struct store_figure *ret)
{
	const struct stores_conf *c = s->conf;
	struct engine_conf conf = { .page = c->page, .cdc = c->cdc, .dedup = 1 + (int)c->dedup };
	int r;

	if (chunking_parse(ret->chunking, strlen(ret->chunking), &conf.chunking) < 0 ||
	    compress_parse(ret->compress, strlen(ret->compress), &conf.compress) < 0)
		return -EINVAL;
	r = scratch_open(&s->scratch, c->where, &conf);
	s->scratch.fsync = c->fsync;
	if (r == 0)
		r = write_all(s, ret);
	if (r == 0 && !s->stopped)
		r = scratch_measure(&s->scratch, &ret->bytes);
	ret->compacted = ret->bytes;
	if (c->no_compact)
		return r;
	if (r == 0 && !s->stopped)
		r = compact_all(s);
	if (r == 0 && !s->stopped)
		r = scratch_measure(&s->scratch, &ret->compacted);
	return r;
}

/* Keeps the results of compaction if this store is the smallest so far. */
static void keep_rows(struct work *s, size_t store)
{
	struct stores *st = s->stores;

	if (store > 0 && st->figure[store].compacted >= st->figure[st->rows_of].compacted)
		return;
	compact_rows_release(&st->rows);
	st->rows = s->rows;
	st->rows_of = store;
	s->rows = (struct compact_rows){ 0 };
}

static int try_store(struct work *s, const char *chunking, const char *compress)
{
	struct stores *st = s->stores;
	struct store_figure *f = &st->figure[st->nr];
	int r;

	*f = (struct store_figure){ .chunking = chunking,
				    .compress = compress,
				    .file = calloc(MAX(s->all->nr, (size_t)1), sizeof(*f->file)) };
	if (!f->file)
		return -ENOMEM;
	write_options(s->conf, f);
	r = fill_store(s, f);
	scratch_remove(&s->scratch);
	if (r == 0 && !s->stopped)
		keep_rows(s, st->nr++);
	else
		free(TAKE(f->file));
	compact_rows_release(&s->rows);
	return r;
}

/* --- all stores --- */

/* Chooses the newest `nr` of each series; returns their bytes. Files of a series are adjacent, ordered by step. */
static uint64_t take_newest(const struct files *files, size_t nr, bool *ret)
{
	uint64_t bytes = 0;
	size_t behind = 0;

	for (size_t i = files->nr; i-- > 0;) {
		behind = i + 1 < files->nr && files->file[i + 1].series == files->file[i].series ? behind + 1 : 0;
		ret[i] = behind < nr;
		bytes += ret[i] ? files->file[i].size - MIN(files->file[i].size, files->file[i].holes) : 0;
	}
	return bytes;
}

static int by_mtime(const void *left, const void *right, void *files)
{
	size_t a = *(const size_t *)left, b = *(const size_t *)right;
	const struct file *file = ((const struct files *)files)->file;

	if (file[a].mtime_ns != file[b].mtime_ns)
		return file[a].mtime_ns < file[b].mtime_ns ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Chooses as many steps as fit into the limit. */
static int choose_files(struct work *s)
{
	const struct files *files = s->all;
	struct stores *st = s->stores;
	size_t nr = files->nr, n = 0;

	s->files = *files;
	s->files.file = calloc(MAX(files->nr, (size_t)1), sizeof(*s->files.file));
	s->number = calloc(MAX(files->nr, (size_t)1), sizeof(*s->number));
	s->order = calloc(MAX(files->nr, (size_t)1), sizeof(*s->order));
	st->is_measured = calloc(MAX(files->nr, (size_t)1), sizeof(*st->is_measured));
	if (!s->files.file || !s->number || !s->order || !st->is_measured)
		return -ENOMEM;
	while (nr > 0 && take_newest(files, nr, st->is_measured) > s->conf->limit)
		nr = nr > 16 ? nr * 3 / 4 : nr - 1;
	if (nr == 0 && files->nr > 0) {
		refuse("one step of all files exceeds %s: give a larger --measure", human_size(s->conf->limit).s);
		return -EFBIG;
	}
	st->measured = take_newest(files, nr, st->is_measured);
	for (size_t i = 0; i < files->nr; i++) {
		st->is_measured[i] = st->is_measured[i] && files->file[i].error == 0;
		if (!st->is_measured[i])
			continue;
		s->order[n] = n;
		s->number[n] = i;
		s->files.file[n++] = files->file[i];
	}
	s->files.nr = st->nr_files = n;
	qsort_r(s->order, n, sizeof(*s->order), by_mtime, &s->files);
	return 0;
}

static bool is_wanted(const char *name, const char *given)
{
	return !given || strcmp(name, given) == 0;
}

static int try_all(struct work *s)
{
	static const char *const chunkings[] = { "page", "cdc", "auto" };
	const char *const compressions[] = { "none", s->conf->compress ? s->conf->compress : "zstd" };
	size_t first = s->conf->compress ? 1 : 0, nr = 0, at = 0;
	int r = 0;

	for (size_t k = 0; k < ARRAY_SIZE(chunkings); k++)
		nr += is_wanted(chunkings[k], s->conf->chunking) ? ARRAY_SIZE(compressions) - first : 0;
	for (size_t i = first; i < ARRAY_SIZE(compressions); i++)
		for (size_t k = 0; k < ARRAY_SIZE(chunkings) && r == 0 && !s->stopped; k++) {
			if (!is_wanted(chunkings[k], s->conf->chunking))
				continue;
			s->before = s->all->size / nr * at++;
			s->after = s->all->size / nr * at;
			r = try_store(s, chunkings[k], compressions[i]);
		}
	return r;
}

int stores_run(struct stores *ret, const struct stores_conf *conf, struct files *files)
{
	struct work *s = calloc(1, sizeof(*s));
	int r;

	*ret = (struct stores){ .compacted = !conf->no_compact };
	if (!s)
		return -ENOMEM;
	s->conf = conf;
	s->stores = ret;
	s->all = files;
	r = choose_files(s);
	if (r == 0) /* compaction copies before it frees, and a plan may have all files */
		r = scratch_check_room(conf->where, conf->no_compact ? ret->measured : 2 * ret->measured);
	if (r == 0)
		r = try_all(s);
	ret->stopped = s->stopped;
	ret->complete = r == 0 && !s->stopped;
	for (size_t i = 0; i < files->nr; i++)
		ret->complete &= files->file[i].error == 0;
	free(s->files.file);
	free(s->number);
	free(s->order);
	free(s->inos);
	free(s->variable);
	free(s->extent);
	free(s);
	return r;
}

void stores_release(struct stores *s)
{
	for (size_t i = 0; i < s->nr; i++)
		free(s->figure[i].file);
	free(s->is_measured);
	compact_rows_release(&s->rows);
	*s = (struct stores){ 0 };
}

struct store_choice stores_choose(const struct stores *s)
{
	uint64_t least = UINT64_MAX, bytes;
	size_t i = 0;

	for (size_t k = 0; k < s->nr; k++) {
		least = MIN(least, s->figure[k].bytes);
		least = MIN(least, s->figure[k].compacted);
	}
	/* prefer not to compact; the loop ends at the latest at the smallest */
	do
		bytes = i < s->nr ? s->figure[i].bytes : s->figure[i - s->nr].compacted;
	while (bytes > least + least / 100 && ++i < 2 * s->nr);
	return (struct store_choice){ i % s->nr, i >= s->nr, bytes };
}
