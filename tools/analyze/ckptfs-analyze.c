/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-analyze: estimate the savings of ckptfs on existing files, without a mount.
 *
 * The engine writes the files into scratch stores, which are measured and removed. So there is no second
 * implementation of chunking, deduplication, compression and recoding that could differ.
 *
 * Exit status: 0 done, 1 usage, 2 there is nothing to analyze, or something could not be read or measured (the
 * figures are of the rest), 130
 * interrupted (the figures are of the stores completed by then).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/log.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"
#include "tools/analyze/analyze_report.h"
#include "tools/common/classifier.h"
#include "tools/compact/compact_options.h"
#include "tools/common/interrupt.h"
#include "tools/common/names_file.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"

#define CDC_MAX KiB(64) /* the limit of the mount option cdc */
#define CDC_LIMITS "must be 256 <= min, 2 min <= avg, 2 avg <= max <= 64K"

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_INTERRUPTED = 130 };

struct request {
	struct stores_conf conf;
	struct compact_planner planner;
	bool json, quiet, variables, rivals, images;
	char helper[PATH_MAX]; /* ckptfs-classify */
	struct names_file names;
	char *chunking, *compress; /* these are as given, and copied to conf */
	uint64_t page, min, avg, max;

	struct files files;
	struct progress progress;
	const char *doing;
};

static bool report_progress(void *userdata, uint64_t bytes)
{
	struct request *q = userdata;

	progress_show(&q->progress, q->doing, bytes, q->files.size, true);
	return !interrupted();
}

static int look_at_images(struct request *q, struct images *is)
{
	struct images_conf conf = { .where = q->conf.where,
				    .page = q->conf.page,
				    .cdc = q->conf.cdc,
				    .helper = q->helper,
				    .step = report_progress,
				    .userdata = q };

	q->doing = "reading images";
	return images_run(is, &conf, &q->files);
}

static int find_files(struct request *q, char *paths[], int nr)
{
	int failed = 0, r;

	for (int i = 0; i < nr; i++) {
		watchdog_set_path(paths[i]);
		r = files_add(&q->files, paths[i]);
		if (r == -ENOMEM)
			return r;
		failed = r < 0 ? r : failed;
	}
	r = files_arrange(&q->files);
	if (r == 0)
		files_examine(&q->files);
	return r < 0 ? r : failed;
}

static int analyze(struct request *q, char *paths[], int nr)
{
	_cleanup_(stores_release) struct stores stores = { 0 };
	_cleanup_(images_release) struct images images = { 0 };
	struct rival rivals[NR_RIVALS] = { 0 };
	struct report report = { .files = &q->files,
				 .stores = &stores,
				 .dedup = q->conf.dedup,
				 .fsync = q->conf.fsync,
				 .variables = q->variables };
	int failed = find_files(q, paths, nr), r = 0;

	if (failed == -ENOMEM)
		return failed;
	if (q->files.nr == 0 && failed == 0) {
		refuse("no files to analyze; give files with data, or directories with such files");
		failed = q->json ? 0 : -ENOENT;
	}
	if (q->files.nr == 0 && (failed < 0 || !q->json))
		return failed;
	q->doing = "measuring stores";
	r = stores_run(&stores, &q->conf, &q->files);
	if (r == 0 && q->rivals && !interrupted()) {
		q->doing = "compressing";
		r = rivals_run(&q->files, report_progress, q, rivals);
		report.rivals = rivals;
	}
	if (r == 0 && q->images && !interrupted()) {
		r = look_at_images(q, &images);
		report.images = &images;
	}
	progress_clear(&q->progress);
	if (r == -ENOMEM)
		return r;
	(q->json ? report_json : report_text)(&report);
	if (r == 0 && !interrupted() && (!stores.complete || (stores.compacted && !stores.rows.complete) ||
					 (report.images && !images.complete)))
		r = -EIO; /* already reported */
	return r < 0 ? r : failed;
}

/* Prints log messages of base/ and the engine. */
static void on_log(void *userdata, _unused_ enum log_level level, const char *line)
{
	struct request *q = userdata;

	progress_clear(&q->progress);
	refuse("%s", line);
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

static int parse_chunking(const struct conf_key *k _unused_, void *request _unused_, const char *value, const char **ret_why)
{
	enum chunking c;

	*ret_why = "must be page, cdc or auto";
	return chunking_parse(value, strlen(value), &c) == 0 ? 0 : -EINVAL;
}

static int parse_compress(const struct conf_key *k _unused_, void *request _unused_, const char *value, const char **ret_why)
{
	struct compress c;

	*ret_why = "must be none, lz4, zstd, zstd:LEVEL or auto";
	return compress_parse(value, strlen(value), &c) == 0 ? 0 : -EINVAL;
}

static const struct conf_key options[] = {
	{ "chunking", CONF_STRING, OF(chunking), .parse = parse_chunking, .value = "NAME",
	  .help = "measure only stores with page, cdc or auto (default: all of them)" },
	{ "compress", CONF_STRING, OF(compress), .parse = parse_compress, .value = "NAME",
	  .help = "measure only stores with none, lz4, zstd, zstd:LEVEL or auto (default: none and zstd)" },
	{ "page", CONF_SIZE, OF(page), .fallback = "4K", .min = KiB(4), .max = MiB(1),
	  .must = "must be a power of two, 4K to 1M", .help = "size of pages, a power of two, 4K to 1M" },
	{ "min", CONF_SIZE, OF(min), .fallback = "512", .max = CDC_MAX, .must = CDC_LIMITS,
	  .help = "shortest content-defined chunk" },
	{ "avg", CONF_SIZE, OF(avg), .fallback = "4K", .max = CDC_MAX, .must = CDC_LIMITS, .help = "average chunk" },
	{ "max", CONF_SIZE, OF(max), .fallback = "32K", .max = CDC_MAX, .must = CDC_LIMITS,
	  .help = "longest chunk, up to 64K" },
	{ "dedup", CONF_CHOICE, OF(conf.dedup), .fallback = "global", .choices = "global|group|user",
	  .help = "which files share chunks, as the mount option" },
	{ "fsync", CONF_FLAG, OF(conf.fsync), .help = "sync each file once it is written, as with fsync(2)" },
	{ "measure", CONF_SIZE, OF(conf.limit), .fallback = "4G", .min = 1, .must = "must be more than 0",
	  .help = "write at most this many bytes of the newest steps into each store" },
	{ "no-compact", CONF_FLAG, OF(conf.no_compact), .help = "do not compact the stores" },
	COMPACT_OPTIONS(struct request, planner),
	NAMES_FILE_OPTION(struct request, names),
	{ "variables", CONF_FLAG, OF(variables), .help = "show the result of compaction for each variable" },
	{ "rivals", CONF_FLAG, OF(rivals),
	  .help = "compare with gzip -6, zstd -3 and zstd -19 of all files in one stream" },
	{ "images", CONF_FLAG, OF(images),
	  .help = "show process images (ELF core files, CRIU, DMTCP) by kind of memory: heap, stack..." },
	COMMAND_JSON(struct request, json),
	COMMAND_QUIET(struct request, quiet, "no progress"),
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	struct request *q = request;

	q->conf.chunking = q->chunking;
	q->conf.compress = q->compress;
	q->conf.page = (uint32_t)q->page;
	q->conf.cdc = (struct cdc_params){ .min = (uint32_t)q->min, .avg = (uint32_t)q->avg, .max = (uint32_t)q->max };
	if (q->page & (q->page - 1))
		return "--page must be a power of two, 4K to 1M";
	if (!cdc_params_valid(&q->conf.cdc))
		return "--min, --avg and --max " CDC_LIMITS;
	return q->variables && q->conf.no_compact ? "--variables and --no-compact exclude each other" : NULL;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;
	int r;

	watchdog_begin("ckptfs-analyze", operands[0], EXIT_FAILED);
	log_to_function(on_log, q);
	log_set_level(LOG_LEVEL_ERROR);
	classifier_find(q->helper);
	q->planner.helper = q->helper;
	q->planner.names = q->names.is_given ? q->names.text : NULL;
	progress_init(&q->progress);
	q->progress.on &= !q->quiet;
	interrupt_catch();
	r = analyze(q, operands, nr);
	files_release(&q->files);
	if (r == -ENOMEM)
		refuse("out of memory");
	return interrupted() ? EXIT_INTERRUPTED : r < 0 ? EXIT_FAILED : EXIT_DONE;
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-analyze",
		.usage = "ckptfs-analyze [--chunking NAME] [--compress NAME] [--page SIZE] [--min SIZE] [--avg SIZE] [--max SIZE]\n"
			 "                      [--dedup global|group|user] [--fsync] [--measure SIZE] [--no-compact] [--scheme NAME]\n"
			 "                      [--group N] [--block SIZE] [--chain N] [--budget SECONDS] [--names FILE]\n"
			 "                      [--variables] [--rivals] [--images] [--json] [--quiet] FILE|DIRECTORY...\n",
		.about = "Write the files into scratch stores, report their size on the disk, before and after ckptfs compact, and "
			 "recommend mount options. Needs no mount.",
		.options = options,
		.footer = "Scratch stores are created in TMPDIR (default /tmp), one at a time, and removed.\n"
			  "Exit status: 0 done, 1 usage, 2 there is nothing to analyze, or something could not be read or "
			  "measured, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = COMMAND_OPERANDS_MAX,
		.operands = "a file or directory",
		.check = check,
		.run = run,
	};
	const char *where = getenv("TMPDIR");
	static struct request q = { .planner = COMPACT_PLANNER_DEFAULT };

	q.conf = (struct stores_conf){
		.where = where && *where ? where : "/tmp",
		.planner = &q.planner,
		.step = report_progress,
		.userdata = &q,
	};
	return command_main(&command, &q, argc, argv);
}
