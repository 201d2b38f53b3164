/*
 * ckptfs-analyze: what ckptfs would save on files, without a mount.
 *
 * Exit status: 0 all was read, 1 usage, 2 something could not be read (the figures are of the rest), 130 interrupted
 * (the figures are of what was read until then).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "tools/analyze.h"
#include "tools/analyze_complain.h"
#include "tools/analyze_report.h"
#include "tools/classifier.h"
#include "tools/interrupt.h"
#include "tools/names_file.h"
#include "tools/output.h"

#define SHOW_NS (200 * 1000 * 1000ull)
#define BAR_WIDTH 30
#define MEMORY_DEFAULT MiB(256)
#define GROUP_MAX 4096
#define CHAIN_MAX 64
#define CDC_MAX KiB(64) /* as of the mount option cdc: what cannot be mounted need not be known */

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_INTERRUPTED = 130 };

struct request {
	struct analyze_conf conf;
	struct variables_conf aware;
	bool json, quiet, variables, rivals, images;
	char helper[PATH_MAX]; /* ckptfs-classify */
	char names[NAMES_TEXT_MAX + 1];

	struct files files;
	uint64_t started_ns, shown_ns;
	bool bar_shown;
};

static void help(FILE *to)
{
	fprintf(to,
		"Usage: ckptfs-analyze [--json] [--page SIZE] [--min SIZE] [--avg SIZE] [--max SIZE] [--memory SIZE]\n"
		"                      [--dedup global|group|user]\n"
		"                      [--variables [--scheme NAME] [--group N] [--block SIZE] [--chain N] [--budget SECONDS]\n"
		"                      [--names FILE] [--no-twins] [--rivals]] [--images] [--quiet] FILE|DIRECTORY...\n"
		"Tell what ckptfs would store of these files, and with which mount options the least. Needs no mount.\n\n"
		"  --page SIZE    look at pages of this size too, a power of two, 4K to 1M\n"
		"  --min SIZE     content-defined chunks: the shortest (default %" PRIu32 ")\n"
		"  --avg SIZE     their average (default %" PRIu32 ")\n"
		"  --max SIZE     the longest, up to 64K (default %" PRIu32 ")\n"
		"  --memory SIZE  memory for fingerprints (default 256M); when it is full, figures become estimates\n"
		"  --dedup WHO    whose files may share chunks, as of the mount option: global (default), group, user\n"
		"  --variables    look at variables in HDF5, netCDF, safetensors, torch and numpy files: what they become,\n"
		"                 merged over ranks and coded by their type against the step before\n"
		"  --scheme NAME  how they are merged: agnostic, agnostic-block, aware, aware-block, auto (default)\n"
		"  --group N      ranks that are merged (default 16)\n"
		"  --block SIZE   what takes turns in the -block schemes (default 4K)\n"
		"  --chain N      steps that are coded one against the other, 0 to 64 (default 4)\n"
		"  --budget S     CPU seconds per GB that coding may take (default 10)\n"
		"  --names FILE   rules that say what variables are called instead: an expression and a new name a line\n"
		"  --no-twins     do not look for variables that are other ones, rounded to fewer bytes\n"
		"  --rivals       also what gzip -6, zstd -3 and zstd -19 make of all files as one stream\n"
		"  --images       look at images of processes (ELF core files, CRIU, DMTCP) by what memory was: heap, stack, code...\n"
		"  --json         the result as one JSON document; keys keep their meaning (schema_version)\n"
		"  -q, --quiet    no progress\n"
		"  -h, --help     this text\n"
		"  -V, --version  the version\n\n"
		"Exit status: 0 done, 1 usage, 2 something could not be read, 130 interrupted.\n",
		CDC_PARAMS_DEFAULT.min, CDC_PARAMS_DEFAULT.avg, CDC_PARAMS_DEFAULT.max);
}

/* One line that is drawn over itself: how far, how fast, how long still. */
static void show_progress(struct request *q, uint64_t bytes)
{
	uint64_t now = monotonic_ns(), all = q->files.size;
	double s = (double)(now - q->started_ns) / 1e9, rate = (double)bytes / s;
	int full = all > 0 ? (int)MIN(bytes * BAR_WIDTH / all, (uint64_t)BAR_WIDTH) : 0;

	if (now - q->shown_ns < SHOW_NS)
		return;
	q->shown_ns = now;
	q->bar_shown = true;
	fprintf(stderr, "\r[%.*s%*s] ", full, "##############################", BAR_WIDTH - full, "");
	fprintf(stderr, "%s of %s, %s/s", human_size(bytes).s, human_size(all).s, human_size((uint64_t)rate).s);
	if (bytes > 0 && bytes < all)
		fprintf(stderr, ", %.0f s left", (double)(all - bytes) / rate);
	fputs("\033[K", stderr);
}

static bool step(void *userdata, uint64_t bytes)
{
	struct request *q = userdata;

	if (!q->quiet && isatty(STDERR_FILENO))
		show_progress(q, bytes);
	return !interrupted();
}

static void end_progress(struct request *q)
{
	if (q->bar_shown)
		fputs("\r\033[K", stderr);
	q->bar_shown = false;
}

/* v, images: NULL if they are not wanted. */
static void report(const struct request *q, const struct analysis *a, const struct variables *v,
		   const struct rival *rivals, const struct images *images)
{
	struct setting s;
	size_t len;

	setting_recommend(a, &s);
	len = strlen(s.options);
	if (q->files.domains != FP_OF_ALL)
		snprintf(s.options + len, sizeof(s.options) - len, ",dedup=%s", domains_names[q->files.domains]);
	if (q->json) {
		report_json(a, &q->files, &s, v, rivals, images);
		return;
	}
	report_text(a, &q->files, &s);
	if (v)
		variables_text(v, rivals);
	if (images)
		images_text(images);
}

static int look_at_variables(struct request *q, struct variables *v, struct rival *rivals)
{
	int r;

	classifier_find(q->helper);
	q->aware.helper = q->helper;
	r = variables_init(v, &q->aware);
	q->started_ns = monotonic_ns();
	if (r == 0)
		r = variables_run(v, &q->files);
	q->started_ns = monotonic_ns();
	if (r == 0 && q->rivals && !interrupted())
		r = rivals_run(&q->files, q->aware.step, q->aware.userdata, rivals);
	end_progress(q);
	return r;
}

static int look_at_images(struct request *q, struct images *is)
{
	struct images_conf conf = {
		.cdc = q->conf.cdc, .memory = q->conf.memory, .helper = q->helper, .step = step, .userdata = q
	};
	int r;

	classifier_find(q->helper);
	r = images_init(is, &conf);
	q->started_ns = monotonic_ns();
	if (r == 0)
		r = images_run(is, &q->files);
	end_progress(q);
	return r;
}

static int analyze(struct request *q, char *paths[], int nr)
{
	_cleanup_(analysis_release) struct analysis a = { 0 };
	_cleanup_(variables_release) struct variables v = { 0 };
	_cleanup_(images_release) struct images images = { 0 };
	struct rival rivals[NR_RIVALS] = { 0 };
	int failed = 0, r;

	for (int i = 0; i < nr; i++) {
		r = files_add(&q->files, paths[i]);
		if (r == -ENOMEM)
			return r;
		failed = r < 0 ? r : failed;
	}
	r = files_arrange(&q->files);
	if (r == 0)
		r = analysis_init(&a, &q->conf);
	if (r < 0)
		return r;
	q->started_ns = monotonic_ns();
	r = analysis_run(&a, &q->files);
	end_progress(q);
	if (r == 0 && q->variables && !interrupted())
		r = look_at_variables(q, &v, rivals);
	if (r == 0 && q->images && !interrupted())
		r = look_at_images(q, &images);
	if (r < 0)
		return r;
	if (q->files.nr > 0 || (q->json && failed == 0))
		report(q, &a, v.work ? &v : NULL, rivals[0].name ? rivals : NULL, images.image ? &images : NULL);
	else if (failed == 0)
		refuse("there are no files to look at");
	for (size_t i = 0; i < q->files.nr; i++)
		failed = q->files.file[i].error < 0 ? q->files.file[i].error : failed;
	if (((v.work && !v.complete) || (images.image && !images.complete)) && failed == 0)
		failed = -EIO; /* has been told of */
	return failed;
}

/* What base/ refuses. */
static void on_log(_unused_ void *userdata, _unused_ enum log_level level, const char *line)
{
	refuse("%s", line);
}

static bool is_page(uint64_t size)
{
	return size >= KiB(4) && size <= MiB(1) && (size & (size - 1)) == 0;
}

static int set_size(struct request *q, int option, const char *text)
{
	uint64_t size;

	if (parse_size(text, &size) < 0)
		return refuse("%s: not a size such as 64K or 1G", text);
	if (option == 'm') {
		q->conf.memory = size;
		return size >= ANALYZE_MEMORY_MIN ?
			       0 :
			       refuse("--memory %s: must be at least %uK", text, ANALYZE_MEMORY_MIN / 1024);
	}
	size = MIN(size, (uint64_t)UINT32_MAX);
	if (option == 'p') {
		q->conf.page = (uint32_t)size;
		return is_page(size) ? 0 : refuse("--page %s: must be a power of two, 4K to 1M", text);
	}
	*(option == 'n' ? &q->conf.cdc.min : option == 'a' ? &q->conf.cdc.avg : &q->conf.cdc.max) = (uint32_t)size;
	return 0;
}

static int set_number(const char *name, const char *text, unsigned least, unsigned most, unsigned *ret)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || n < least || n > most)
		return refuse("--%s %s: must be a number, %u to %u", name, text, least, most);
	*ret = (unsigned)n;
	return 0;
}

static int set_dedup(struct request *q, const char *text)
{
	for (enum fp_domain_kind d = 0; d < NR_FP_DOMAIN_KINDS; d++)
		if (strcmp(text, domains_names[d]) == 0) {
			q->files.domains = d;
			return 0;
		}
	return refuse("--dedup %s: must be global, group or user", text);
}

static int set_scheme(struct request *q, const char *text)
{
	for (enum scheme s = 0; s < NR_SCHEMES; s++)
		if (strcmp(text, scheme_names[s]) == 0) {
			q->aware.scheme = s;
			return 0;
		}
	return refuse("--scheme %s: must be agnostic, agnostic-block, aware, aware-block or auto", text);
}

static int set_budget(struct request *q, const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds > 0 && seconds <= 1e6))
		return refuse("--budget %s: must be CPU seconds per GB, more than 0", text);
	q->aware.budget = seconds;
	return 0;
}

/* How variables are looked at: 1 it was such an option, 0 another one, < 0 refused. */
static int set_aware(struct request *q, int option, const char *text)
{
	int r = 0;

	switch (option) {
	case 'S':
		r = set_scheme(q, text);
		break;
	case 'G':
		r = set_number("group", text, 1, GROUP_MAX, &q->aware.group);
		break;
	case 'C':
		r = set_number("chain", text, 0, CHAIN_MAX, &q->aware.chain);
		break;
	case 'B':
		if (parse_size(text, &q->aware.block) < 0 || q->aware.block < 8 || q->aware.block % 8 != 0)
			r = refuse("--block %s: must be a size such as 4K, a multiple of 8", text);
		break;
	case 'U':
		r = set_budget(q, text);
		break;
	case 'N':
		r = names_file_read(text, q->names);
		q->aware.names = q->names;
		break;
	case 'T':
		q->aware.no_twins = true;
		break;
	case 'R':
		q->rivals = true;
		break;
	default:
		return 0;
	}
	q->variables = true;
	return r < 0 ? r : 1;
}

/* 0: go on; else the exit status + 1 */
static int parse(int argc, char *argv[], struct request *q)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },	  { "page", required_argument, NULL, 'p' },
		{ "min", required_argument, NULL, 'n' },  { "avg", required_argument, NULL, 'a' },
		{ "max", required_argument, NULL, 'x' },  { "memory", required_argument, NULL, 'm' },
		{ "quiet", no_argument, NULL, 'q' },	  { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },	  { "variables", no_argument, NULL, 'v' },
		{ "scheme", required_argument, NULL, 'S' }, { "group", required_argument, NULL, 'G' },
		{ "block", required_argument, NULL, 'B' },  { "chain", required_argument, NULL, 'C' },
		{ "budget", required_argument, NULL, 'U' }, { "rivals", no_argument, NULL, 'R' },
		{ "no-twins", no_argument, NULL, 'T' },	    { "images", no_argument, NULL, 'I' },
		{ "names", required_argument, NULL, 'N' },  { "dedup", required_argument, NULL, 'D' },
		{ 0 },
	};
	int c, r;

	while ((c = getopt_long(argc, argv, "qhV", options, NULL)) >= 0)
		switch (c) {
		case 'j':
			q->json = true;
			break;
		case 'q':
			q->quiet = true;
			break;
		case 'v':
			q->variables = true;
			break;
		case 'I':
			q->images = true;
			break;
		case 'D':
			if (set_dedup(q, optarg) < 0)
				return EXIT_USAGE + 1;
			break;
		case 'h':
			help(stdout);
			return EXIT_DONE + 1;
		case 'V':
			puts("ckptfs-analyze " CKPTFS_VERSION);
			return EXIT_DONE + 1;
		case '?':
			fputs("Try ckptfs-analyze --help.\n", stderr);
			return EXIT_USAGE + 1;
		default:
			r = set_aware(q, c, optarg);
			if (r < 0 || (r == 0 && set_size(q, c, optarg) < 0))
				return EXIT_USAGE + 1;
		}
	if (!cdc_params_valid(&q->conf.cdc) || q->conf.cdc.max > CDC_MAX) {
		refuse("--min %" PRIu32 " --avg %" PRIu32 " --max %" PRIu32
		       ": must be 256 <= min, 2 min <= avg, 2 avg <= max <= 64K",
		       q->conf.cdc.min, q->conf.cdc.avg, q->conf.cdc.max);
		return EXIT_USAGE + 1;
	}
	if (optind == argc) {
		refuse("a file or directory must be given; try ckptfs-analyze --help");
		return EXIT_USAGE + 1;
	}
	return 0;
}

int main(int argc, char *argv[])
{
	struct request q = {
		.conf = { .cdc = CDC_PARAMS_DEFAULT, .memory = MEMORY_DEFAULT, .step = step, .userdata = &q },
		.aware = { .group = 16, .block = KiB(4), .chain = 4, .budget = 10, .step = step, .userdata = &q },
	};
	int r;

	log_to_function(on_log, NULL);
	r = parse(argc, argv, &q);
	if (r > 0)
		return r - 1;
	interrupt_catch();
	r = analyze(&q, argv + optind, argc - optind);
	files_release(&q.files);
	if (r == -ENOMEM)
		refuse("out of memory; a smaller --memory may help");
	if (interrupted())
		return EXIT_INTERRUPTED;
	return output_finish("ckptfs-analyze", r < 0 ? EXIT_FAILED : EXIT_DONE, EXIT_FAILED);
}
